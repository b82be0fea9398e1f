"""Machines by specification, and one that runs without an engine.

Where it runs: pure.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from wallaroo.windows.aggregation import calls_of
from wallaroo.windows.count_machine import CountMachine
from wallaroo.windows.entries import Live, MemoryEntries
from wallaroo.windows.interface import Clock, Machine, MachineContext
from wallaroo.windows.range_machine import RangeMachine
from wallaroo.windows.session_machine import SessionMachine
from wallaroo.windows.spec import (
    FINAL_WATERMARK,
    NO_WATERMARK,
    CountWindowSpec,
    RangeWindowSpec,
    SessionWindowSpec,
    WindowSpec,
)

MACHINES: dict[type[Any], Any] = {
    RangeWindowSpec: RangeMachine,
    CountWindowSpec: CountMachine,
    SessionWindowSpec: SessionMachine,
}


def machine_of(spec: WindowSpec, context: MachineContext, fired_at: int) -> Machine:
    """Build the machine for a specification; windows due at ``fired_at`` have fired already."""
    machine: Machine = MACHINES[type(spec)](spec, context, fired_at)
    return machine


class Result(NamedTuple):
    """One result: its key, what ``output`` returned, and its event time."""

    key: Any
    value: Any
    time: int


class WindowMachine:
    """Windows over events that are fed by hand; ``entries`` outlive its batches.

    >>> from wallaroo.windows.aggregation import Aggregation
    >>> class Total(Aggregation[int, int, int]):
    ...     def initial_accumulator(self): return 0
    ...     def update(self, event, total): return total + event
    ...     def combine(self, left, right): return left + right
    ...     def output(self, key, total): return total
    >>> machine = WindowMachine(RangeWindowSpec(3, 3), Total())
    >>> [machine.feed("a", event, time, time) for event, time in [(1, 111), (2, 112), (3, 114)]]
    [[], [], [Result(key='a', value=3, time=113)]]
    """

    def __init__(self, spec: WindowSpec, aggregation: Any):
        self.entries = MemoryEntries()
        self.watermark = NO_WATERMARK
        self.failures: list[tuple[Any, BaseException, Any]] = []
        self._spec = spec
        self._calls = calls_of(aggregation)
        self._clock = Clock()
        self._results: list[Result] = []
        self._live, self._machine = self._begin()

    def _begin(self) -> tuple[Live, Machine]:
        live = Live(self.entries, self.entries)
        context = MachineContext(self._calls, live, self._clock, self._emit, self._failed)
        return live, machine_of(self._spec, context, self.watermark)

    def _emit(self, key: Any, value: Any, time: int, watermark: int) -> None:
        self._results.append(Result(key, value, time))

    def _failed(self, event: Any, error: BaseException, key: Any) -> None:
        self.failures.append((event, error, key))

    def put(self, key: Any, event: Any, time: int, before: int | None = None) -> None:
        """Process an event; nothing fires by that.

        ``before`` is its partition's watermark before it (by default the machine's).
        """
        self._clock.event_ns = time
        self._clock.watermark_ns = self.watermark if before is None else before
        self._machine.process(key, event)

    def advance(self, watermark: int) -> list[Result]:
        """Move the watermark, never back; return the results since the last call."""
        self.watermark = max(self.watermark, watermark)
        self._machine.advance(self.watermark)
        return self.take()

    def feed(self, key: Any, event: Any, time: int, watermark: int) -> list[Result]:
        """Process an event that brings a watermark, as each message of Wallaroo does."""
        self.put(key, event, time)
        return self.advance(watermark)

    def end(self) -> list[Result]:
        """End the input: everything fires."""
        return self.advance(FINAL_WATERMARK)

    def commit(self) -> None:
        """End a batch and begin the next: entries that are kept are packed and unpacked.

        Comes after ``advance``, as in an engine.
        """
        self._live.flush(self._machine.next_due)
        self._live, self._machine = self._begin()

    def take(self) -> list[Result]:
        """Return the results since the last call."""
        results = self._results
        self._results = []
        return results
