"""The context of a call: times, timers, and the key's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from wallaroo.steps.keys import Key
from wallaroo.steps.times import Span, span_ns, span_problem

NO_TIME = -(1 << 63)  # before all times


class Clock(Protocol):
    """The times of the event in process, in nanoseconds of unix time."""

    event_ns: int
    watermark_ns: int
    clock_ns: int


class TimerBook(Protocol):
    """The interface that sets and cancels a step's timers."""

    def set(self, key: Key, name: str, at_ns: int, processing: bool) -> None:
        """Set or move a timer."""

    def cancel(self, key: Key, name: str) -> None:
        """Remove a timer, if it is set."""


class Context:
    """The third argument of a state computation that asks for one.

    It is valid for one call only and must not be kept.
    Times are nanoseconds since 1970; spans such as ``wallaroo.seconds(1)`` are nanoseconds, too.
    """

    __slots__ = ("_clock", "_drop", "_timers", "key")

    key: Key
    """The event's key; of events that ``collect()`` brought together, one that they share."""

    def __init__(
        self,
        drop: Callable[[Key], None],
        clock: Clock | None = None,
        timers: TimerBook | None = None,
    ):
        self._drop = drop
        self._clock = clock
        self._timers = timers

    def drop_state(self) -> None:
        """Remove the key's state, so that the key's next event meets a new state object.

        Nothing remains stored; later changes to the old object are lost.
        """
        self._drop(self.key)

    @property
    def event_time(self) -> int:
        """Return the event's time; in a timer's function, the time that the timer was set for."""
        return self._read(self._timed.event_ns)

    @property
    def watermark(self) -> int:
        """Return the watermark of the event's partition just before the event.

        An older event is late. Before a source's first event it is less than any time. With
        ``in_order`` it is just before the event's time or, for a late event, at its place in that
        order.
        """
        self._read(self._timed.event_ns)
        return self._timed.watermark_ns

    @property
    def processing_time(self) -> int:
        """Return the clock's time, read once per batch and the same if the batch is repeated."""
        return self._timed.clock_ns

    def set_timer(self, name: str, at: int, *, processing: bool = False) -> None:
        """Call the step's ``on_timer`` function for this key at a time.

        The time is in event time or, with ``processing``, by the clock. A timer of this name that
        is already set, in either time, is moved.

        In event time it is called before the key's first event that came after the watermark had
        passed the time.  A time that has already passed is due at once.
        """
        self._book.set(self.key, name, at, processing)

    def set_timer_after(self, name: str, span: Span, *, processing: bool = False) -> None:
        """Set a timer ``span`` after now, such as ``wallaroo.seconds(30)`` or a ``timedelta``.

        Now is ``event_time``, or, with ``processing``, ``processing_time``.
        """
        after_ns = span_ns(span)
        problem = span_problem(f"set_timer_after({name!r}, {span!r})", after_ns)
        if problem:
            raise ValueError(" ".join(problem))
        now_ns = self.processing_time if processing else self.event_time
        self._book.set(self.key, name, now_ns + after_ns, processing)

    def cancel_timer(self, name: str, *, processing: bool = False) -> None:
        """Remove the key's timer of this name, if it is set.

        A name has one timer, in event time or by the clock; ``processing`` is ignored.
        """
        self._book.cancel(self.key, name)

    @property
    def _timed(self) -> Clock:
        if self._clock is None:
            raise RuntimeError(_NO_EVENT_TIME)
        return self._clock

    def _read(self, time_ns: int) -> int:
        if time_ns == NO_TIME:
            raise RuntimeError(_NO_EVENT_TIME)
        return time_ns

    @property
    def _book(self) -> TimerBook:
        if self._timers is None:
            raise RuntimeError(
                "this step has no function for timers: decorate one with @your_step.on_timer"
            )
        return self._timers


_NO_EVENT_TIME = (
    "events have no time in this pipeline: put .with_event_time(...) before its first key_by()"
)
