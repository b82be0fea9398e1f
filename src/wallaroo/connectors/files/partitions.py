"""Folders of rolling output in Hive's style, ``dt=2026-01-02/hour=13``, by columns of rows.

A level of folders is a column (``"country"``), whose values the folders' names hold instead of the
files, or a part of the time in one (``"dt(at)"``, ``"hour(at)"``), in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from wallaroo.connectors.files.rows import arrow, arrow_type

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
