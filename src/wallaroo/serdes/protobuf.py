"""Protobuf.

Where it runs: everywhere; pure.  It knows no library: the message class, which protoc made, brings
Google's.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.serdes.serde import STOP, Codec, Serde
from wallaroo.serdes.shape_errors import shown


class Message(Protocol):
    """What is used of a message class."""

    @classmethod
    def FromString(cls, payload: bytes, /) -> Any:
        """Read a message."""

    def SerializeToString(self, *, deterministic: bool = ...) -> bytes:
        """Write it."""


Sent = TypeVar("Sent", bound=Message)


class ProtobufCodec(Codec):
    """Messages of one class."""

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


class Protobuf(Serde[Sent]):
    """Events as messages of a class that protoc made.

    Fields are written in one order, maps too, so a batch that runs again writes the same bytes.
    Needs protobuf: ``pip install 'wallaroo-spark[protobuf]'``.
    """

    def __init__(self, kind: type[Sent], *, on_error: str = STOP):
        if not hasattr(kind, "FromString"):
            raise WallarooParameterError(
                Problem(
                    "Protobuf",
                    "",
                    f"{kind!r} is no message class.",
                    "Give a class of a module that protoc made: Protobuf(orders_pb2.Order).",
                )
            )
        super().__init__(f"protobuf {kind.__name__}", ProtobufCodec(kind), on_error)
