"""What a window machine is, and what it is built from.

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
    """The time of the event in hand, and the watermark of its partition just before it."""

    event_ns: int
    watermark_ns: int


class Clock:
    """A ``Now`` that is set from outside."""

    __slots__ = ("event_ns", "watermark_ns")

    def __init__(self) -> None:
        self.event_ns = 0
        self.watermark_ns = NO_WATERMARK


@dataclass(frozen=True, slots=True)
class MachineContext:
    """What a machine works with.

    ``emit`` takes a key, a result, the result's event time, and the watermark just before it;
    ``failed`` an event for which the aggregation raised, what it raised, and the key; ``late``, if
    there is one, takes late events, in place of what the specification says.
    """

    calls: Calls
    live: Live
    now: Now
    emit: Callable[[Any, Any, int, int], None]
    failed: Callable[[Any, BaseException, Any], None]
    late: Late | None = None


class Machine(Protocol):
    """Windows at work on the events of one task: ``process`` takes an event of the time that
    ``now`` says.
    """

    process: Callable[[Any, Any], None]

    def advance(self, watermark: int) -> None:
        """Fire what is due at ``watermark``, in order."""

    def next_due(self, slot: Slot, value: Any) -> int:
        """The watermark at which this entry has something to do next."""
