"""Spans and times as users write them, with common mistakes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Any

Span = int | timedelta  # nanoseconds, as ``wallaroo.seconds(5)`` returns them, or a timedelta

EARLIEST_NS = 315_532_800 * 10**9  # 1980: an earlier time is most likely one in another unit
TIME_LIMIT_NS = 1 << 62  # beyond year 2116: arithmetic with times stays within 64 bits
SHOWN_IN_SECONDS_NS = 10**6
SPAN_MIN_NS = 1_000  # a shorter span is most likely one in another unit

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TO_NANOSECONDS = {10**3: "microseconds", 10**6: "milliseconds", 10**9: "seconds"}
_TO_SECONDS = {10**3: "milliseconds", 10**6: "microseconds", 10**9: "nanoseconds"}


class Nanoseconds(int):
    """Span meant in nanoseconds, however short; pickled as a plain int."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Callable[..., int], tuple[int]]:
        return int, (int(self),)


def span_ns(span: Any) -> Any:
    """Return a timedelta in nanoseconds; anything else unchanged, for a rule to reject.

    >>> span_ns(timedelta(seconds=1.5)), span_ns(7)
    (1500000000, 7)
    """
    return span // _MICROSECOND * 1_000 if isinstance(span, timedelta) else span


def shown_span(span: Any) -> str:
    """Return a span in nanoseconds as errors show it.

    >>> shown_span(5), shown_span(-5_000_000_000)
    ('5', '-5 s')
    """
    is_long = isinstance(span, int) and abs(span) >= SHOWN_IN_SECONDS_NS
    return f"{span / 1e9:g} s" if is_long else repr(span)


def span_problem(described: str, span: Any, least: int = 0) -> tuple[str, str] | None:
    """Return the problem of a span in nanoseconds, and its fix; None if there is none.

    ``described`` names the span in the user's words, such as ``delay=5``.

    >>> span_problem("delay=5", 5)[0]
    'delay=5 is 5 nanoseconds.'
    >>> span_problem("delay=5", Nanoseconds(5))
    """
    if isinstance(span, bool) or not isinstance(span, int) or span < least:
        fix = "Write it as wallaroo.seconds(5), timedelta(seconds=5) or the like."
        return f"{described} is not a span of time.", fix
    if 0 < span < SPAN_MIN_NS and not isinstance(span, Nanoseconds):
        fix = (
            f"Write wallaroo.seconds({span}) or timedelta(seconds={span}); "
            f"wallaroo.nanoseconds({span}) if that is meant."
        )
        return f"{described} is {span} nanosecond{'s' * (span != 1)}.", fix
    return None


def as_nanoseconds(given: Any) -> int:
    """Return a time as nanoseconds since 1970.

    It is an aware datetime, seconds as float, or nanoseconds as int.  Raises TypeError or
    ValueError for anything else.

    >>> as_nanoseconds(1.5)
    1500000000
    """
    match given:
        case bool():
            raise TypeError("an event's time is a datetime, float or int, not a bool")
        case int():
            return int(given)
        case float():
            if given != given or given in (float("inf"), float("-inf")):
                raise ValueError(f"{given} is not a time")
            return round(given * 1_000_000_000)
        case datetime():
            if given.tzinfo is None:
                raise ValueError(
                    "an event's time is a datetime without time zone; give it one, such as "
                    "tzinfo=UTC"
                )
            return (given - _EPOCH) // _MICROSECOND * 1000
    if hasattr(given, "__index__"):  # numpy's integers
        return index(given)
    fix = ": for one in ISO 8601, datetime.fromisoformat(text)" if isinstance(given, str) else ""
    raise TypeError(
        f"an event's time is an aware datetime, seconds as float or nanoseconds as int, not "
        f"{type(given).__name__}{fix}"
    )


def no_time(time_ns: int, given: Any) -> ValueError:
    """Return the error for a time before 1980 or after 2116, with the likely unit.

    >>> print(no_time(1_764_000_000_000, 1_764_000_000_000))
    1764000000000 is 1970-01-01 00:29:24 in nanoseconds since 1970, which is before 1980. If it \
counts milliseconds, multiply it by 1_000_000: 2025-11-24 16:00:00. If it is meant, write \
with_event_time(..., allow_before_1980=True)
    """
    unit = "seconds" if isinstance(given, float) else "nanoseconds"
    opt_out = "If it is meant, write with_event_time(..., allow_before_1980=True)"
    if abs(time_ns) > TIME_LIMIT_NS:
        said = f"{given} is not a time in {unit} since 1970."
        if isinstance(given, datetime):
            return ValueError(f"{given} is outside of the years 1824 to 2115, whose times count")
        opt_out = "Return nanoseconds as int, seconds as float, or an aware datetime"
    elif isinstance(given, datetime):
        said = f"{given} is before 1980."
    else:
        said = f"{given} is {date_of(time_ns)} in {unit} since 1970, which is before 1980."
    return ValueError(" ".join([said, *_meant(time_ns, given), opt_out]))


def is_far_ahead(time_ns: int, given: Any) -> bool:
    """Return whether a time is after 2116, with a plausible unit.

    >>> is_far_ahead(9999 * 10**18, 9999e9), is_far_ahead(17 * 10**26, 1.7e18)
    (True, False)
    """
    return time_ns > TIME_LIMIT_NS and not _meant(time_ns, given)


def _meant(time_ns: int, given: Any) -> list[str]:
    """Return a sentence about the factor that turns it into a present-day time, if any."""
    if isinstance(given, int):
        for factor, counted in _TO_NANOSECONDS.items():
            if EARLIEST_NS <= time_ns * factor <= TIME_LIMIT_NS:
                date = date_of(time_ns * factor)
                return [f"If it counts {counted}, multiply it by {factor:_}: {date}."]
    if isinstance(given, float):
        for factor, counted in _TO_SECONDS.items():
            if EARLIEST_NS <= time_ns // factor <= TIME_LIMIT_NS:
                date = date_of(time_ns // factor)
                return [f"If it counts {counted}, divide it by {factor:_}: {date}."]
    return []


def date_of(time_ns: int) -> str:
    """Return a time in UTC, whole seconds."""
    return (_EPOCH + time_ns // 1_000 * _MICROSECOND).strftime("%Y-%m-%d %H:%M:%S")
