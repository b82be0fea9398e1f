"""Snapshots in rotation, of a few key groups per batch.

These groups write all their entries.

Where it runs: pure (choice of groups, schedule, removal); workers write the files.

Group g is due in batch n when n and g's place in the rotation agree modulo ``snapshot_every``.  So
the log after each snapshot stays short: a group's log is at most so many batches long, and a batch
writes one part in so many of the state, whatever its size.
"""

from __future__ import annotations

from collections.abc import Sequence

from wallaroo.state.log.commits import Commit, SnapshotRef


def due_groups(batch: int, key_groups: int, every: int) -> tuple[int, ...]:
    """Return the key groups that write a snapshot in this batch.

    >>> due_groups(64, 128, every=64), due_groups(65, 128, every=64)
    ((0, 64), (1, 65))
    """
    return tuple(range(batch % every, key_groups, every))


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
