"""The MessagePack serde."""

from __future__ import annotations

from typing import Any, ClassVar, overload

from msgspec import msgpack

from wallaroo.serdes.serde import STOP, Event, Serde, label_of
from wallaroo.serdes.typed_codec import TypedCodec


class MessagePackCodec(TypedCodec):
    """The codec of a MessagePack value.

    It is a value of a type, or as it is (None).
    """

    format: ClassVar[Any] = msgpack
    has_nan: ClassVar[bool] = True


class MessagePack(Serde[Event]):
    """Events as MessagePack, of a type or as dicts and lists.

    The type may be a dataclass.

    Aware datetimes are MessagePack's timestamps.  ``tag`` names the field that holds the class of
    an object of a union, as for `Json`.
    """

    @overload
    def __init__(self: MessagePack[Any], kind: None = None, *, on_error: str = STOP): ...
    @overload
    def __init__(self, kind: type[Event], *, tag: str | None = None, on_error: str = STOP): ...
    @overload
    def __init__(self: MessagePack[Any], kind: Any, *, tag: str, on_error: str = STOP): ...
    def __init__(self, kind: Any = None, *, tag: str | None = None, on_error: str = STOP):
        super().__init__(label_of("msgpack", kind), MessagePackCodec(kind, tag), on_error)
