"""A machine of windows that is fed by hand, without an engine."""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

from wallaroo.engine.operators.windows import machine_of
from wallaroo.engine.stores.pane_state import PaneState
from wallaroo.engine.stores.sorted_state import Groups
from wallaroo.steps.windows.aggregation import calls_of
from wallaroo.steps.windows.entries import Live, order_of
from wallaroo.steps.windows.interface import Clock, Machine, MachineContext
from wallaroo.steps.windows.pane_entries import LivePanes
from wallaroo.steps.windows.spec import FINAL_WATERMARK, NO_WATERMARK, WindowSpec
from wallaroo.testing.local_runner.runner import MemoryEntries as StoredInMemory


class MemoryRow(NamedTuple):
    """A row in memory."""

    time_ns: int
    order: tuple[str, Any]
    key: Any


class MemoryEntries:
    """Entries and rows in memory, pickled as an engine does, for machines without one."""

    def __init__(self) -> None:
        self.packed: dict[Any, dict[Any, bytes]] = {}
        self.puts: list[tuple[Any, Any]] = []
        self._due: list[MemoryRow] = []
        self._rows: set[MemoryRow] = set()

    def get(self, key: Any, sub: Any) -> Any:
        """Return a copy of the object, None if there is none."""
        packed = self.packed.get(key, {}).get(sub)
        return None if packed is None else pickle.loads(packed)

    def put(self, key: Any, sub: Any, value: Any) -> None:
        """Set the object, as it is now."""
        packed = pickle.dumps(value)
        if self.packed.setdefault(key, {}).get(sub) != packed:
            self.puts.append((key, sub))
            self.packed[key][sub] = packed

    def delete(self, key: Any, sub: Any) -> None:
        """Remove the object, if there is one."""
        of_key = self.packed.get(key, {})
        of_key.pop(sub, None)
        if not of_key:
            self.packed.pop(key, None)

    def subs(self, key: Any) -> list[Any]:
        """Return the slots of a key, in order."""
        return sorted(self.packed.get(key, {}))

    def find_all(self, keys: Any) -> None:
        """Do nothing: a lookup costs nothing here."""

    def add(self, time_ns: int, key: Any, sub: Any) -> None:
        """Add a row; the same again changes nothing."""
        row = MemoryRow(time_ns, order_of(key), key)
        if row not in self._rows:
            self._rows.add(row)
            heapq.heappush(self._due, row)

    @property
    def earliest_ns(self) -> int | None:
        """Return the time of the first row, None if there is none."""
        return self._due[0].time_ns if self._due else None

    def take(self, up_to_ns: int) -> Iterator[MemoryRow]:
        """Yield and remove all rows at or before a time."""
        while self._due and self._due[0].time_ns <= up_to_ns:
            row = heapq.heappop(self._due)
            self._rows.discard(row)
            yield row


class MemoryPanes:
    """Entries by pane in memory, written by the engine's store of them; ``written``: how many."""

    def __init__(self) -> None:
        self.written = 0
        self._stored = StoredInMemory()
        self.store = PaneState(self._stored, Groups(0, 4, 4), pickle.dumps, pickle.loads)

    @property
    def packed(self) -> list[tuple[int, bytes, bytes]]:
        """Return the entries that are stored."""
        end = b"\xff" * 64
        return [(group, *row) for group in range(4) for row in self._stored.scan(group, b"", end)]

    def commit(self) -> None:
        """Store what was written, and no more."""
        changes = list(self.store.changes())
        self.written += len(changes)
        self._stored.apply(changes)
        self.store.release()


class Result(NamedTuple):
    """One result: its key, what ``output`` returned, and its event time."""

    key: Any
    value: Any
    time: int


class WindowMachine:
    """Windows over events that are fed by hand; ``entries`` outlive its batches."""

    def __init__(self, spec: WindowSpec, aggregation: Any, *, by_pane: bool = False):
        self.entries = MemoryEntries()
        self.panes = MemoryPanes() if by_pane else None
        self.watermark = NO_WATERMARK
        self.reached = NO_WATERMARK
        self.failures: list[tuple[Any, BaseException, Any]] = []
        self._spec = spec
        self._calls = calls_of(aggregation)
        self._clock = Clock()
        self._results: list[Result] = []
        self._live, self._machine = self._begin()

    def _begin(self) -> tuple[Live, Machine]:
        live = Live(self.entries, self.entries)
        if self.panes is not None:
            live = LivePanes(self.panes.store)
        context = MachineContext(
            self._calls,
            live,
            self._clock,
            self._emit,
            self._failed,
            reached_ns=lambda: self.reached,
        )
        machine = machine_of(self._spec, context, self.watermark)
        live.next_due = machine.next_due
        return live, machine

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

    def end(self, reached: int = NO_WATERMARK) -> list[Result]:
        """End the input, whose watermark is ``reached``: everything fires."""
        self.reached = max(reached, self.watermark)
        return self.advance(FINAL_WATERMARK)

    def commit(self) -> None:
        """End a batch and begin the next: entries that are kept are packed and unpacked.

        Comes after ``advance``, as in an engine.
        """
        self._live.flush()
        if self.panes is not None:
            self.panes.commit()
        self._live, self._machine = self._begin()

    def take(self) -> list[Result]:
        """Return the results since the last call."""
        results = self._results
        self._results = []
        return results
