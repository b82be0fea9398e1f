"""Assignment of event times, which advance their source's watermark.

Where it runs: pure (in workers), in stages that read a source.  Invariant: an event carries the
watermark of the events before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

from wallaroo.engine.failures.policies import OnError
from wallaroo.engine.operators.interface import Operator, Site
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.steps.kinds import EventTime
from wallaroo.steps.losses import UNCOUNTED, Cell
from wallaroo.steps.times import TIME_LIMIT_NS, as_nanoseconds, is_far_ahead, no_time

Times = Callable[[], Sequence[int]]  # returns the times of records, on demand


def build(step: EventTime[Any], site: Site) -> Operator:
    """Set the time of each event; fail one before 1980, reject one too far ahead."""
    if step.extractor is None:
        return Operator(site.emit)  # the stage sets the time of receipt
    extract = step.extractor
    emit = site.emit
    failed = site.failed
    time = site.time
    rejected = site.rejected or site.failed
    delay_ns = step.delay_ns
    ahead_ns = step.max_ahead_ns
    earliest_ns = step.earliest_ns

    def process(key: Any, event: Any) -> None:
        try:
            event_ns = extracted = extract(event)
            if type(event_ns) is not int:
                event_ns = as_nanoseconds(event_ns)
            is_time = earliest_ns <= event_ns <= TIME_LIMIT_NS
            if not is_time and not is_far_ahead(event_ns, extracted):
                raise no_time(event_ns, extracted)
        except BaseException as error:
            failed(event, error, key)
        else:
            if event_ns > time.latest_ns or not is_time:
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

    def __init__(
        self,
        delay_ns: int,
        ahead_ns: int,
        time: StageTime,
        rejected: OnError,
        filtered: Cell = UNCOUNTED,
    ):
        self._filtered = filtered
        self._delay_ns = delay_ns
        self._ahead_ns = ahead_ns
        self._time = time
        self._rejected = rejected
        self._times: Iterator[int] = iter(())

    def begin(self, times: Times | None) -> None:
        """Accept the times of the next records; the default is the time of receipt."""
        self._times = repeat(self._time.event_ns) if times is None else iter(times())

    def decoding(self, decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a decoder that sets the event's time first."""
        time = self._time
        delay_ns = self._delay_ns
        ahead_ns = self._ahead_ns
        filtered = self._filtered

        def rejected(payload: Any, error: Exception) -> None:
            self._rejected(payload, error, None)
            filtered[0] -= 1  # offsets the head's count of it as filtered, since it failed

        def decoded(payload: Any) -> Any:
            event_ns = next(self._times)
            if event_ns > time.latest_ns:
                rejected(payload, ahead_of_receipt(event_ns - time.receipt_ns, ahead_ns))
                return None
            if abs(event_ns) > TIME_LIMIT_NS:
                rejected(payload, no_time(event_ns, event_ns))
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
