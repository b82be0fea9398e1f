"""Codec of typed values in msgspec's formats: JSON and MessagePack."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec
from msgspec import inspect

from wallaroo.serdes.models import has_models
from wallaroo.serdes.serde import Codec, exact_class
from wallaroo.serdes.shape_errors import shape_error
from wallaroo.serdes.tagged import by_tag, check_distinct, tag_writer, tagged_reader
from wallaroo.serdes.typed import (
    Read,
    check_written,
    is_named_tuple,
    model_reader_of,
    parts_of,
    plain,
    refuse_nan,
    refuse_seconds,
    struct_of,
    written,
    written_as_json,
)

# It takes half of the time of `in`, which tries a number first, and so raises and clears an error.
_find_null = re.compile(b"null").search
_find_offset = re.compile(rb':\d\d"').search  # a time in UTC ends with Z


class TypedCodec(Codec):
    """The codec of a type's values in a format of msgspec.

    The type may be None: values are as they are.

    The format is JSON or MessagePack.  With ``tag`` the type is a union of classes, and the field
    of that name holds the name of the value's class.  If the union has None, too, it is the value
    of payloads of any other class.
    """

    format: ClassVar[Any]  # msgspec.json or msgspec.msgpack
    has_nan: ClassVar[bool]  # whether the format can express it

    def __init__(self, kind: Any, tag: str | None = None):
        super().__init__(kind, tag)
        self.event_class = exact_class(kind)
        self._classes = (kind,) if tag is None else tuple(by_tag(kind, tag).values())
        self._tag = tag
        self._is_json = self.format is msgspec.json
        hook = written_as_json if self._is_json else written
        self._with_tag = None if tag is None else tag_writer(self._classes, tag, hook)
        parts = {
            type(part) for each in self._classes if each is not None for part in parts_of(each)
        }
        has_sets = inspect.SetType in parts or inspect.FrozenSetType in parts
        order: Any = "deterministic" if has_sets else None
        self._write = self.format.Encoder(enc_hook=hook, order=order).encode
        self._write_unsorted = self.format.Encoder(enc_hook=hook).encode
        self._plain: Read = self.format.Decoder().decode
        self._read = (
            self._reader(kind)
            if tag is None
            else tagged_reader(kind, tag, self.format, self._reader)
        )
        self.quick = self._read
        # msgspec writes NaN as null: only types that may hold a float need a second check
        unchecked = {inspect.FloatType, inspect.AnyType, inspect.CustomType}
        may_hold_nan = not parts or not parts.isdisjoint(unchecked)
        self._may_hold_nan = may_hold_nan and not self.has_nan
        may_have_offset = {inspect.DateTimeType, inspect.TimeType, inspect.CustomType}
        self._may_hold_offset = self._is_json and not parts.isdisjoint(may_have_offset)

    def check_encoder(self, label: str) -> None:
        for each in self._classes:
            check_written(label, each)
        if self._tag is not None:
            check_distinct(label, self._classes, self._tag)

    def decode(self, payload: Any) -> Any:
        try:
            return self._read(payload)
        except msgspec.ValidationError as error:
            raise shape_error(str(error), self._plain(payload)) from None

    def encode(self, event: Any) -> bytes:
        form = event if self._with_tag is None else self._with_tag(event)
        try:
            payload: bytes = self._write(form)
        except TypeError:  # sets of values that cannot be sorted are written as they are
            payload = self._write_unsorted(form)
        if self._may_hold_nan and _find_null(payload):
            refuse_nan(event)
        if self._may_hold_offset and _find_offset(payload):
            refuse_seconds(plain(event))
        return payload

    def _reader(self, kind: Any) -> Read:
        if kind is None:
            return self._plain
        if has_models(kind):
            return self._model_reader(kind)
        read: Read = self.format.Decoder(kind).decode
        if not is_named_tuple(kind):
            return read
        read_fields = self.format.Decoder(struct_of(kind)).decode
        values_of = msgspec.structs.astuple

        def read_named_tuple(payload: Any) -> Any:
            try:
                return kind(*values_of(read_fields(payload)))
            except msgspec.ValidationError as error:
                if "got `array`" not in str(error):
                    raise
            return read(payload)

        return read_named_tuple

    def _model_reader(self, kind: Any) -> Read:
        check = model_reader_of(kind, is_json=self._is_json)
        if self._is_json:
            return check
        plain = self._plain

        def read(payload: Any) -> Any:
            return check(plain(payload))

        return read
