"""State that stays open from epoch to epoch.

Where it runs: worker, in a resident task.

It is a view at some commit, overlaid by this task's writes since then.

The invariants:

* A resident task owns the same key groups for its lifetime: the number of tasks is fixed. If it has
  to change, or a task is lost, all tasks restart from the log.
* An epoch's writes count once the driver names that epoch as committed; they are dropped if it
  names another one. After a commit that it does not know, this task restarts from the log.
* Writes since the view's commit form two layers above it: ``newer``, and ``older``
  while a thread brings a second view to the commit with which ``older`` ends.  The layer and the
  old view are dropped together, so a read never misses a commit.
* The views hold committed versions only, as always.  ``older`` holds committed epochs only, all
  from the commit of the view in use to that of the next one, so the thread writes it to key groups
  that are at the former commit; key groups at another commit are brought up from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from wallaroo.engine.blocks.keys import Key
from wallaroo.engine.stores.keyed_state import KeyedState
from wallaroo.engine.stores.operator_state import OperatorState
from wallaroo.engine.stores.sorted_state import Change, EntryReader
from wallaroo.errors import CheckpointError
from wallaroo.runtime.resident.view_refresh import Views
from wallaroo.runtime.resident.write_buffer import BufferedEntries, BufferedStates, WriteLayer
from wallaroo.state import task_state
from wallaroo.state.log.commits import DeltaRef, SnapshotRef
from wallaroo.state.log.history import Version
from wallaroo.state.log.storage import Storage
from wallaroo.state.views.view_updates import CatchUp

NEVER = Version(-2, "")


class Written(NamedTuple):
    """The writes of an epoch: states by step, and entries by name."""

    states: dict[str, dict[Key, bytes | None]]
    entries: dict[str, list[Change]]


class ResidentState:
    """State of a resident task; see the module's docstring."""

    def __init__(self, views: Views):
        self._views = views
        self._view: task_state.TaskState | None = None
        self._viewed = NEVER  # the view's commit
        self._newer = WriteLayer()
        self._older = WriteLayer()
        self._pending = Written({}, {})  # by the epoch under way
        self._under_way = -2  # that epoch
        self._committed = NEVER  # the last commit that counts
        self._snapshots: tuple[SnapshotRef, ...] = ()

    def begin(self, epoch: int, committed: Version, due: Sequence[int]) -> CatchUp:
        """Begin an attempt of an epoch after a commit; return the cost of catching up.

        A refresh that begins now writes snapshots of the key groups that are ``due``.
        """
        done = CatchUp()
        known = (self._under_way, self._committed.batch)
        if self._view is None or committed.batch not in known:
            done = self._reopen(committed)
        elif committed.batch == self._under_way:
            self._newer.write(*self._pending)
        self._committed = committed
        self._pending = Written({}, {})
        self._under_way = epoch
        try:
            self._take_refreshed()
        except CheckpointError:  # a file that was removed meanwhile, with its commit
            done += self._reopen(committed)
        self._refresh_if_due(due)
        return done

    def _reopen(self, committed: Version) -> CatchUp:
        self._views.discard()
        self._close_view()
        self._newer = WriteLayer()
        self._older = WriteLayer()
        log = self._views.read_log(committed.batch)
        self._view = self._views.make()
        done = self._view.catch_up(log)
        self._viewed = log.version
        self._views.wait()
        return done

    def _take_refreshed(self) -> None:
        refreshed = self._views.refreshed()
        if refreshed is None:
            return
        assert self._view is not None
        self._view.close()
        self._view = refreshed.state
        self._viewed = refreshed.version
        self._older = WriteLayer()
        self._snapshots = refreshed.snapshots

    def _refresh_if_due(self, due: Sequence[int]) -> None:
        if not self._views.is_due or self._newer.is_empty:
            return
        self._older = self._newer
        self._newer = WriteLayer()
        unreported = {ref.first for ref in self._snapshots}
        due = [group for group in due if group not in unreported]
        self._views.refresh(self._viewed, self._committed, self._older, due)

    # -- for the task

    def reader(self, step: str) -> BufferedStates:
        """Return the function that reads one state step's entries."""
        assert self._view is not None
        newer = self._newer.states.setdefault(step, {})
        older = self._older.states.get(step, {})
        return BufferedStates(newer, older, self._view.reader(step))

    def open_entries(self, name: str) -> EntryReader:
        """Return the reader of the ordered entries with one name in the step table."""
        assert self._view is not None
        layers = (self._newer.entries.get(name, {}), self._older.entries.get(name, {}))
        return BufferedEntries(layers, self._view.open_entries(name))

    def has_name(self, name: str) -> bool:
        """Return whether the step table has a name."""
        assert self._view is not None
        return self._view.has_name(name)

    def keys(self, step: str) -> Iterator[Key]:
        assert self._view is not None
        written = {**self._older.states.get(step, {}), **self._newer.states.get(step, {})}
        yield from (key for key, raw in written.items() if raw is not None)
        yield from (key for key in self._view.keys(step) if key not in written)

    def states_after(self, step: str, group: int, key: bytes, limit: int) -> task_state.States:
        """Yield states of the view, which may be older than the last commit (`TaskState`)."""
        assert self._view is not None
        return self._view.states_after(step, group, key, limit)

    @property
    def rebuilt_shards(self) -> int:
        """Return the number of damaged shards of the view that were rebuilt."""
        return self._view.rebuilt_shards if self._view is not None else 0

    def write_delta(
        self,
        states: Mapping[str, KeyedState],
        name: str,
        storage: Storage,
        batch: int,
        stores: Mapping[str, OperatorState] = task_state.NO_STORES,
    ) -> DeltaRef | None:
        """Stage the changes, inside the reference if they are small; None without changes."""
        assert self._view is not None
        changes = {step: dict(state.changes()) for step, state in states.items()}
        entries = {each: list(rows) for each, rows in task_state.entry_changes(stores)}
        self._pending.states.update(changes)
        self._pending.entries.update(entries)
        rows = {step: changed.items() for step, changed in changes.items()}
        return self._view.stage(rows, name, storage, batch, task_state.INLINE_BYTES_MAX, entries)

    def take_snapshots(self) -> tuple[SnapshotRef, ...]:
        """Return, once each, the snapshots that were written from the newest view."""
        snapshots = self._snapshots
        self._snapshots = ()
        return snapshots

    @property
    def group_sizes(self) -> task_state.GroupSizes:
        """Return the sizes of the key groups in the newest snapshots."""
        return self._view.group_sizes if self._view is not None else task_state.NO_SIZES

    def close(self) -> None:
        """Do nothing: the state stays open."""

    def release(self) -> None:
        """Close the views."""
        self._views.close()
        self._close_view()

    def _close_view(self) -> None:
        if self._view is not None:
            self._view.close()
            self._view = None
