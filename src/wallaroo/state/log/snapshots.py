"""Snapshots of a few key groups per batch, which shorten the log.

These groups write all their entries.

Where it runs: driver, workers for the files.

The groups with the oldest snapshots are next.  A snapshot is as large as its group's state, however
small the changes are, so its size is charged to the log: ``PAID`` bytes of snapshots per byte of
deltas. So the log is at most about half as large as the state, and writes are proportional to
changes.  A group without a snapshot, or with one many commits old, writes one in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from wallaroo.errors import WallarooError
from wallaroo.state.log.commits import Commit, SnapshotRef
from wallaroo.state.log.delta import DeltaFile
from wallaroo.state.log.storage import Storage

PAID = 2


class SnapshotSchedule:
    """The choice of the key groups that write a snapshot next.

    One group in ``every`` at most at a time; from all of their range, as tasks own parts of it.
    ``commits_max`` bounds the age of snapshots, in commits.
    """

    def __init__(self, key_groups: int, every: int, commits_max: int):
        self._count = -(-key_groups // every)
        self._commits_max = commits_max
        self._order = sorted(range(key_groups), key=lambda group: group % every)
        self._noted = -1  # the last commit
        self._snapshots: tuple[SnapshotRef, ...] = ()
        self._by_group: dict[int, SnapshotRef] = {}
        self._credit = 0  # bytes
        self._damages = 0
        self._renewed_at = -1

    def note(self, commit: Commit) -> None:
        """Note the deltas and snapshots of the last commit, once; commits come in order."""
        if commit.batch <= self._noted:
            return
        self._noted = commit.batch
        self._credit += PAID * sum(delta.size for delta in commit.deltas)
        if commit.snapshots is self._snapshots:
            return
        self._credit -= sum(ref.size for ref in set(commit.snapshots) - set(self._snapshots))
        state = sum(ref.size for ref in commit.snapshots)
        self._credit = min(max(0, self._credit), state)
        self._snapshots = commit.snapshots
        self._by_group = {
            group: ref for ref in commit.snapshots for group in range(ref.first, ref.end)
        }
        self._order.sort(key=self._batch_of)  # stable: the stride remains

    def renew(self, batch: int, damages: int) -> None:
        """Let all groups write a snapshot from this batch on if more files are damaged than before.

        They do so once, whatever it costs: so no damaged file is needed any more.
        """
        if damages > self._damages:
            self._damages = damages
            self._renewed_at = batch

    def due(self, batch: int) -> tuple[int, ...]:
        """Return the key groups that write a snapshot in a batch.

        >>> SnapshotSchedule(128, every=32, commits_max=4096).due(0)
        (0, 32, 64, 96)
        """
        credit = self._credit
        oldest = max(batch - self._commits_max, self._renewed_at)
        due = []
        for group in self._order[: self._count]:
            size = self._by_group[group].size if group in self._by_group else 0
            if size > credit and self._batch_of(group) >= oldest:
                break
            credit -= size
            due.append(group)
        return tuple(due)

    def _batch_of(self, group: int) -> int:
        return self._by_group[group].batch if group in self._by_group else -1


def sizes_in(storage: Storage, commit: Commit | None) -> dict[int, Mapping[str, tuple[int, int]]]:
    """Return the entries and bytes of each key group, by step, as its snapshot states them.

    Groups without one, or whose file is damaged or older than that statement, are left out.
    """
    sizes = {}
    for ref in commit.snapshots if commit is not None else ():
        with suppress(WallarooError):  # a task that needs the file reports it
            sizes[ref.first] = DeltaFile(storage.open(ref.file), ref.file).origin.sizes
    return {group: steps for group, steps in sizes.items() if steps}


def in_force(old: tuple[SnapshotRef, ...], new: Sequence[SnapshotRef]) -> tuple[SnapshotRef, ...]:
    """Replace old snapshots by new ones of the same key groups; if there are none, keep the old."""
    if not new:
        return old
    by_groups = {(ref.first, ref.end): ref for ref in old} | {
        (ref.first, ref.end): ref for ref in new
    }
    return tuple(by_groups[groups] for groups in sorted(by_groups))


def oldest_needed(oldest_retained: Commit, key_groups: int) -> int:
    """Return the first batch with needed deltas; ``key_groups``: 0 without state."""
    if len(oldest_retained.snapshots) < key_groups:
        return 0  # some group has no snapshot yet: the log since the beginning is its state
    return 1 + min((ref.batch for ref in oldest_retained.snapshots), default=oldest_retained.batch)
