"""State of one task of one batch: its reads and its delta.

Where it runs: worker.  Reads go through the view; the delta file is written at the end.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from wallaroo.engine.blocks.keys import Key, decode_key, locate
from wallaroo.engine.stores.keyed_state import KeyedState, Read
from wallaroo.engine.stores.operator_state import OperatorState
from wallaroo.engine.stores.sorted_state import Change, EntryReader, namespace
from wallaroo.state.log.commit_record import DeltaRef, SnapshotRef, packed_inline
from wallaroo.state.log.delta import Entry, Origin, Row, encode
from wallaroo.state.log.history import Past
from wallaroo.state.log.layout import DELTAS, SNAPSHOTS
from wallaroo.state.log.storage import Storage
from wallaroo.state.views.entry_codec import Stored
from wallaroo.state.views.view import View
from wallaroo.state.views.view_updates import CatchUp

SCANNED_AT_ONCE = 8  # initially; one entry is enough to know the next due time
SCANNED_MAX = 8192
STATES_AT_ONCE = 256  # in storage order
LOCATED_MAX = 1 << 20  # keys whose group and bytes are kept
NO_STORES: Mapping[str, OperatorState] = MappingProxyType({})


class StoredEntries:
    """Ordered entries of one step in the view; an ``EntryReader``."""

    def __init__(self, view: View, step: int):
        self._view = view
        self._step = step

    def get(self, group: int, stored: bytes) -> bytes | None:
        return self._view.read(group, self._step, stored)

    def scan(self, group: int, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        limit = SCANNED_AT_ONCE
        while True:
            stored = self._view.scan_rows(group, self._step, low, high, limit)
            for _, key, value in stored:
                yield key, value
            if len(stored) < limit:
                return
            low = stored[-1][1] + b"\x00"
            limit = min(4 * limit, SCANNED_MAX)

    def scan_each(
        self, group: int, prefixes: Sequence[bytes]
    ) -> Iterable[tuple[bytes, bytes, bytes]]:
        return self._view.scan_each(group, self._step, prefixes)


# the size of an inline delta: above it, a file of its own costs less than a larger commit
INLINE_BYTES_MAX = 64 * 1024

# key group -> name in the step table -> entries and their bytes
GroupSizes = Mapping[int, Mapping[str, tuple[int, int]]]
NO_SIZES: GroupSizes = MappingProxyType({})

States = Iterator[tuple[bytes, bytes]]  # encoded keys, and their stored values
Changes = Iterable[tuple[Key, bytes | None]]  # one step's: key and state; None: removed


class StateReader:
    """Reader of the entries of one state step; a ``BulkRead``."""

    def __init__(self, state: TaskState, step: int):
        self._state = state
        self._step = step

    def __call__(self, key: Key) -> bytes | None:
        return self._state.read(self._step, key)

    def many(self, group: int, keys: Mapping[bytes, Key]) -> Iterator[tuple[Key, bytes | None]]:
        return self._state.read_many(self._step, group, keys)


class StateOfTask(Protocol):
    """A task's operations on its state; ``TaskState`` has the contracts."""

    def reader(self, step: str) -> Read: ...

    def open_entries(self, name: str) -> EntryReader: ...

    def has_name(self, name: str) -> bool: ...

    def keys(self, step: str) -> Iterable[Key]: ...

    def states_after(self, step: str, group: int, key: bytes, limit: int) -> States: ...

    @property
    def rebuilt_shards(self) -> int: ...

    @property
    def group_sizes(self) -> GroupSizes: ...

    def write_delta(
        self,
        states: Mapping[str, KeyedState],
        name: str,
        storage: Storage,
        batch: int,
        stores: Mapping[str, OperatorState] = NO_STORES,
    ) -> DeltaRef | None: ...

    def close(self) -> None: ...


def entry_changes(stores: Mapping[str, OperatorState]) -> Iterator[tuple[str, Iterator[Change]]]:
    """Yield the changes of steps' stores to write, by name in the step table."""
    for step, store in stores.items():
        for kind, rows in store.changes():
            yield namespace(step, kind), rows


class TaskState:
    """State of key groups [first, end) for one task.

    ``steps`` is the checkpoint's step table, ``checkpoint`` its id, ``located`` the groups and
    bytes of keys that an earlier one found.
    """

    def __init__(
        self,
        view_root: Path,
        key_groups: int,
        groups: tuple[int, int],
        steps: tuple[str, ...],
        checkpoint: str = "",
        located: dict[Key, tuple[int, bytes]] | None = None,
    ):
        self._view = View(view_root, key_groups, *groups)
        self._key_groups = key_groups
        self._groups = groups
        self._checkpoint = checkpoint
        self._step_ids = {name: number for number, name in enumerate(steps)}
        self._located: dict[Key, tuple[int, bytes]] = {} if located is None else located
        # by key group, for those whose snapshots were written
        self.group_sizes: dict[int, dict[str, tuple[int, int]]] = {}

    def catch_up(self, history: Past) -> CatchUp:
        """Bring the view to the last committed batch; return the cost."""
        return self._view.catch_up(history)

    def _locate(self, key: Key) -> tuple[int, bytes]:
        located = self._located.get(key)
        if located is None:
            if len(self._located) >= LOCATED_MAX:
                self._located.clear()
            located = self._located[key] = locate(key, self._key_groups)
        return located

    def reader(self, step: str) -> StateReader:
        """Return the function that reads one state step's entries."""
        return StateReader(self, self._step_ids[step])

    def read(self, step: int, key: Key) -> bytes | None:
        """Return the stored value of a key, None if there is none."""
        group, encoded = self._locate(key)
        return self._view.read(group, step, encoded)

    def read_many(
        self, step: int, group: int, keys: Mapping[bytes, Key]
    ) -> Iterator[tuple[Key, bytes | None]]:
        """Yield the stored values of keys of one group, passed in encoded form."""
        if len(self._located) + len(keys) > LOCATED_MAX:
            self._located.clear()
        self._located.update((key, (group, encoded)) for encoded, key in keys.items())
        return zip(keys.values(), self._view.read_many(group, step, keys), strict=True)

    @property
    def rebuilt_shards(self) -> int:
        """Return the number of this host's damaged shards that were rebuilt."""
        return self._view.rebuilt

    def scan(self, step: str, low: bytes, high: bytes | None = None) -> Iterator[Entry]:
        """Yield one step's entries with low <= encoded key < high of all groups, in key order.

        Keys of more than ``entry_codec.KEY_BYTES_MAX`` bytes are not found.
        """
        step_id = self._step_ids[step]
        found = (self._view.scan(group, step_id, low, high) for group in range(*self._groups))
        return heapq.merge(*found, key=lambda entry: entry.key)

    def open_entries(self, name: str) -> StoredEntries:
        """Return the reader of the ordered entries of one name in the step table."""
        return StoredEntries(self._view, self._step_ids[name])

    def has_name(self, name: str) -> bool:
        """Return whether the step table has a name."""
        return name in self._step_ids

    def keys(self, step: str) -> Iterator[Key]:
        step_id = self._step_ids[step]
        for group in range(*self._groups):
            for entry in self._view.entries(group):
                if entry.step == step_id:
                    yield decode_key(entry.key)

    def states_after(self, step: str, group: int, key: bytes, limit: int) -> States:
        """Yield at most so many of the states stored after a key, or the first if it is empty."""
        step_id = self._step_ids[step]
        limit = min(limit, STATES_AT_ONCE)
        for _, encoded, raw in self._view.entries_after(group, step_id, key, limit):
            yield encoded, raw

    def write_delta(
        self,
        states: Mapping[str, KeyedState],
        name: str,
        storage: Storage,
        batch: int,
        stores: Mapping[str, OperatorState] = NO_STORES,
    ) -> DeltaRef | None:
        """Write changes as a new delta file of ``batch``, if any, else return None."""
        changes = {step: state.changes() for step, state in states.items()}
        return self.stage(changes, name, storage, batch, entries=dict(entry_changes(stores)))

    def stage(
        self,
        changes: Mapping[str, Changes],
        name: str,
        storage: Storage,
        batch: int,
        inline_bytes_max: int = 0,
        entries: Mapping[str, Iterable[Change]] = MappingProxyType({}),
    ) -> DeltaRef | None:
        """Write changes by step, and entries by name, as ``write_delta`` does.

        A delta of at most ``inline_bytes_max`` bytes is not written, but carried by the reference.
        """
        by_group = self.by_group(changes, entries)
        if not by_group:
            return None
        file = f"{DELTAS}/{name}.delta"
        content, digest = encode(Origin(self._checkpoint, batch, file), by_group)
        inline = packed_inline(content) if len(content) <= inline_bytes_max else ""
        if not inline:
            storage.publish(file, content)
        count = sum(map(len, by_group.values()))
        return DeltaRef(file, *self._groups, len(content), count, digest, inline)

    def by_group(
        self, changes: Mapping[str, Changes], entries: Mapping[str, Iterable[Change]]
    ) -> dict[int, list[Row]]:
        """Return changes by step, and entries by name, in the form of a log: by key group."""
        by_group: defaultdict[int, list[Row]] = defaultdict(list)
        for step, changed in changes.items():
            self._gather(self._step_ids[step], changed, by_group)
        for of_step, rows in entries.items():
            step_id = self._step_ids[of_step]
            for group, stored, value in rows:
                by_group[group].append((step_id, stored, value))
        return dict(by_group)

    def _gather(self, step: int, changes: Changes, by_group: dict[int, list[Row]]) -> None:
        for key, raw in changes:
            group, encoded = self._locate(key)
            by_group[group].append((step, encoded, raw))
            if raw is None:
                self._located.pop(key, None)  # most removed keys never return

    def write_snapshots(
        self, groups: Iterable[int], batch: int, attempt: str, storage: Storage
    ) -> list[SnapshotRef]:
        """Write all entries of these key groups (those that are ours) as committed by ``batch``."""
        written = []
        for group in groups:
            if self._groups[0] <= group < self._groups[1]:
                file = f"{SNAPSHOTS}/{batch}.{group}.{attempt}.snapshot"
                entries = self._view.rows(group)
                self.group_sizes[group] = self._sizes(entries)
                origin = Origin(self._checkpoint, batch, file, self.group_sizes[group])
                content, digest = encode(origin, {group: entries})
                storage.publish(file, content)
                written.append(SnapshotRef(file, group, group + 1, batch, len(content), digest))
        return written

    def _sizes(self, entries: Iterable[Stored]) -> dict[str, tuple[int, int]]:
        counts = [0] * len(self._step_ids)
        sizes = [0] * len(self._step_ids)
        for step, key, value in entries:
            counts[step] += 1
            sizes[step] += len(key) + len(value)
        return {
            name: (counts[step], sizes[step])
            for name, step in self._step_ids.items()
            if counts[step]
        }

    def close(self) -> None:
        """End the view's read transactions."""
        self._view.close()
        self._located = {}  # operators refer to it in cycles
