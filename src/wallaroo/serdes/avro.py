"""The Avro serde: one record per payload.

Records are without the schema, or with its id in a registry.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, overload

import msgspec
from msgspec import inspect

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.serdes.registry import RegisteredCodec, SchemaRegistry, check_client
from wallaroo.serdes.serde import STOP, Codec, Event, Serde, label_of, missing
from wallaroo.serdes.shape_errors import ShapeError, shown
from wallaroo.serdes.typed import check_written, is_named_tuple, parts_of, plain, reader_of

LISTS = (list, tuple)  # as msgspec has them
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
        parts = () if kind is None else parts_of(kind)
        records = {*_records(self._schema), *_records(self._reader)}
        self._lists = ListedRecords(parts, records) if parts else None

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
        if self._lists:
            value = self._lists.as_read(value)
        return value if self._read is None else self._read(value)

    def encode(self, event: Any) -> bytes:
        out = io.BytesIO()
        record = plain(event)
        if type(record) is not dict and is_named_tuple(type(event)):
            record = dict(zip(event._fields, record, strict=True))
        if self._lists:
            record = self._lists.as_written(record)
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


class ListedRecords:
    """The parts of a type, itself first, that are lists to msgspec and records in payloads.

    Those are named tuples, and structs with ``array_like=True``.  ``records`` are the names of each
    record's fields: what has no record is a list there, too.
    """

    def __init__(self, parts: tuple[inspect.Type, ...], records: Collection[frozenset[str]]):
        self._parts = parts
        self._listed: dict[int, dict[str, inspect.Field | None]] = {}
        for part in parts[1:]:
            is_list = isinstance(part, inspect.NamedTupleType) or getattr(part, "array_like", False)
            if is_list and any(record <= _fields(part).keys() for record in records):
                self._listed[id(part)] = _fields(part)

    def __bool__(self) -> bool:
        return bool(self._listed)

    def as_written(self, value: Any, kind: Any = None) -> Any:
        """Return a plain value with a dict for each of these lists."""
        kind = self._alternative(kind or self._parts[0], value)
        if type(value) in LISTS and id(kind) in self._listed:
            value = dict(zip(self._listed[id(kind)], value, strict=True))
        return _with_parts(kind, value, self.as_written)

    def as_read(self, value: Any, kind: Any = None) -> Any:
        """Return a record's value with a list for each of these dicts."""
        kind = self._alternative(kind or self._parts[0], value)
        value = _with_parts(kind, value, self.as_read)
        listed = self._listed.get(id(kind))
        return value if listed is None or type(value) is not dict else _listed(listed, value)

    def _alternative(self, kind: Any, value: Any) -> Any:
        """Return the type of a value, of a union's; msgspec has one for lists, or tags."""
        fitting = [each for each in getattr(kind, "types", (kind,)) if self._is_of(each, value)]
        return fitting[0] if fitting else None

    def _is_of(self, kind: Any, value: Any) -> bool:
        listed = self._listed.get(id(kind))
        tag = getattr(kind, "tag", None)
        if type(value) is dict:
            names = _fields(kind).keys()
            is_dict = hasattr(kind, "value_type") or bool(names)
            is_tagged = tag is None or value.get(kind.tag_field) == tag
            return is_dict and is_tagged and (listed is None or value.keys() <= names)
        is_list = listed is not None or hasattr(kind, "item_type") or hasattr(kind, "item_types")
        return type(value) in LISTS and is_list and (tag is None or [*value[:1]] == [tag])


def _fields(kind: Any) -> dict[str, inspect.Field | None]:
    tag = getattr(kind, "tag_field", None)
    fields = {field.encode_name: field for field in getattr(kind, "fields", ())}
    return fields if tag is None else {tag: None, **fields}


def _with_parts(kind: Any, value: Any, convert: Any) -> Any:
    if type(value) is dict:
        each = getattr(kind, "value_type", None)
        types = {name: field.type for name, field in _fields(kind).items() if field is not None}
        return {
            name: convert(part, types.get(name, each)) if name in types or each else part
            for name, part in value.items()
        }
    if type(value) not in LISTS:
        return value
    if each := getattr(kind, "item_type", None):
        return [convert(part, each) for part in value]
    of_fields = (field and field.type for field in _fields(kind).values())
    types_of = getattr(kind, "item_types", None) or tuple(of_fields)
    if len(types_of) != len(value):
        return value
    return [convert(p, each) if each else p for p, each in zip(value, types_of, strict=True)]


def _listed(fields: dict[str, inspect.Field | None], record: dict[str, Any]) -> list[Any]:
    return [
        record[name] if name in record else _default(name, field) for name, field in fields.items()
    ]


def _default(name: str, field: inspect.Field | None) -> Any:
    if field is None or field.required:
        raise ShapeError(f"object missing required field '{name}'")
    made = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return msgspec.to_builtins(made)


def _records(schema: Schema) -> Iterator[frozenset[str]]:
    """Yield the names of the fields of each record."""
    if isinstance(schema, list):
        for each in schema:
            yield from _records(each)
    elif isinstance(schema, dict):
        fields = schema.get("fields", ())
        if fields:
            yield frozenset(field["name"] for field in fields)
        for part in (*fields, *(schema.get(name) for name in ("type", "items", "values"))):
            yield from _records(part)


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
