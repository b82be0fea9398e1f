"""State that stays open from epoch to epoch: a view at some commit, and over it what this task
wrote since.

Where it runs: worker, in a resident task.

The invariants:

* A resident task owns the same key groups as long as it lives: the number of tasks never changes
  under it.  Where it has to change, or a task is lost, all tasks begin again from the log.
* What an epoch wrote counts from the moment that the driver names that epoch as committed; it is
  dropped where the driver names another one.  A commit that this task knows nothing of makes it
  begin again from the log.
* What was written since the view's commit lies over it, in two layers: ``newer``, and ``older``
  while a thread brings a second view to the commit with which ``older`` ends.  The layer and the
  old view go together, so a key is never read from a view that lacks one of its commits.
* The views hold committed versions only, as ever.  ``older`` holds committed epochs only, all from
  the commit of the view in use to that of the one to come, so the thread writes it where the former
  is; whatever is at another commit is read out of the log.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from wallaroo.engine.keyed_state import KeyedState, Read
from wallaroo.engine.keys import Key
from wallaroo.engine.ordered_entries import Change, EntryReader, StepStore
from wallaroo.runtime.resident.layers import Layer, LayeredEntries
from wallaroo.state.applying import CatchUp
from wallaroo.state.commits import DeltaRef, SnapshotRef
from wallaroo.state.history import History, Past, Remembered, Version
from wallaroo.state.snapshots import due_groups
from wallaroo.state.storage import Storage
from wallaroo.state.task_state import INLINE_BYTES_MAX, NO_STORES, TaskState, entry_changes
from wallaroo.tracing import trace_point
from wallaroo.tuning import DEFAULT, Tuning

# a thread that computes gives way to the epochs after this time; Python's own 5 ms are an epoch
SWITCH_S = 0.0005

Make = Callable[[], TaskState]  # not at any commit yet
ReadLog = Callable[[int], History]  # up to a commit
NEVER = Version(-2, "")


class Written(NamedTuple):
    """What an epoch wrote: states by step, and entries by name."""

    states: dict[str, list[tuple[Key, bytes | None]]]
    entries: dict[str, list[Change]]


@dataclass(frozen=True, slots=True)
class Refreshed:
    """A second view, and the snapshots written from it."""

    state: TaskState
    version: Version
    snapshots: tuple[SnapshotRef, ...]


class Refresh:
    """Brings a second view to a commit, in the background."""

    def __init__(self, work: Callable[[], Refreshed], background: Background):
        self._work = work
        self._done: Refreshed | None = None
        self._error: BaseException | None = None
        self._is_over = threading.Event()
        background.begin(self._run)

    def _run(self) -> None:
        try:
            self._done = self._work()
        except BaseException as error:  # noqa: BLE001  # raised by the thread that asks
            self._error = error
        self._is_over.set()

    def result(self) -> Refreshed | None:
        """Return what it made, None while it works; raise what it failed with."""
        if not self._is_over.is_set():
            return None
        if self._error is not None:
            raise self._error
        return self._done

    def close(self) -> None:
        """Wait for its end."""
        self._is_over.wait()
        if self._done is not None:
            self._done.state.close()


class Background:
    """A thread that does one thing after the other: starting one in an epoch would hold that up."""

    def __init__(self) -> None:
        self._begun: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_running = False

    def begin(self, work: Callable[[], None]) -> None:
        """Have it done; ``work`` raises nothing."""
        if not self._is_running:
            self._is_running = True
            threading.Thread(target=self._run, name="wallaroo-view", daemon=True).start()
        self._begun.put(work)

    def end(self) -> None:
        """End the thread after what was begun; ``begin`` starts another one."""
        if self._is_running:
            self._is_running = False
            self._begun.put(None)

    def _run(self) -> None:
        while (work := self._begun.get()) is not None:
            work()


class LastingState:
    """See the module's head.  ``make`` makes a state of this task's key groups, ``read_log`` what
    brings it to a commit.
    """

    def __init__(
        self,
        key_groups: int,
        storage: Storage,
        make: Make,
        read_log: ReadLog,
        tuning: Tuning = DEFAULT,
    ):
        sys.setswitchinterval(SWITCH_S)
        self._key_groups = key_groups
        self._storage = storage
        self._make = make
        self._read_log = read_log
        self._tuning = tuning
        self._view: TaskState | None = None
        self._viewed = NEVER  # the commit at which it is
        self._newer = Layer()
        self._older = Layer()
        self._pending = Written({}, {})  # of the epoch under way
        self._under_way = -2  # that epoch
        self._committed = NEVER  # the last one that counts
        self._background = Background()
        self._refresh: Refresh | None = None
        self._refresh_at = 0.0
        self._turn = 0
        self._snapshots: tuple[SnapshotRef, ...] = ()

    def begin(self, epoch: int, committed: Version) -> CatchUp:
        """Begin an attempt of an epoch after a commit; return what it took to get there."""
        done = CatchUp()
        known = (self._under_way, self._committed.batch)
        if self._view is None or committed.batch not in known:
            done = self._reopen(committed)
        elif committed.batch == self._under_way:
            self._keep_pending()
        self._committed = committed
        self._pending = Written({}, {})
        self._under_way = epoch
        self._take_refreshed()
        self._refresh_if_due()
        return done

    def _reopen(self, committed: Version) -> CatchUp:
        self.release()
        self._newer = Layer()
        self._older = Layer()
        log = self._read_log(committed.batch)
        self._view = self._make()
        done = self._view.catch_up(log)
        self._viewed = log.version
        self._refresh_at = time.monotonic() + self._tuning.refresh_s
        return done

    def _keep_pending(self) -> None:
        self._newer.write(*self._pending)

    def _take_refreshed(self) -> None:
        refreshed = self._refresh.result() if self._refresh is not None else None
        if refreshed is None:
            return
        assert self._view is not None
        self._view.close()
        self._view = refreshed.state
        self._viewed = refreshed.version
        self._older = Layer()
        self._snapshots = refreshed.snapshots
        self._refresh = None

    def _refresh_if_due(self) -> None:
        now = time.monotonic()
        if self._refresh is not None or now < self._refresh_at or self._newer.is_empty:
            return
        self._refresh_at = now + self._tuning.refresh_s
        self._older = self._newer
        self._newer = Layer()
        start = self._viewed
        committed = self._committed
        turns = range(self._turn, self._turn + self._tuning.turns_per_refresh)
        self._turn = turns.stop % self._tuning.snapshot_every
        self._refresh = Refresh(lambda: self._refreshed(start, committed, turns), self._background)

    def _refreshed(self, start: Version, committed: Version, turns: range) -> Refreshed:
        trace_point("view.refresh")
        state = self._make()
        past = self._past(state, start, committed)
        state.catch_up(past)
        trace_point("view.refreshed")
        due = [
            group
            for turn in turns
            for group in due_groups(turn, self._key_groups, self._tuning.snapshot_every)
        ]
        name = uuid.uuid4().hex[:12]
        written = state.write_snapshots(due, committed.batch, name, self._storage)
        trace_point("view.snapshots")
        return Refreshed(state, past.version, tuple(written))

    def _past(self, state: TaskState, start: Version, committed: Version) -> Past:
        """Return what brings a view to a commit: what was written since ``start``, or the log where
        the commit's id is not known.
        """
        if not committed.id:
            return self._read_log(committed.batch)
        states = {step: written.items() for step, written in self._older.states.items()}
        entries = state.by_group(states, self._older.all_entries)
        return Remembered(start, committed, entries, lambda: self._read_log(committed.batch))

    # -- what a task needs

    def reader(self, step: str) -> Read:
        """Return the function that reads one state step's entries."""
        assert self._view is not None
        below = self._view.reader(step)
        newer = self._newer.states.setdefault(step, {})
        older = self._older.states.get(step, {})

        def read(key: Key) -> bytes | None:
            if key in newer:
                return newer[key]
            if key in older:
                return older[key]
            return below(key)

        return read

    def open_entries(self, name: str) -> EntryReader:
        """Return what reads the ordered entries of one name in the step table."""
        assert self._view is not None
        layers = (self._newer.entries.get(name, {}), self._older.entries.get(name, {}))
        return LayeredEntries(layers, self._view.open_entries(name))

    def keys(self, step: str) -> Iterator[Key]:
        """Yield the keys of which a state step has state."""
        assert self._view is not None
        written = {**self._older.states.get(step, {}), **self._newer.states.get(step, {})}
        yield from (key for key, raw in written.items() if raw is not None)
        yield from (key for key in self._view.keys(step) if key not in written)

    @property
    def rebuilt_shards(self) -> int:
        """How many shards of the view were found damaged, and were built again."""
        return self._view.rebuilt_shards if self._view is not None else 0

    def write_delta(
        self,
        states: Mapping[str, KeyedState],
        name: str,
        storage: Storage,
        batch: int,
        stores: Mapping[str, StepStore] = NO_STORES,
    ) -> DeltaRef | None:
        """Stage what changed, inside the reference where it is little; None where nothing did."""
        assert self._view is not None
        changes = {step: list(state.changes()) for step, state in states.items()}
        entries = {each: list(rows) for each, rows in entry_changes(stores)}
        self._pending.states.update(changes)
        self._pending.entries.update(entries)
        return self._view.stage(changes, name, storage, batch, INLINE_BYTES_MAX, entries)

    def write_snapshots(
        self, groups: Iterable[int], batch: int, attempt: str, storage: Storage
    ) -> list[SnapshotRef]:
        """Return the snapshots that the newest view was written out to; each once.  Which ones are
        due is decided here, by time.
        """
        snapshots = self._snapshots
        self._snapshots = ()
        return list(snapshots)

    def close(self) -> None:
        """Nothing: it stays open."""

    def release(self) -> None:
        """Close the views."""
        if self._refresh is not None:
            self._refresh.close()
            self._refresh = None
        self._background.end()
        if self._view is not None:
            self._view.close()
            self._view = None
