"""What the driver and resident tasks say to each other.

Where it runs: pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wallaroo.engine.watermarks import NO_TIME, BatchTime
from wallaroo.runtime.job import BatchJob, Pieces
from wallaroo.runtime.resident.links import Address
from wallaroo.small_pickles import pickled_by_values
from wallaroo.state.history import Version
from wallaroo.tls import Pem

LOST = ""  # in place of an address: the task has died


@dataclass(frozen=True, slots=True)
class Hello:
    """A task's first message, or what its successor says of it."""

    index: int
    address: Address  # where it listens for tasks of higher index


@dataclass(frozen=True, slots=True)
class Welcome:
    """The driver's answer, once all tasks are there."""

    job: BatchJob  # of nothing: what all epochs have in common
    addresses: tuple[Address, ...]  # of all tasks
    pem: Pem | None = None  # with which tasks listen; None: without TLS


@pickled_by_values
@dataclass(frozen=True, slots=True)
class Epoch:
    """A batch, without what never changes."""

    batch: int
    committed: int
    pieces: Pieces
    writes_snapshots: bool
    time: BatchTime = NO_TIME
    is_sampled: bool = True
    committed_id: str = ""

    @property
    def version(self) -> Version:
        """The commit that it follows; without an id where that is not known."""
        return Version(self.committed, self.committed_id)

    @staticmethod
    def of(job: BatchJob) -> Epoch:
        """What of a batch is its own."""
        return Epoch(
            job.batch,
            job.committed,
            job.pieces,
            job.writes_snapshots,
            job.time,
            job.is_sampled,
            job.version.id,
        )

    def job(self, common: BatchJob) -> BatchJob:
        """Undo ``of``."""
        return replace(
            common,
            batch=self.batch,
            committed=self.committed,
            pieces=self.pieces,
            writes_snapshots=self.writes_snapshots,
            time=self.time,
            is_sampled=self.is_sampled,
            commits=(),
        )


@pickled_by_values
@dataclass(frozen=True, slots=True)
class Ahead:
    """What the epoch after the one under way will read, if nothing comes between: a task that is
    done with the one under way begins with it (``runtime.resident.lookahead``).
    """

    batch: int
    pieces: Pieces
    is_sampled: bool = True

    def is_of(self, epoch: Epoch) -> bool:
        """Whether that epoch is the one."""
        return self.batch == epoch.batch and self.pieces == epoch.pieces

    def job(self, common: BatchJob) -> BatchJob:
        """Return a batch that has what level 0 needs."""
        return replace(
            common,
            batch=self.batch,
            pieces=self.pieces,
            writes_snapshots=False,
            is_sampled=self.is_sampled,
            commits=(),
        )
