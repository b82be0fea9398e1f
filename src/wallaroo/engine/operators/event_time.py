"""Event times: setting an event's time and advancing its source's watermark.

Where it runs: pure (in workers), in stages that read a source.

Invariant: an event carries the watermark of the events before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any

from wallaroo.engine.failures import OnError
from wallaroo.engine.operators.interface import Operator, Site, StageTime
from wallaroo.steps import EventTime

TIME_LIMIT_NS = 1 << 62  # beyond year 2116: arithmetic with times stays within 64 bits
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Times = Callable[[], Sequence[int]]  # returns the times of records, on demand


def build(step: EventTime[Any], site: Site) -> Operator:
    """Set the time of each event; reject one too far ahead of its receipt."""
    if step.extractor is None:
        return Operator(site.emit)  # the stage sets the time of receipt
    extract = step.extractor
    emit = site.emit
    failed = site.failed
    time = site.time
    rejected = site.rejected or site.failed
    delay_ns = step.delay_ns
    ahead_ns = step.max_ahead_ns

    def process(key: Any, event: Any) -> None:
        try:
            event_ns = extract(event)
            if type(event_ns) is not int:
                event_ns = as_nanoseconds(event_ns)
            if not -TIME_LIMIT_NS <= event_ns <= TIME_LIMIT_NS:
                raise no_time(event_ns)
        except BaseException as error:
            failed(event, error, key)
        else:
            if event_ns > time.latest_ns:
                rejected(event, ahead_of_receipt(event_ns - time.receipt_ns, ahead_ns), key)
            else:
                time.event_ns = event_ns
                passed_ns = time.watermark_ns = time.passed_ns
                emit(key, event)
                reached_ns = event_ns - delay_ns
                if reached_ns > passed_ns:
                    time.passed_ns = reached_ns

    return Operator(process)


class CarriedTimes:
    """Event times that records carry, set as events are decoded."""

    def __init__(self, delay_ns: int, ahead_ns: int, time: StageTime, rejected: OnError):
        self._delay_ns = delay_ns
        self._ahead_ns = ahead_ns
        self._time = time
        self._rejected = rejected
        self._times: Iterator[int] = iter(())

    def begin(self, times: Times | None) -> None:
        """Accept the times of the records that are read next.

        Without them, use the time of their receipt.
        """
        self._times = repeat(self._time.event_ns) if times is None else iter(times())

    def decoding(self, decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a decoder that sets the event's time first."""
        time = self._time
        rejected = self._rejected
        delay_ns = self._delay_ns
        ahead_ns = self._ahead_ns

        def decoded(payload: Any) -> Any:
            event_ns = next(self._times)
            if abs(event_ns) > TIME_LIMIT_NS:
                rejected(payload, no_time(event_ns), None)
                return None
            if event_ns > time.latest_ns:
                rejected(payload, ahead_of_receipt(event_ns - time.receipt_ns, ahead_ns), None)
                return None
            time.event_ns = event_ns
            passed_ns = time.watermark_ns = time.passed_ns
            if event_ns - delay_ns > passed_ns:
                time.passed_ns = event_ns - delay_ns
            return decode(payload)

        return decoded


class AheadError(ValueError):
    """An event's time is further ahead than ``max_ahead`` allows."""


def ahead_of_receipt(ahead_ns: int, allowed_ns: int) -> AheadError:
    """Return the error for an event that is so far ahead."""
    return AheadError(
        f"its time is {ahead_ns / 1e9:.0f} s after it was received; max_ahead allows "
        f"{allowed_ns / 1e9:g} s"
    )


def no_time(event_ns: int) -> ValueError:
    """Return the error for an invalid time."""
    return ValueError(
        f"{event_ns} is no time in nanoseconds since 1970: give nanoseconds as int, seconds as "
        "float, or an aware datetime"
    )


def as_nanoseconds(given: Any) -> int:
    """Return a time as nanoseconds since 1970.

    It is an aware datetime, seconds as float, or nanoseconds as int.  Raises TypeError or
    ValueError for anything else.

    >>> as_nanoseconds(1.5)
    1500000000
    """
    if isinstance(given, bool):
        raise TypeError("an event's time is a datetime, float or int, not a bool")
    if isinstance(given, int):
        return int(given)
    if isinstance(given, float):
        if not math.isfinite(given):
            raise ValueError(f"{given} is no time")
        return round(given * 1_000_000_000)
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise ValueError(
                "an event's time is a datetime without time zone; give it one, such as tzinfo=UTC"
            )
        return (given - _EPOCH) // _MICROSECOND * 1000
    raise TypeError(
        f"an event's time is an aware datetime, seconds as float or nanoseconds as int, not "
        f"{type(given).__name__}"
    )
