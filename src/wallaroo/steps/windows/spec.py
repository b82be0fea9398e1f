"""Frozen specifications of windows, and the window of a result.

All spans and times are whole nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from wallaroo.steps.times import date_of

Out = TypeVar("Out")

DROP = "drop"
FIRE_PER_MESSAGE = "fire-per-message"
PLACE_IN_OLDEST_WINDOW = "place-in-oldest-window"
DEAD_LETTER = "dead-letter"
RANGE_POLICIES = (DROP, FIRE_PER_MESSAGE, PLACE_IN_OLDEST_WINDOW, DEAD_LETTER)
SESSION_POLICIES = (DROP, FIRE_PER_MESSAGE, DEAD_LETTER)

NO_WATERMARK = -(2**63)  # before the first event: nothing is late
FINAL_WATERMARK = 2**63 - 1  # after the last event: every window fires


class Firing(Enum):
    """Reason why a window was evaluated."""

    EARLY = "early"  # at the interval of with_early_results(): more events may come
    FINAL = "final"  # the watermark has passed the window's end and delay; or the window is full
    CORRECTED = "corrected"  # late events within the allowed lateness
    LATE = "late"  # a single late event, by the policy "fire-per-message"


@dataclass(frozen=True, slots=True)
class Window:
    """The window of a result: [``start``, ``end``), in nanoseconds of event time.

    >>> window = Window(0, 10_000_000_000)
    >>> str(window), window.end_time.second
    ('[1970-01-01 00:00:00+00:00, 1970-01-01 00:00:10+00:00)', 10)
    """

    start: int
    end: int
    firing: Firing = Firing.FINAL

    def note_on(self, error: BaseException) -> None:
        """Name the window in an error of its result."""
        error.add_note(f"window from {_bound(self.start)} to {_bound(self.end)} UTC")

    @property
    def start_time(self) -> datetime:
        """Return the start as a datetime in UTC, to the microsecond."""
        return _EPOCH + timedelta(microseconds=self.start // 1000)

    @property
    def end_time(self) -> datetime:
        """Return the end as a datetime in UTC, to the microsecond."""
        return _EPOCH + timedelta(microseconds=self.end // 1000)

    def __str__(self) -> str:
        return f"[{self.start_time}, {self.end_time})"


def _bound(time_ns: int) -> str:
    """Return a time with its fraction of a second, unless that is 0.

    >>> _bound(1_764_000_000_500_000_000)
    '2025-11-24 16:00:00.5'
    """
    fraction = f"{time_ns % 1_000_000_000:09}".rstrip("0")
    return date_of(time_ns) + (f".{fraction}" if fraction else "")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class WindowResult(NamedTuple, Generic[Out]):
    """A result of windows with its key and its window (``over(..., with_window=True)``)."""

    key: Any
    value: Out
    window: Window


@dataclass(frozen=True, slots=True)
class RangeWindowSpec:
    """Windows of ``range_ns``, one every ``slide_ns``, aligned at ``offset_ns``."""

    range_ns: int
    slide_ns: int
    delay_ns: int = 0
    offset_ns: int = 0
    policy: str = DROP
    early_ns: int | None = None  # how often a window is evaluated before it fires
    lateness_ns: int = 0  # how long after firing a window accepts late events
    corrected_ns: int | None = None  # how often it is evaluated again in that time; None: once
    empty_limit: int = 0  # successive empty windows of a key that are evaluated


@dataclass(frozen=True, slots=True)
class CountWindowSpec:
    """Windows of ``count`` events of a key."""

    count: int
    timeout_ns: int | None = None  # a window fires this long after the time of its first event


@dataclass(frozen=True, slots=True)
class SessionWindowSpec:
    """Windows that end when a key has no event for ``gap_ns``."""

    gap_ns: int
    delay_ns: int = 0
    policy: str = DROP


WindowSpec = RangeWindowSpec | CountWindowSpec | SessionWindowSpec
