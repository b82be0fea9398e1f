"""Builders of windows for ``to`` on a keyed pipeline.

They begin with ``range_windows``, ``count_windows`` or ``session_windows``.

A builder is a value: every call returns a new one.  Spans are whole nanoseconds, as
``wallaroo.seconds(1)`` returns them, or a ``timedelta``.  Errors are reported by
``build_application``, all together; only an option given twice is rejected at once, as in Wallaroo.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, overload

from wallaroo.api.decorators import check_on_error
from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.steps.kinds import STOP
from wallaroo.steps.times import Span, span_ns
from wallaroo.steps.windows.aggregation import Aggregation
from wallaroo.steps.windows.spec import (
    CountWindowSpec,
    RangeWindowSpec,
    SessionWindowSpec,
    WindowResult,
    WindowSpec,
)
from wallaroo.steps.windows.step import WindowStep
from wallaroo.user_code.user_frames import user_place

In = TypeVar("In")
Acc = TypeVar("Acc")
Out = TypeVar("Out")

# empty windows after a key's last event, after which the key is forgotten
EMPTY_WINDOWS_DEFAULT = 100


class _Windows:
    """Windows of any kind; end them with ``over``."""

    __slots__ = ()
    spec: Any

    @overload
    def over(
        self,
        aggregation: type[Aggregation[In, Acc, Out]] | Aggregation[In, Acc, Out],
        *,
        name: str | None = None,
        on_error: str = STOP,
        with_window: Literal[False] = False,
    ) -> WindowStep[In, Out]: ...
    @overload
    def over(
        self,
        aggregation: type[Aggregation[In, Acc, Out]] | Aggregation[In, Acc, Out],
        *,
        name: str | None = None,
        on_error: str = STOP,
        with_window: Literal[True],
    ) -> WindowStep[In, WindowResult[Out]]: ...
    def over(
        self,
        aggregation: type[Aggregation[In, Acc, Out]] | Aggregation[In, Acc, Out],
        *,
        name: str | None = None,
        on_error: str = STOP,
        with_window: bool = False,
    ) -> WindowStep[In, Any]:
        """Return the step: these windows over an aggregation's class, or an object of it.

        ``name`` defaults to the aggregation's.  With ``with_window=True`` a result is a
        ``WindowResult``: ``key``, ``value`` and ``window``, whose bounds are ``start`` and ``end``
        in nanoseconds, ``start_time`` and ``end_time`` as datetimes.
        """
        return _over(self.spec, aggregation, name, on_error, with_window)


@dataclass(frozen=True, slots=True)
class RangeWindows(_Windows):
    """Windows by event time; end it with ``over(YourAggregation)``.

    >>> import wallaroo
    >>> wallaroo.range_windows(wallaroo.seconds(10)).with_slide(wallaroo.seconds(2)).spec.slide_ns
    2000000000
    """

    spec: RangeWindowSpec
    given: frozenset[str] = frozenset()

    def with_slide(self, slide: Span) -> RangeWindows:
        """Begin a window every ``slide``; by default at the end of the one before."""
        return self._with("with_slide", slide_ns=span_ns(slide))

    def with_delay(self, delay: Span) -> RangeWindows:
        """Fire each window once the watermark is ``delay`` past its end.

        The delay is rounded up to a multiple of the slide.
        """
        return self._with("with_delay", delay_ns=span_ns(delay))

    def with_late_data_policy(self, policy: str) -> RangeWindows:
        """Set the policy for an event whose windows have all fired.

        It is ``"drop"`` (the default), ``"fire-per-message"``, ``"place-in-oldest-window"``, or
        ``"dead-letter"``, which needs ``over(..., on_error="dead-letter")``.
        """
        return self._with("with_late_data_policy", policy=policy)

    def with_offset(self, offset: Span) -> RangeWindows:
        """Start windows at multiples of the slide since 1970, plus ``offset``."""
        return self._with("with_offset", offset_ns=span_ns(offset))

    def with_early_results(self, every: Span) -> RangeWindows:
        """Also evaluate open windows with new events every ``every`` of event time."""
        return self._with("with_early_results", early_ns=span_ns(every))

    def with_allowed_lateness(self, lateness: Span, every: Span | None = None) -> RangeWindows:
        """Accept late events after a window fired, and evaluate it again with them.

        They are accepted for ``lateness`` after it fired.  It is evaluated once, when that time is
        over, or every ``every`` until then.
        """
        return self._with(
            "with_allowed_lateness", lateness_ns=span_ns(lateness), corrected_ns=span_ns(every)
        )

    def with_empty_windows(self, at_most: int = EMPTY_WINDOWS_DEFAULT) -> RangeWindows:
        """Also evaluate a key's empty windows.

        These are the windows between and after its events, at most ``at_most`` in a row.
        """
        return self._with("with_empty_windows", empty_limit=at_most)

    def _with(self, call: str, **options: Any) -> RangeWindows:
        return RangeWindows(replace(self.spec, **options), _once(self.given, call))


@dataclass(frozen=True, slots=True)
class CountWindows(_Windows):
    """Windows of a number of events; end it with ``over(YourAggregation)``."""

    spec: CountWindowSpec
    given: frozenset[str] = frozenset()

    def with_timeout(self, timeout: Span) -> CountWindows:
        """Fire a window that is not full ``timeout`` after its first event's time."""
        given = _once(self.given, "with_timeout")
        return CountWindows(replace(self.spec, timeout_ns=span_ns(timeout)), given)


@dataclass(frozen=True, slots=True)
class SessionWindows(_Windows):
    """Windows that end when a key has had no recent events.

    End it with ``over(YourAggregation)``.
    """

    spec: SessionWindowSpec
    given: frozenset[str] = frozenset()

    def with_delay(self, delay: Span) -> SessionWindows:
        """Fire each session when the watermark is ``delay`` past its end."""
        given = _once(self.given, "with_delay")
        return SessionWindows(replace(self.spec, delay_ns=span_ns(delay)), given)

    def with_late_data_policy(self, policy: str) -> SessionWindows:
        """Set the policy for an event that is older than the watermark less the delay.

        It is ``"drop"`` (the default), ``"fire-per-message"``, or ``"dead-letter"``, which needs
        ``over(..., on_error="dead-letter")``.
        """
        given = _once(self.given, "with_late_data_policy")
        return SessionWindows(replace(self.spec, policy=policy), given)


def range_windows(range: Span) -> RangeWindows:
    """Return windows of ``range`` of event time, aligned: the same for all keys."""
    range_ns = span_ns(range)
    return RangeWindows(RangeWindowSpec(range_ns, range_ns))


def count_windows(count: int) -> CountWindows:
    """Return windows of ``count`` events of a key."""
    return CountWindows(CountWindowSpec(count))


def session_windows(gap: Span) -> SessionWindows:
    """Return windows of a key's events less than ``gap`` of event time apart."""
    return SessionWindows(SessionWindowSpec(span_ns(gap)))


def _over(
    spec: WindowSpec, given: Any, name: str | None, on_error: str, with_window: bool
) -> WindowStep[Any, Any]:
    check_on_error("windows", on_error)
    return WindowStep(spec, given, user_place(), name, on_error, False, with_window)


def _once(given: frozenset[str], call: str) -> frozenset[str]:
    if call in given:
        what = f"Only call {call}() once per window specification."
        raise WallarooParameterError(Problem("windows", user_place(), what, "Remove one of them."))
    return given | {call}
