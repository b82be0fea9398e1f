"""Deletion of unneeded deltas, snapshots and commits; scrubbing of the others.

Where it runs: driver, after a commit.

The invariant: a file is deleted only when no retained commit, nothing it is built on, and no later
batch refers to it: if tasks write snapshots in parallel with the batches, those newer than the ones
in force stay. Commits are deleted oldest first, before their files. So a crash between two
deletions leaves garbage, never a gap.

A second one: files to delete and files needed are listed first, and ownership is checked after
that. So files of a run that takes over are on no list of ours, however late we delete.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from wallaroo.checkpoints.maintenance.scrub import INTERVAL_S, Scrub
from wallaroo.dataflow.plan.model import Plan
from wallaroo.instrumentation.faults import fault_point
from wallaroo.instrumentation.tuning import DEFAULT, Tuning
from wallaroo.options import RunOptions
from wallaroo.state.checkpoint import Checkpoint
from wallaroo.state.log.commits import Commit
from wallaroo.state.log.layout import DELTAS, SNAPSHOTS
from wallaroo.state.log.snapshots import SnapshotSchedule, oldest_needed


def _never(name: str) -> bool:
    """Return False: nothing else is kept."""
    return False


class Housekeeping:
    """Retention of the newest ``retain`` commits and the files they need."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        key_groups: int,
        retain: int,
        scrub_interval_s: float = INTERVAL_S,
        is_frequent: bool = False,
        tuning: Tuning = DEFAULT,
    ):
        self._tuning = tuning
        self._is_frequent = is_frequent
        self._sweep_at = 0.0
        self._checkpoint = checkpoint
        self._key_groups = key_groups
        self._retain = max(1, retain)
        self._scrub = Scrub(checkpoint.root, scrub_interval_s)
        self._report: Callable[[str], None] = lambda line: None
        self._floor: int | None = None
        self._retained: deque[Commit] = deque()
        self._snapshots = SnapshotSchedule(
            key_groups, tuning.snapshot_every, tuning.log_commits_max
        )
        for batch in checkpoint.commits.batches()[-self._retain :]:
            self._retained.append(checkpoint.commits.read(batch))
        self._look_at_floor()
        self._sweep(is_running=False)

    @staticmethod
    def for_run(
        options: RunOptions, checkpoint: Checkpoint, plan: Plan, has_state: bool
    ) -> Housekeeping:
        """Return the housekeeping of a run, after its first sweep."""
        return Housekeeping(
            checkpoint,
            plan.key_groups if has_state else 0,  # then no commit needs the one before it
            options.retained,
            is_frequent=options.is_resident,
            tuning=options.tuning,
        )

    @property
    def oldest(self) -> Commit:
        """Return the oldest retained commit; there is one after the first commit."""
        return self._retained[0]

    def oldest_after(self, commit: Commit) -> int:
        """Return the number of the oldest retained commit once ``commit`` is noted."""
        surplus = self._surplus(1)
        return self._retained[surplus].batch if surplus < len(self._retained) else commit.batch

    def _surplus(self, more: int) -> int:
        """Return how many of the oldest commits are dropped after ``more`` new ones."""
        surplus = max(0, len(self._retained) + more - self._retain)
        floor = self._floor
        if floor is None:
            return surplus
        return next((n for n in range(surplus) if self._retained[n].batch >= floor), surplus)

    def _look_at_floor(self) -> None:
        """Read the floor, to which a start after the loss of the machine returns.

        It is read between two commits, so that sinks and the log have one bound.
        """
        keeper = self._checkpoint.floor
        self._floor = keeper.floor.batch if keeper is not None else None

    def newest(self, count: int) -> tuple[Commit, ...]:
        """Return the newest commits, oldest first."""
        return tuple(self._retained)[-count:]

    @property
    def damaged(self) -> Mapping[str, str]:
        """Return the checkpoint's files that the scrub found damaged, each with its defect."""
        return self._scrub.damaged

    def snapshots_due(self, batch: int, last: Commit | None) -> tuple[int, ...]:
        """Return the key groups that write a snapshot in the batch after the last commit.

        That may still be in flight: `committed` is called later.
        """
        if last is not None:
            self._snapshots.note(last)
        self._snapshots.renew(batch, len(self.damaged))
        return self._snapshots.due(batch)

    def report_to(self, report: Callable[[str], None]) -> None:
        """Report damaged files from now on, once each, from another thread."""
        self._report = report

    def sweeps_after(self, commit: Commit) -> bool:
        """Return whether `committed` may sweep, which requires that no task has staged anything."""
        return commit.batch % self._tuning.sweep_every == 0

    def committed(self, commit: Commit) -> None:
        """Note a commit; sweep and scrub at intervals."""
        self._retained.append(commit)
        for _ in range(self._surplus(0)):
            self._retained.popleft()
        self._look_at_floor()
        self._scrub.look(tuple(self._retained), self._report)
        if self.sweeps_after(commit) and time.monotonic() >= self._sweep_at:
            self._sweep(is_running=True)
        if self._checkpoint.elsewhere is not None:
            self._checkpoint.elsewhere.housekeep(self._needed())

    def _needed(self) -> Iterator[Commit]:
        """Yield the retained commits, and those that they need."""
        oldest = oldest_needed(self._retained[0], self._key_groups)
        bound = min(oldest, self._retained[0].batch)
        commits = self._checkpoint.commits
        yield from (commits.read(batch) for batch in commits.batches() if batch >= bound)

    def _sweep(self, is_running: bool) -> None:
        if self._is_frequent:
            self._sweep_at = time.monotonic() + self._tuning.sweep_s
        fault_point("housekeeping.sweep")
        self._remove_unneeded(is_running and self._is_frequent)
        fault_point("housekeeping.swept")

    def _remove_unneeded(self, are_snapshots_awaited: bool) -> None:
        commits = self._checkpoint.commits
        storage = self._checkpoint.storage
        deltas = storage.names(DELTAS)
        snapshots = storage.names(SNAPSHOTS)
        uncounted = commits.uncounted(self._checkpoint.claim.epoch)
        oldest = oldest_needed(self._retained[0], self._key_groups) if self._retained else 0
        # first: the next run removes those of our files that it has copied
        needed = commits.delta_files(oldest) if self._retained else frozenset()
        self._checkpoint.owner.require()
        for name in uncounted:
            storage.delete(name)
        if not self._retained:
            self._remove_all_but(DELTAS, deltas, needed)
            self._remove_all_but(SNAPSHOTS, snapshots, frozenset())
            return
        bound = min(oldest, self._retained[0].batch)
        commits.remove_before(bound)
        self._remove_all_but(DELTAS, deltas, needed)
        # most commits share the snapshots of the one before
        in_force = {id(commit.snapshots): commit.snapshots for commit in self._retained}
        self._remove_all_but(
            SNAPSHOTS,
            snapshots,
            frozenset(ref.file for refs in in_force.values() for ref in refs),
            self._is_awaited if are_snapshots_awaited else _never,
        )
        commits.forget_before(self._retained[0].batch)  # there are thousands of them at low latency

    def _is_awaited(self, name: str) -> bool:
        """Return whether a later commit may name a snapshot.

        Tasks may have written it in parallel with the batches if it is newer than the one in force.
        """
        newest = {ref.first: ref.batch for ref in self._retained[-1].snapshots}
        batch, group = map(int, name.split(".")[:2])
        return batch > newest.get(group, -1)

    def _remove_all_but(
        self,
        folder: str,
        names: list[str],
        needed: frozenset[str],
        is_kept: Callable[[str], bool] = _never,
    ) -> None:
        for name in names:
            if f"{folder}/{name}" not in needed and not is_kept(name):
                self._checkpoint.storage.delete(f"{folder}/{name}")
