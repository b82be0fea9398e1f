"""CSV: one row per line."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from datetime import datetime, time
from typing import Any, ClassVar, NamedTuple, is_typeddict, overload

from msgspec import inspect

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.serdes import typed
from wallaroo.serdes.serde import STOP, Codec, Event, Serde, exact_class, label_of
from wallaroo.serdes.shape_errors import shown

_find_special = re.compile('["\r\n\0]').search  # a row without them is split at its delimiters
# bytes are in base64, as in JSON
_native = tuple(each for each in typed.NATIVE if each not in (bytes, bytearray))
_TIMES = frozenset([datetime, time])
_OF_SEVERAL_VALUES = frozenset([list, tuple, dict])
_TYPES_OF_SEVERAL_VALUES = (
    inspect.CollectionType,
    inspect.TupleType,
    inspect.DictType,
    inspect.DataclassType,
    inspect.StructType,
    inspect.TypedDictType,
    inspect.NamedTupleType,
)


class _Text:
    """A file whose ``write`` returns its argument, for row writers."""

    write = staticmethod(str)


class CsvLine(NamedTuple):
    """A line of a file whose first line names the columns."""

    header: bytes
    line: bytes


def row_of(text: str, delimiter: str) -> list[str]:
    """Read one row.  Raises ValueError if a quote is not closed on the line."""
    if text and not _find_special(text):
        return text.split(delimiter)
    if len(text) > csv.field_size_limit():  # sources bound what they receive
        csv.field_size_limit(len(text))
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        raise ValueError(
            f"{error}; a row has to be on one line, even if a value is in quotes"
        ) from None


class CsvCodec(Codec):
    """The codec of rows: dicts of texts, or values of a type."""

    is_line: ClassVar[bool] = True

    def __init__(self, kind: Any, columns: tuple[str, ...] | None, delimiter: str):
        super().__init__(kind, columns, delimiter)
        self.event_class = dict if kind is None else exact_class(kind)
        self._fields = (
            {} if kind is None else {f.encode_name: f.type for f in typed.fields_read(kind)}
        )
        self._kind = kind
        self._columns = columns
        # dicts of a typed dict may have their keys in any order
        self._written = columns or (tuple(self._fields) if is_typeddict(kind) else None)
        self._delimiter = delimiter
        self._headers: dict[bytes, tuple[str, ...]] = {}
        self._read = None if kind is None else typed.reader_of(kind, is_text=True)

    def decode(self, payload: bytes | CsvLine) -> Any:
        columns = self._columns
        if isinstance(payload, CsvLine):
            columns = columns or self._named_by(payload.header)
            payload = payload.line
        columns = columns or tuple(self._fields)
        if not columns:
            raise ValueError("the columns are not known: give Csv(columns=(...))")
        values = row_of(str(payload, "utf-8"), self._delimiter)
        if not values:
            return None  # an empty line
        if len(values) != len(columns):
            raise ValueError(f"the row has {len(values)} values for {len(columns)} columns")
        row = dict(zip(columns, values, strict=True))
        return row if self._read is None else self._read(row)

    def _named_by(self, header: bytes) -> tuple[str, ...]:
        known = self._headers.get(header)
        if known is None:
            known = self._headers[header] = tuple(row_of(str(header, "utf-8-sig"), self._delimiter))
        return known

    def check_encoder(self, label: str) -> None:
        typed.check_written(label, self._kind)
        for name in (self._columns or self._fields) if self._fields else ():
            if name not in self._fields:
                what = f"{name!r} is a column, and no field of the events."
            elif isinstance(self._fields[name], _TYPES_OF_SEVERAL_VALUES):
                what = f"The field {name!r} is of several values, and a column has one."
            else:
                continue
            fix = f"Name the columns to write, without {name!r}, in columns=(...)."
            raise WallarooParameterError(Problem(label, "", what, fix))

    def encode(self, event: Any) -> bytes:
        row = typed.plain(event, _native)
        columns = self._written
        if columns is not None and type(row) is not dict and typed.is_named_tuple(type(event)):
            row = dict(zip(event._fields, row, strict=True))
        if type(row) is dict:
            try:
                row = list(row.values()) if columns is None else [row[name] for name in columns]
            except KeyError as error:
                raise ValueError(f"the event has no value for the column {error}") from None
        elif type(row) not in (list, tuple):
            raise TypeError(f"a row is an object, a dict or a list, not {shown(event)}")
        elif columns is not None and len(row) != len(columns):
            raise ValueError(f"the row has {len(row)} values for {len(columns)} columns")
        if not _OF_SEVERAL_VALUES.isdisjoint(map(type, row)):
            raise TypeError("a value of the row is a list or an object; a column has one value")
        if not _TIMES.isdisjoint(map(type, row)):
            typed.refuse_seconds(row)
        text: str = csv.writer(_Text, delimiter=self._delimiter, lineterminator="").writerow(row)
        if "\n" in text or "\r" in text:
            raise ValueError("a value holds a newline, and a row has to be on one line")
        return text.encode()


class Csv(Serde[Event]):
    """Events as rows of CSV, UTF-8, each on a line.

    They are of a type, whose fields are read from texts, or dicts of texts.

    ``columns`` names the columns; a source of CSV files reads them from each file's first line.
    """

    @overload
    def __init__(
        self: Csv[dict[str, str]],
        kind: None = None,
        *,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        on_error: str = STOP,
    ): ...
    @overload
    def __init__(
        self,
        kind: type[Event],
        *,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        on_error: str = STOP,
    ): ...
    def __init__(
        self,
        kind: Any = None,
        *,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        on_error: str = STOP,
    ):
        if not isinstance(delimiter, str) or len(delimiter) != 1 or _find_special(delimiter):
            what = f"delimiter={delimiter!r} is not one character that only separates values."
            raise WallarooParameterError(Problem("Csv", "", what, "Give one, such as ';'."))
        if isinstance(columns, str) or (columns and len(set(columns)) < len(columns)):
            what = f"columns={columns!r} are not different names."
            raise WallarooParameterError(Problem("Csv", "", what, "Name each column once."))
        codec = CsvCodec(kind, tuple(columns) if columns else None, delimiter)
        super().__init__(label_of("csv", kind), codec, on_error)
