"""Time spans in whole nanoseconds, and the check of users' spans.

Where it runs: pure.
"""

from __future__ import annotations

from typing import Any

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.steps.times import Nanoseconds, Span, span_ns, span_problem


def nanoseconds(count: float) -> int:
    """Return ``count`` nanoseconds as an explicit span, which may be below a microsecond."""
    return Nanoseconds(count)


def microseconds(count: float) -> int:
    """Return ``count`` microseconds in nanoseconds.

    >>> microseconds(2)
    2000
    """
    return _span("microseconds", count, 1_000)


def milliseconds(count: float) -> int:
    """Return ``count`` milliseconds in nanoseconds."""
    return _span("milliseconds", count, 1_000_000)


def seconds(count: float) -> int:
    """Return ``count`` seconds in nanoseconds.

    >>> seconds(1.5)
    1500000000
    """
    return _span("seconds", count, 1_000_000_000)


def minutes(count: float) -> int:
    """Return ``count`` minutes in nanoseconds."""
    return _span("minutes", count, 60_000_000_000)


def hours(count: float) -> int:
    """Return ``count`` hours in nanoseconds."""
    return _span("hours", count, 3_600_000_000_000)


def _span(unit: str, count: Any, unit_ns: int) -> int:
    if isinstance(count, str | bytes):  # `*` would repeat it
        raise TypeError(f"wallaroo.{unit}({count!r}) expects a number, got text; write {unit}(5)")
    return int(count * unit_ns)


def required_span(title: str, place: str, option: str, span: Span, least: int = 0) -> int:
    """Return an option's span in nanoseconds; raise its problem if it is not a span."""
    given_ns: int = span_ns(span)
    problem = span_problem(f"{option}={span!r}", given_ns, least)
    if problem:
        raise WallarooParameterError(Problem(title, place, *problem))
    return given_ns
