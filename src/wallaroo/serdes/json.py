"""JSON.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

import json
from typing import Any, overload

from wallaroo.serdes.plain_values import plain
from wallaroo.serdes.serde import STOP, Codec, Event, Serde, label_of
from wallaroo.serdes.shape_errors import ShapeError
from wallaroo.serdes.shapes import reader_of


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


class JsonCodec(Codec):
    """Texts of JSON, UTF-8, as values of a type, or as they are (None)."""

    def __init__(self, kind: Any):
        super().__init__(kind)
        self._parse = json.JSONDecoder(parse_constant=_no_number).decode
        self._write = json.JSONEncoder(
            default=plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode
        self._read = None if kind is None else reader_of(kind)

    def decode(self, payload: bytes) -> Any:
        value = self._parse(str(payload, "utf-8"))
        return value if self._read is None else self._read(value)

    def encode(self, event: Any) -> bytes:
        return self._write(event).encode()


class Json(Serde[Event]):
    """Events as JSON: of a type (``Json(Order)``, a dataclass, say), or as dicts and lists.

    Dates and times are ISO 8601, Decimal and UUID texts, bytes base64.  NaN and infinity are
    refused in both directions: they are no JSON.
    """

    @overload
    def __init__(self: Json[Any], kind: None = None, *, on_error: str = STOP): ...
    @overload
    def __init__(self, kind: type[Event], *, on_error: str = STOP): ...
    def __init__(self, kind: Any = None, *, on_error: str = STOP):
        super().__init__(label_of("json", kind), JsonCodec(kind), on_error)


__all__ = ["Json", "JsonCodec", "ShapeError"]
