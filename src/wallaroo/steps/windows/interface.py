"""The interface of window machines, and their context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from wallaroo.steps.losses import CellOf, uncounted
from wallaroo.steps.windows.aggregation import BoundAggregation
from wallaroo.steps.windows.entries import Live, Slot
from wallaroo.steps.windows.late import Late, Now
from wallaroo.steps.windows.spec import NO_WATERMARK


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
