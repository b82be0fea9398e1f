"""The Avro serde: one record per payload.

Records are without the schema, or with its id in a registry.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, overload

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.serdes.registry import RegisteredCodec, SchemaRegistry, check_client
from wallaroo.serdes.serde import STOP, Codec, Event, Serde, label_of, missing
from wallaroo.serdes.shape_errors import shown
from wallaroo.serdes.typed import check_written, is_named_tuple, plain, reader_of

_FLOAT_END = 3.4028235677973366e38  # a half step above the largest; from here on it is inf
Schema = Any  # a schema as JSON has it: a dict, a list (a union) or a name


class AvroCodec(Codec):
    """The codec of records that were written with one schema."""

    def __init__(self, schema: Schema, kind: Any, reader: Schema):
        # optional: only its users have it installed
        import fastavro

        super().__init__(schema, kind, reader)
        self._schema = fastavro.parse_schema(schema)
        self._reader = None if reader is None else fastavro.parse_schema(reader)
        self._read_record = fastavro.schemaless_reader
        self._write_record = fastavro.schemaless_writer
        self._parse = fastavro.parse_schema
        self._check = lossless(self._schema, {})
        self._kind = kind
        self._read = None if kind is None else reader_of(kind)

    def check_encoder(self, label: str) -> None:
        check_written(label, self._kind)

    def decode(self, payload: bytes) -> Any:
        stream = io.BytesIO(payload)
        try:
            value = self._read_record(stream, self._schema, self._reader)
        except (EOFError, IndexError, OverflowError) as error:
            raise ValueError(f"the payload is not a record of the schema: {error!r}") from error
        if stream.tell() != len(payload):
            raise ValueError(
                f"{len(payload) - stream.tell()} of {len(payload)} bytes are left after the "
                "record: it was written with another schema, or has a header"
            )
        return value if self._read is None else self._read(value)

    def encode(self, event: Any) -> bytes:
        out = io.BytesIO()
        record = plain(event)
        if type(record) is not dict and is_named_tuple(type(event)):
            record = dict(zip(event._fields, record, strict=True))
        if self._check:
            self._check(record)
        try:
            self._write_record(out, self._schema, record, strict_allow_default=True)
        except (TypeError, ValueError, OverflowError) as error:
            if " on field " in str(error) or not (name := self._refused_field(record)):
                raise
            raise ValueError(f"{error} on field {name}") from error
        return out.getvalue()

    def _refused_field(self, record: Any) -> str:
        """Return the first field that cannot be written by itself; "" if that is not known."""
        for field in self._schema.get("fields", ()) if isinstance(self._schema, dict) else ():
            with contextlib.suppress(Exception):  # a part of the schema may lack a name
                alone = self._parse({"type": "record", "name": "Alone", "fields": [field]})
                try:
                    self._write_record(io.BytesIO(), alone, record)
                except (TypeError, ValueError, OverflowError):
                    return str(field["name"])
        return ""


def lossless(schema: Schema, named: dict[str, Any]) -> Callable[[Any], None] | None:
    """Return a function that raises ValueError for a value that fastavro would change.

    They are an ``int`` of more than 32 bits, a ``float`` beyond its range and a ``boolean`` that is
    none.  None if the schema has none.  fastavro checks unions itself, save their floats.
    ``named`` are the checks of the records around, by name.
    """
    if isinstance(schema, list):
        return _check_float if "float" in schema and "double" not in schema else None
    kind = schema.get("type") if isinstance(schema, dict) else schema
    if isinstance(kind, str) and kind in _CHECKS:
        return _CHECKS[kind]
    if not isinstance(schema, dict):
        return named.get(kind) if isinstance(kind, str) else None
    if kind in ("array", "map"):
        each = lossless(schema["items" if kind == "array" else "values"], named)
        return each and partial(_check_all, each)
    if kind in ("record", "error"):
        checks: dict[str, Callable[[Any], None]] = {}
        named[schema["name"]] = partial(_check_fields, checks)
        for field in schema["fields"]:
            if check := lossless(field["type"], named):
                checks[field["name"]] = check
        return named[schema["name"]] if checks else None
    return lossless(kind, named) if isinstance(kind, dict | list) else None


def _check_int(value: Any) -> None:
    if isinstance(value, int | float) and not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"{value} does not fit an int, which has 32 bits")


def _check_float(value: Any) -> None:
    if isinstance(value, int | float) and _FLOAT_END <= abs(value) < math.inf:
        raise ValueError(f"{value} does not fit a float, which has 32 bits")


def _check_boolean(value: Any) -> None:
    if value not in (True, False):
        raise ValueError(f"{shown(value)} is not a boolean")


_CHECKS = {"int": _check_int, "float": _check_float, "boolean": _check_boolean}


def _check_all(check: Callable[[Any], None], values: Any) -> None:
    for value in values.values() if isinstance(values, dict) else values:
        check(value)


def _check_fields(checks: Mapping[str, Callable[[Any], None]], record: Any) -> None:
    for name, check in checks.items() if isinstance(record, dict) else ():
        if name in record:
            try:
                check(record[name])
            except ValueError as error:
                raise ValueError(f"{error} on field {name}") from None


class RegisteredAvroCodec(RegisteredCodec):
    """The codec of records that name their schema."""

    schema_kind = "AVRO"

    def __init__(self, registry: SchemaRegistry, schema: Schema, kind: Any, reader: Schema):
        super().__init__(registry, schema, kind, reader)
        self._schema = schema
        self._kind = kind
        self._reader_schema = schema if reader is None else reader
        if schema is not None or reader is not None:
            AvroCodec(self._reader_schema, kind, schema)  # raises now if they are wrong
        elif kind is not None:
            reader_of(kind)

    def check_encoder(self, label: str) -> None:
        super().check_encoder(label)
        check_written(label, self._kind)

    def schema_text(self) -> str:
        return "" if self._schema is None else json.dumps(self._schema)

    def reader(self, number: int) -> Callable[[Any], Any]:
        written = json.loads(self._schemas.text_of(number, self.schema_kind))
        return AvroCodec(written, self._kind, self._reader_schema).decode

    def writer(self, text: str) -> Callable[[Any], bytes]:
        return AvroCodec(json.loads(text), self._kind, None).encode


def _schema(schema: Any) -> Schema:
    if not isinstance(schema, str):
        return schema
    try:
        return json.loads(schema)
    except ValueError as error:
        what = f"The schema is not valid JSON: {error}."
        fix = "Give a dict, or the text of an .avsc file."
        raise WallarooParameterError(Problem("Avro", "", what, fix)) from None


class Avro(Serde[Event]):
    """Events as Avro records of a schema.

    The schema is a dict, or its JSON.  Events are of a type, or dicts.

    ``reader`` is a newer schema that records are read as: Avro's rules of resolution fill in
    defaults and omit fields that it does not have.  Records are written with ``schema``.  Needs
    fastavro.

    With ``schema_registry`` payloads begin with the id of the schema that they were written with,
    and are read as ``reader``, as ``schema``, or, if both are omitted, as written.
    """

    @overload
    def __init__(
        self: Avro[Any],
        schema: Schema = None,
        kind: None = None,
        *,
        reader: Schema = None,
        schema_registry: SchemaRegistry | None = None,
        on_error: str = STOP,
    ): ...
    @overload
    def __init__(
        self,
        schema: Schema,
        kind: type[Event],
        *,
        reader: Schema = None,
        schema_registry: SchemaRegistry | None = None,
        on_error: str = STOP,
    ): ...
    def __init__(
        self,
        schema: Schema = None,
        kind: Any = None,
        *,
        reader: Schema = None,
        schema_registry: SchemaRegistry | None = None,
        on_error: str = STOP,
    ):
        parsed = _schema(schema)
        try:
            codec = _codec(parsed, kind, _schema(reader), schema_registry)
        except ImportError as error:
            raise missing("Avro", "fastavro", error) from error
        except WallarooParameterError:
            raise
        except Exception as error:  # fastavro's errors of schemas have no common base
            what = f"The schema cannot be used: {type(error).__name__}: {error}."
            fix = "Correct it; see Avro's specification, 'Schema Declaration'."
            raise WallarooParameterError(Problem("Avro", "", what, fix)) from error
        name = parsed.get("name") if isinstance(parsed, dict) else None
        super().__init__(
            label_of("avro", kind) if kind else f"avro {name or 'record'}", codec, on_error
        )


def _codec(schema: Schema, kind: Any, reader: Schema, registry: SchemaRegistry | None) -> Codec:
    if registry is not None:
        check_client("Avro")
        return RegisteredAvroCodec(registry, schema, kind, reader)
    if schema is None:
        raise WallarooParameterError(
            Problem("Avro", "", "There is no schema.", "Give it, or a schema_registry.")
        )
    return AvroCodec(schema, kind, reader)
