"""The interface of window machines, their context, and late events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from wallaroo.steps.losses import CellOf, Loss, uncounted
from wallaroo.steps.windows.aggregation import BoundAggregation
from wallaroo.steps.windows.entries import Live, Slot
from wallaroo.steps.windows.spec import (
    DEAD_LETTER,
    DROP,
    FIRE_PER_MESSAGE,
    NO_WATERMARK,
    CountWindowSpec,
    Window,
)


class Now(Protocol):
    """Time of the current event, and its partition's watermark just before it."""

    event_ns: int
    watermark_ns: int


class LateEvent(Exception):
    """Reason for lateness: the event's windows had already fired."""


# called with a key, a late event of it, and the reason why it is late
Late = Callable[[Any, Any, LateEvent], None]


@dataclass(frozen=True, slots=True)
class AsLate:
    """Late event emitted by its step."""

    event: Any


def counted_late(now: Now, lost: CellOf, *, is_dropped: bool) -> Callable[[], None]:
    """Return a function that counts the current event as late."""
    late = lost(Loss.LATE if is_dropped else Loss.LATE_KEPT)
    behind = lost(Loss.LATE_BY_NS)

    def count() -> None:
        late[0] += 1
        behind[0] += now.watermark_ns - now.event_ns

    return count


def is_late(output: Any) -> bool:
    """Return whether this is a late event rather than a result."""
    return type(output) is AsLate


def no_late_events(spec: object) -> str:
    """Return why a step with this specification has no late events, or an empty string."""
    if isinstance(spec, CountWindowSpec):
        return "Count windows take every event: none is late."
    if getattr(spec, "is_open", False):
        return "Without a span, every event is joined: none is late."
    policy = getattr(spec, "policy", DROP)
    if policy != DROP:
        return f"Its late data policy is {policy!r}, so late events have a place already."
    return ""


def late_event(output: AsLate) -> Any:
    """Return the event itself."""
    return output.event


class Clock:
    """``Now`` whose fields the caller sets."""

    __slots__ = ("event_ns", "watermark_ns")

    def __init__(self) -> None:
        self.event_ns = 0
        self.watermark_ns = NO_WATERMARK


@dataclass(frozen=True, slots=True)
class MachineContext:
    """A machine's aggregation, entries, clock and outputs.

    ``emit`` accepts a key, a result, the result's event time, and the watermark just before it;
    ``failed`` an event for which the aggregation raised, the exception, and the key; ``late``, if
    given, accepts late events, instead of the specification's policy; ``lost`` returns counts;
    ``reached_ns``, while a machine advances, the watermark of the input so far, or of all of it.
    """

    calls: BoundAggregation
    live: Live
    now: Now
    emit: Callable[[Any, Any, int, int], None]
    failed: Callable[[Any, BaseException, Any], None]
    late: Late | None = None
    lost: CellOf = uncounted
    reached_ns: Callable[[], int] = lambda: NO_WATERMARK

    def fire(self, key: Any, accumulator: Any, window: Window, time: int, passed: int) -> None:
        """Emit the result of a window, if it has one."""
        try:
            output = self.calls.output(key, accumulator, window)
        except BaseException as error:
            window.note_on(error)
            self.failed(accumulator, error, key)
            return
        if output is not None:
            self.emit(key, output, time, passed)

    def late_policy(
        self, policy: str, why: Callable[[int], LateEvent], alone: Callable[[int], Window]
    ) -> Callable[[Any, Any, int], None]:
        """Return the function that handles a late event of a key and a time.

        ``why`` returns the reason for that time, ``alone`` the window in which the event fires.
        """
        late = self.late
        if late is not None:
            return lambda key, event, time: late(key, event, why(time))
        if policy == FIRE_PER_MESSAGE:
            return lambda key, event, time: self._fire_alone(key, event, time, alone(time))
        if policy == DEAD_LETTER:
            return lambda key, event, time: self.failed(event, why(time), key)
        return lambda key, event, time: None

    def _fire_alone(self, key: Any, event: Any, time: int, window: Window) -> None:
        calls = self.calls
        try:
            accumulator = calls.initial()
            changed = calls.update(event, accumulator)
            output = calls.output(key, accumulator if changed is None else changed, window)
        except BaseException as error:
            self.failed(event, error, key)
            return
        if output is not None:
            self.emit(key, output, time, self.now.watermark_ns)


class Machine(Protocol):
    """Machine of windows over the events of one task.

    ``process`` accepts an event whose time is that of ``now``; ``merge``, unless it is None, the
    accumulator of events of one pane.
    """

    process: Callable[[Any, Any], None]
    merge: Callable[[Any, Any], None] | None

    def advance(self, watermark: int) -> None:
        """Fire the windows that are due at ``watermark``, in order."""

    def next_due(self, slot: Slot, value: Any) -> int:
        """Return the watermark at which this entry is due next."""
