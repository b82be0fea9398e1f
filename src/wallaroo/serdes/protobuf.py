"""The Protobuf serde.

It knows no library: the message class, which protoc generated, brings Google's.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.serdes.registry import RegisteredCodec, SchemaRegistry, check_client
from wallaroo.serdes.serde import STOP, Codec, Serde
from wallaroo.serdes.shape_errors import shown


class Message(Protocol):
    """The methods used of a message class."""

    @classmethod
    def FromString(cls, payload: bytes, /) -> Any:
        """Read a message."""

    def SerializeToString(self, *, deterministic: bool = ...) -> bytes:
        """Write the message."""


Sent = TypeVar("Sent", bound=Message)


class ProtobufCodec(Codec):
    """The codec of messages of one class."""

    def __init__(self, kind: type[Message]):
        super().__init__(kind)
        self._kind = kind
        self._parse = kind.FromString

    def decode(self, payload: bytes) -> Any:
        return self._parse(bytes(payload))

    def encode(self, event: Any) -> bytes:
        if type(event) is not self._kind:
            raise TypeError(f"expected a message {self._kind.__name__}, got {shown(event)}")
        payload: bytes = event.SerializeToString(deterministic=True)
        return payload


class RegisteredProtobufCodec(RegisteredCodec):
    """The codec of messages behind the id of a schema.

    The schema is that of their file; their place in it follows the id.
    """

    schema_kind = "PROTOBUF"

    def __init__(self, registry: SchemaRegistry, kind: type[Message]):
        super().__init__(registry, kind)
        self._codec = ProtobufCodec(kind)
        self._descriptor: Any = kind.DESCRIPTOR  # type: ignore[attr-defined]  # what protoc made

    def check_encoder(self, label: str) -> None:
        super().check_encoder(label)
        imported = [
            file.name
            for file in self._descriptor.file.dependencies
            if not file.name.startswith("google/protobuf/")
        ]
        if imported and self._registry.register:
            raise WallarooParameterError(
                Problem(
                    label,
                    "",
                    f"{self._descriptor.file.name} imports {', '.join(imported)}, and such schemas "
                    f"are not registered from here.",
                    "Register it by your build, and write SchemaRegistry(..., register=False).",
                )
            )

    def schema_text(self) -> str:
        return base64.b64encode(self._descriptor.file.serialized_pb).decode()

    def reader(self, number: int) -> Callable[[Any], Any]:
        decode = self._codec.decode
        return lambda payload: decode(payload[end_of_place(payload) :])

    def writer(self, text: str) -> Callable[[Any], bytes]:
        place = packed_place(place_of(self._descriptor))
        encode = self._codec.encode
        return lambda event: place + encode(event)


def place_of(descriptor: Any) -> list[int]:
    """Return a message's place in its file: the numbers of those around it, and its own."""
    place: list[int] = []
    while descriptor is not None:
        parent = descriptor.containing_type
        siblings = (
            descriptor.file.message_types_by_name if parent is None else parent.nested_types_by_name
        )
        place.insert(0, list(siblings).index(descriptor.name))
        descriptor = parent
    return place


def packed_place(place: Sequence[int]) -> bytes:
    """Return a place as bytes.

    >>> packed_place([0]), packed_place([2, 0])
    (b'\\x00', b'\\x04\\x04\\x00')
    """
    numbers = [] if list(place) == [0] else [len(place), *place]
    return b"".join(map(_zigzag, numbers)) or b"\0"


def _zigzag(number: int) -> bytes:
    rest = number << 1  # numbers are not negative
    packed = bytearray()
    while rest > 0x7F:
        packed.append(rest & 0x7F | 0x80)
        rest >>= 7
    packed.append(rest)
    return bytes(packed)


def end_of_place(payload: bytes) -> int:
    """Return the offset at which the message begins.

    Raises ValueError if the payload ends before.

    >>> end_of_place(packed_place([0])), end_of_place(packed_place([200, 1]) + b"message")
    (1, 4)
    """
    try:
        count, at = _number(payload, 0)
        for _ in range(count >> 1):
            at = _number(payload, at)[1]
    except IndexError:
        raise ValueError("the payload ends before its message begins") from None
    return at


def _number(payload: bytes, at: int) -> tuple[int, int]:
    """Return the varint at a position, and its end."""
    number = 0
    shift = 0
    while (byte := payload[at]) > 0x7F:
        number |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return number | byte << shift, at + 1


class Protobuf(Serde[Sent]):
    """Events as messages of a class that protoc generated.

    Fields are written in one order, maps too, so a batch that runs again writes the same bytes.
    Needs protobuf.

    With ``schema_registry`` payloads begin with the id of their file's schema and their place in
    it.  Decoders assume that every message is of this class.
    """

    def __init__(
        self,
        kind: type[Sent],
        *,
        schema_registry: SchemaRegistry | None = None,
        on_error: str = STOP,
    ):
        if not hasattr(kind, "FromString"):
            raise WallarooParameterError(
                Problem(
                    "Protobuf",
                    "",
                    f"{kind!r} is not a message class.",
                    "Give a class of a module that protoc made: Protobuf(orders_pb2.Order).",
                )
            )
        codec: Codec = ProtobufCodec(kind)
        if schema_registry is not None:
            check_client("Protobuf")
            codec = RegisteredProtobufCodec(schema_registry, kind)
        super().__init__(f"protobuf {kind.__name__}", codec, on_error)
