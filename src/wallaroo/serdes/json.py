"""JSON.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, overload

from wallaroo.serdes.plain_values import plain
from wallaroo.serdes.registry import RegisteredCodec, SchemaRegistry, check_client
from wallaroo.serdes.serde import STOP, Codec, Event, Serde, label_of
from wallaroo.serdes.shape_errors import ShapeError
from wallaroo.serdes.shapes import reader_of


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _check_encodable(value: Any) -> None:
    """Raise ShapeError if a text holds half of a surrogate pair: no sink could encode it."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start].encode("unicode_escape").decode()
        raise ShapeError(
            f"a text holds {half}, half of a surrogate pair, which UTF-8 cannot encode"
        ) from None


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
        if b"\\ud" in payload or b"\\uD" in payload:  # only an escape can write a surrogate
            _check_encodable(value)
        return value if self._read is None else self._read(value)

    def encode(self, event: Any) -> bytes:
        return self._write(event).encode()


class RegisteredJsonCodec(RegisteredCodec):
    """Texts of JSON behind the id of their JSON Schema, which is not looked at: the type is."""

    schema_kind = "JSON"

    def __init__(self, registry: SchemaRegistry, schema: Any, kind: Any):
        super().__init__(registry, schema, kind)
        self._schema = schema
        self._codec = JsonCodec(kind)

    def schema_text(self) -> str:
        if self._schema is None:
            return ""
        return self._schema if isinstance(self._schema, str) else json.dumps(self._schema)

    def reader(self, number: int) -> Callable[[Any], Any]:
        return self._codec.decode

    def writer(self, text: str) -> Callable[[Any], bytes]:
        return self._codec.encode


class Json(Serde[Event]):
    """Events as JSON: of a type (``Json(Order)``, a dataclass, say), or as dicts and lists.

    Dates and times are ISO 8601, Decimal and UUID texts, bytes base64.  NaN and infinity are
    refused in both directions: they are no JSON.

    With ``schema_registry`` payloads begin with the id of their JSON Schema; ``schema`` (a dict, or
    its text) is what encoders register.  Events are checked by their type, not by the schema.
    """

    @overload
    def __init__(
        self: Json[Any],
        kind: None = None,
        *,
        schema: Any = None,
        schema_registry: SchemaRegistry | None = None,
        on_error: str = STOP,
    ): ...
    @overload
    def __init__(
        self,
        kind: type[Event],
        *,
        schema: Any = None,
        schema_registry: SchemaRegistry | None = None,
        on_error: str = STOP,
    ): ...
    def __init__(
        self,
        kind: Any = None,
        *,
        schema: Any = None,
        schema_registry: SchemaRegistry | None = None,
        on_error: str = STOP,
    ):
        codec: Codec = JsonCodec(kind)
        if schema_registry is not None:
            check_client("Json")
            codec = RegisteredJsonCodec(schema_registry, schema, kind)
        super().__init__(label_of("json", kind), codec, on_error)


__all__ = ["Json", "JsonCodec", "ShapeError"]
