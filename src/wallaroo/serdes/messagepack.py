"""MessagePack.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, overload

from wallaroo.serdes.plain_values import plain
from wallaroo.serdes.serde import STOP, Codec, Event, Serde, label_of, missing
from wallaroo.serdes.shapes import reader_of

TIMESTAMPS_AS_DATETIMES = 3  # what msgpack calls it


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise TypeError(f"{value} has no time zone: MessagePack's timestamps are UTC")
        return value.astimezone(UTC)
    return plain(value)


class MessagePackCodec(Codec):
    """One MessagePack value as a value of a type, or as it is (None)."""

    def __init__(self, kind: Any):
        # optional: only those who use it have it installed
        import msgpack

        super().__init__(kind)
        self._unpack = msgpack.unpackb
        self._pack = msgpack.packb
        self._read = None if kind is None else reader_of(kind)

    def decode(self, payload: bytes) -> Any:
        value = self._unpack(payload, timestamp=TIMESTAMPS_AS_DATETIMES, strict_map_key=False)
        return value if self._read is None else self._read(value)

    def encode(self, event: Any) -> bytes:
        packed: bytes = self._pack(event, default=_plain, datetime=True)
        return packed


class MessagePack(Serde[Event]):
    """Events as MessagePack: of a type (a dataclass, say), or as dicts and lists.

    Aware datetimes are MessagePack's timestamps.  Needs msgpack: ``pip install
    'wallaroo-spark[msgpack]'``.
    """

    @overload
    def __init__(self: MessagePack[Any], kind: None = None, *, on_error: str = STOP): ...
    @overload
    def __init__(self, kind: type[Event], *, on_error: str = STOP): ...
    def __init__(self, kind: Any = None, *, on_error: str = STOP):
        try:
            codec = MessagePackCodec(kind)
        except ImportError as error:
            raise missing("MessagePack", "msgpack", "msgpack", error) from error
        super().__init__(label_of("msgpack", kind), codec, on_error)
