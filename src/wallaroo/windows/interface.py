"""The interface of window machines, and their context.

Where it runs: pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from wallaroo.windows.aggregation import Calls
from wallaroo.windows.entries import Live, Slot
from wallaroo.windows.late import Late
from wallaroo.windows.spec import NO_WATERMARK


class Now(Protocol):
    """Time of the current event, and its partition's watermark before it.

    The watermark is that just before the event.
    """

    event_ns: int
    watermark_ns: int


class Clock:
    """``Now`` that is set from outside."""

    __slots__ = ("event_ns", "watermark_ns")

    def __init__(self) -> None:
        self.event_ns = 0
        self.watermark_ns = NO_WATERMARK


@dataclass(frozen=True, slots=True)
class MachineContext:
    """A machine's aggregation, entries, clock and outputs.

    ``emit`` accepts a key, a result, the result's event time, and the watermark just before it;
    ``failed`` an event for which the aggregation raised, the exception, and the key; ``late``, if
    given, accepts late events, in place of the specification's policy.
    """

    calls: Calls
    live: Live
    now: Now
    emit: Callable[[Any, Any, int, int], None]
    failed: Callable[[Any, BaseException, Any], None]
    late: Late | None = None


class Machine(Protocol):
    """Windows at work on the events of one task.

    ``process`` accepts an event whose time is that of ``now``.
    """

    process: Callable[[Any, Any], None]

    def advance(self, watermark: int) -> None:
        """Fire the windows that are due at ``watermark``, in order."""

    def next_due(self, slot: Slot, value: Any) -> int:
        """Return the watermark at which this entry has something to do next."""
