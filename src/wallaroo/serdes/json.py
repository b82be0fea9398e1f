"""The JSON serde."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar, overload

import msgspec

from wallaroo.serdes.registry import RegisteredCodec, SchemaRegistry, check_client
from wallaroo.serdes.serde import STOP, Codec, Event, Serde, label_of
from wallaroo.serdes.typed_codec import TypedCodec


class JsonCodec(TypedCodec):
    """The codec of JSON texts in UTF-8.

    They are values of a type, or as they are (None).
    """

    format: ClassVar[Any] = msgspec.json
    has_nan: ClassVar[bool] = False
    is_line: ClassVar[bool] = True


class RegisteredJsonCodec(RegisteredCodec):
    """The codec of JSON with its schema's id.

    The type, not the schema, checks values.
    """

    schema_kind = "JSON"

    def __init__(self, registry: SchemaRegistry, schema: Any, kind: Any, tag: str | None):
        super().__init__(registry, schema, kind, tag)
        self._schema = schema
        self._codec = JsonCodec(kind, tag)

    def check_encoder(self, label: str) -> None:
        super().check_encoder(label)
        self._codec.check_encoder(label)

    def schema_text(self) -> str:
        if self._schema is None:
            return ""
        return self._schema if isinstance(self._schema, str) else json.dumps(self._schema)

    def reader(self, number: int) -> Callable[[Any], Any]:
        return self._codec.decode

    def writer(self, text: str) -> Callable[[Any], bytes]:
        return self._codec.encode


class Json(Serde[Event]):
    """Events as JSON, of a type or as dicts and lists.

    The type may be a dataclass: ``Json(Order)``.  Pydantic reads and writes its own models.

    Dates and times are ISO 8601, Decimal and UUID are strings, bytes are base64.  NaN and infinity
    are rejected in both directions, as they are not JSON.

    For events of several classes: ``Json(Person | Bid, tag="kind")``.  The field of that name holds
    the class of an object: the class's name in lower case, or a value that a field of that name in
    the class allows (a ``Literal``).  Encoders write it.  ``Json(Bid | None, tag="kind")`` drops
    events of all other classes.

    With ``schema_registry`` payloads begin with the id of their JSON Schema; encoders register
    ``schema`` (a dict, or its text).  Events are checked by their type, not by the schema.
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
        tag: str | None = None,
        schema: Any = None,
        schema_registry: SchemaRegistry | None = None,
        on_error: str = STOP,
    ): ...
    @overload
    def __init__(
        self: Json[Any],
        kind: Any,
        *,
        tag: str,
        schema: Any = None,
        schema_registry: SchemaRegistry | None = None,
        on_error: str = STOP,
    ): ...
    def __init__(
        self,
        kind: Any = None,
        *,
        tag: str | None = None,
        schema: Any = None,
        schema_registry: SchemaRegistry | None = None,
        on_error: str = STOP,
    ):
        codec: Codec = JsonCodec(kind, tag)
        if schema_registry is not None:
            check_client("Json")
            codec = RegisteredJsonCodec(schema_registry, schema, kind, tag)
        super().__init__(label_of("json", kind), codec, on_error)


__all__ = ["Json", "JsonCodec"]
