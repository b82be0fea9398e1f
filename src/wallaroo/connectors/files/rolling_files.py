"""The content of parts: lines, or rows in Parquet, JSON or CSV.

Rows are divided by folder.

It imports Arrow.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from wallaroo.connectors.files.rows import arrow, arrow_type, as_table, schema_of
from wallaroo.sinks.staging import Staged

TIMES = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "dt": "%Y-%m-%d"}
COARSE_TO_FINE = ("year", "month", "day", "hour")
TIME_OF = re.compile(r"(\w+)\((.+)\)")
NULL = "__HIVE_DEFAULT_PARTITION__"
# those that Hive's FileUtils.escapePathName escapes, and zero, which no path can hold
ESCAPES = {code: f"%{code:02X}" for code in (*range(32), 127, *map(ord, "\"#%'*/:=?\\{[]^"))}
NAME_BYTES_MAX = 255  # Linux's bound for the name of a folder
UNITS = {"hour": timedelta(hours=1), "day": timedelta(days=1)}


@dataclass(frozen=True, slots=True)
class Level:
    """One level of folders: its name, its column and its time format."""

    name: str
    column: str
    form: str = ""

    def folder(self, value: str | None) -> str:
        """Return the name of a value's folder.

        >>> Level("city", "city").folder("a/b"), Level("city", "city").folder(None)
        ('city=a%2Fb', 'city=__HIVE_DEFAULT_PARTITION__')
        """
        return f"{self.name}={(value or '').translate(ESCAPES) or NULL}"

    def check(self, value: Any) -> None:
        """Raise ValueError if a text is too long for a folder's name."""
        if type(value) is str and len(self.folder(value).encode()) > NAME_BYTES_MAX:
            raise ValueError(f"a folder's name cannot be longer than {NAME_BYTES_MAX} bytes")


class Partitions:
    """The levels of folders of some columns.

    Raises ValueError if they are impossible.

    A level of folders is a column (``"country"``), whose values the folders' names hold instead of
    the files, or a part of the time in one (``"dt(at)"``, ``"hour(at)"``), in UTC.
    """

    def __init__(self, partition_by: Sequence[str], columns: Mapping[str, Any]):
        self.levels = tuple(_level(one, columns) for one in partition_by)
        names = [level.name for level in self.levels]
        kept = set(columns) - {level.column for level in self.levels if not level.form}
        for name in names:
            if names.count(name) > 1 or name in kept:
                raise ValueError(f"two columns would have the name {name!r}")
        if not kept:
            raise ValueError("no column would be left for the files")
        self.kept = tuple(name for name in columns if name in kept)  # the columns of files
        self._timed = tuple(place for place, level in enumerate(self.levels) if level.form)

    def check_ends(self) -> None:
        """Raise ValueError if the folders do not show where their time ends."""
        units = {self.levels[place].name for place in self._timed}
        if "dt" in units:
            units |= {"year", "month", "day"}
        if len({self.levels[place].column for place in self._timed}) != 1:
            raise ValueError("folders with an end are those of one column's time")
        if units - {"dt"} != set(COARSE_TO_FINE[: len(units - {"dt"})]):
            raise ValueError("the day of an hour, or the year of a month, is not known")

    def timed(self, folder: str) -> str:
        """Return the uppermost part of a folder that contains all of its time."""
        return "/".join(folder.split("/")[: self._timed[-1] + 1])

    def end_ns(self, folder: str) -> int | None:
        """Return the time at which a folder's time ends, if its name has one.

        >>> hours = Partitions(["dt(at)", "hour(at)"], {"at": "timestamp[us]"})
        >>> hours.end_ns("dt=1970-01-02/hour=01") // 3_600_000_000_000
        26
        """
        values = [segment.partition("=")[2] for segment in folder.split("/")]
        levels = [self.levels[place] for place in self._timed]
        try:
            text = " ".join(values[place] for place in self._timed)
            form = " ".join(level.form for level in levels)
            start = datetime.strptime(text, form).replace(tzinfo=UTC)
            names = {"day" if level.name == "dt" else level.name for level in levels}
            end = _end(start, max(names, key=COARSE_TO_FINE.index))
        except (ValueError, IndexError, OverflowError):
            return None
        return int(end.timestamp()) * 1_000_000_000


def _end(start: datetime, unit: str) -> datetime:
    if unit in UNITS:
        return start + UNITS[unit]
    if unit == "month" and start.month < 12:
        return start.replace(month=start.month + 1)
    return start.replace(year=start.year + 1, month=1)


def _level(written: str, columns: Mapping[str, Any]) -> Level:
    """Return a level as written; raise ValueError if it is not one."""
    found = TIME_OF.fullmatch(written)
    if found is None or written in columns:
        level = Level(written, written)
    elif found[1] in TIMES:
        level = Level(found[1], found[2], TIMES[found[1]])
    else:
        raise ValueError(f"{written!r} is not a time: {', '.join(TIMES)} of a column are")
    if level.column not in columns:
        raise ValueError(f"{level.column!r} is not a column")
    kind = arrow_type(columns[level.column])
    types = arrow().types
    is_date = types.is_date(kind)
    fits = (
        is_date or types.is_timestamp(kind)
        if level.form
        else is_date or types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind)
    )
    if not fits or (level.name == "hour" and is_date and level.form):
        raise ValueError(f"{written!r} cannot be made of {kind}")
    return level


# yields the name of each folder, "" for that of the sink, and the content of its part
Contents = Callable[[Iterable[Staged]], Iterator[tuple[str, bytes]]]


def contents_of(
    columns: Mapping[str, Any] | None, form: str, partitions: Partitions | None, compress: bool
) -> Contents:
    """Return the function that creates the content of parts, reproducibly byte for byte."""
    written: Callable[[Any], bytes] = FORMS[form]

    def contents(parts: Iterable[Staged]) -> Iterator[tuple[str, bytes]]:
        if columns is None:
            lines = b"".join(bytes(output) + b"\n" for part in parts for output in part.outputs())
            yield "", _packed(lines, compress)
            return
        for folder, table in split(_table(parts, columns), partitions):
            yield folder, _packed(written(table), compress)

    return contents


def _packed(content: bytes, compress: bool) -> bytes:
    return gzip.compress(content, compresslevel=6, mtime=0) if compress else content


# -- rows -----------------------------------------------------------------------------------------


def _table(parts: Iterable[Staged], columns: Mapping[str, Any]) -> Any:
    outputs = (output for part in parts for output in part.outputs())
    return as_table(outputs, schema_of(columns))


def split(table: Any, partitions: Partitions | None) -> Iterator[tuple[str, Any]]:
    """Yield each folder, in order of its first row, with its rows in order."""
    if partitions is None:
        yield "", table
        return
    segments = [_segments(level, table[level.column]) for level in partitions.levels]
    folders = pc.binary_join_element_wise(*segments, "/").dictionary_encode()
    sizes = Counter(folders.indices.to_pylist())
    ordered = table.select(partitions.kept).take(pc.array_sort_indices(folders.indices))
    start = 0
    for number, folder in enumerate(folders.dictionary.to_pylist()):
        yield folder, ordered.slice(start, sizes[number])
        start += sizes[number]


def _segments(level: Level, column: Any) -> Any:
    """Return the name of each row's folder on one level."""
    values = column.combine_chunks()
    if not level.form:
        texts = values.cast(pa.string())
    elif pa.types.is_timestamp(values.type):
        in_utc = values.view(pa.timestamp(values.type.unit))
        texts = pc.strftime(in_utc, format=level.form)
    else:
        texts = pc.strftime(values, format=level.form)
    encoded = texts.dictionary_encode(null_encoding="encode")
    names = [level.folder(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(encoded.indices)


def _as_parquet(table: Any) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    return bytes(out.getvalue())


def _as_csv(table: Any) -> bytes:
    out = pa.BufferOutputStream()
    pyarrow.csv.write_csv(table, out)
    return bytes(out.getvalue())


def _as_json(table: Any) -> bytes:
    rows = table.to_pylist()
    return b"".join(json.dumps(row, default=_plain).encode() + b"\n" for row in rows)


def _plain(value: Any) -> str:
    """Return a date or time in ISO 8601, anything else as its text."""
    return str(value.isoformat() if hasattr(value, "isoformat") else value)


FORMS: dict[str, Callable[[Any], bytes]] = {
    "lines": _as_json,
    "csv": _as_csv,
    "parquet": _as_parquet,
}
