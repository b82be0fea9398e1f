"""CSV: one row per line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, overload

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.serdes.serde import STOP, Codec, Event, Serde, exact_class, label_of
from wallaroo.serdes.typed import plain, reader_of

_find_special = re.compile('["\r\n\0]').search  # a row without them is split at its delimiters


class CsvLine(NamedTuple):
    """A line of a file whose first line names the columns."""

    header: bytes
    line: bytes


def row_of(text: str, delimiter: str) -> list[str]:
    """Read one row.  Raises ValueError if a quote is not closed on the line."""
    if text and not _find_special(text):
        return text.split(delimiter)
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
        self._columns = columns
        self._delimiter = delimiter
        self._headers: dict[bytes, tuple[str, ...]] = {}
        self._read = None if kind is None else reader_of(kind, is_text=True)

    def decode(self, payload: bytes | CsvLine) -> Any:
        columns = self._columns
        if isinstance(payload, CsvLine):
            columns = columns or self._named_by(payload.header)
            payload = payload.line
        if columns is None:
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

    def encode(self, event: Any) -> bytes:
        row = plain(event)
        if type(row) is dict:
            row = [row[name] for name in self._columns or row]
        out = io.StringIO()
        csv.writer(out, delimiter=self._delimiter, lineterminator="").writerow(row)
        text = out.getvalue()
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
        if len(delimiter) != 1:
            what = f"delimiter={delimiter!r} is not one character."
            raise WallarooParameterError(Problem("Csv", "", what, "Give one, such as ';'."))
        codec = CsvCodec(kind, tuple(columns) if columns else None, delimiter)
        super().__init__(label_of("csv", kind), codec, on_error)
