"""Figures that affect speed, never results; small in tests.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HUNG_S = 20.0  # without a sign of life or an answer; ``RunOptions.hung_s`` overrides it


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of batches: their numbers of events (``runtime.pacing``)."""

    # the first batch's: seconds for slow user code; it grows quickly while there is time
    events_first: int = 1_000
    events_min: int = 10
    events_max: int = 4_000_000
    growth_max: float = 2.0  # from one batch to the next
    growth_quick: float = 8.0  # if a batch took only a fraction of the target
    # how many times its bound a batch may be if many of them wait (at low latency: --batch-time)
    backlog_growth: float = 2.0
    task_s: float = 0.04  # work below this: one more task costs more than it saves
    alone_s: float = 0.12  # work below this: one task saves a shuffle, which takes longer
    resident_task_s: float = 0.003  # like ``task_s``, if tasks are running already and only read


@dataclass(frozen=True, slots=True)
class Tuning:
    """The figures of a run."""

    pace: Pace = field(default_factory=Pace)
    sync_s: float = 1.0  # with the level memory: from one sync of all files to the next
    # batches from one snapshot of a key group to the next, at least; at low latency: refreshes
    snapshot_every: int = 32
    log_commits_max: int = 2048  # since the oldest snapshot in force: a start reads that many
    sweep_every: int = 16  # batches between two searches for files that are no longer needed
    sweep_s: float = 5.0  # between two searches if batches come every few milliseconds
    # bound of a file of commits at low latency: commits of one are removed together
    commit_run_bytes_max: int = 4 * 1024 * 1024
    commit_run_max: int = 1024  # the same, in commits: a restarted task reads a whole file
    # output of a task for a sink, written into the token, and so into the commit: a file of its own
    # costs two syncs
    inline_bytes_max: int = 64 * 1024
    inline_batch_bytes_max: int = 1024 * 1024  # the same, for all tasks of a batch together
    # objects between two images of a checkpoint in an object store: a start reads that many
    image_every: int = 256
    owner_check_s: float = 5.0  # between two questions of an idle run whether it owns that log
    refresh_s: float = 1.0  # at low latency: from one view to the next
    # between two places of a file at which batches and their tasks are cut, about
    mark_bytes: int = 64 * 1024

    def inline_bytes(self, tasks: int) -> int:
        """Return how much output of one task is inlined in its token, in a batch of ``tasks``.

        >>> Tuning().inline_bytes(2), Tuning().inline_bytes(64)
        (65536, 16384)
        """
        return min(self.inline_bytes_max, self.inline_batch_bytes_max // tasks)


DEFAULT = Tuning()
