"""Messages between the driver and resident tasks.

Where it runs: pure.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace

from wallaroo.engine.stores.background_upgrades import Portion
from wallaroo.engine.time.watermarks import NO_TIME, BatchTime
from wallaroo.network.proved_connections import Address
from wallaroo.network.tls import Pem
from wallaroo.runtime.tasks.job import BatchJob, Pieces
from wallaroo.state.log.history import Version
from wallaroo.user_code.compact_pickles import pickled_by_values

LOST = ""  # instead of an address: the task has died


@dataclass(frozen=True, slots=True)
class Hello:
    """A task's first message, or its successor's report of its death."""

    index: int
    address: Address  # on which it listens for tasks of higher index


@dataclass(frozen=True, slots=True)
class Welcome:
    """The driver's answer, once all tasks have connected."""

    job: BatchJob  # without input: the common part of all epochs
    addresses: tuple[Address, ...]  # by task
    pem: Pem | None = None  # with which tasks listen; None: without TLS
    replicas: tuple[tuple[int, ...], ...] = ()  # by task: key groups of which it keeps a copy


@pickled_by_values
@dataclass(frozen=True, slots=True)
class Epoch:
    """Batch without its constant part."""

    batch: int
    committed: int
    pieces: Pieces
    snapshots_due: tuple[int, ...] | None
    time: BatchTime = NO_TIME
    is_sampled: bool = True
    committed_id: str = ""
    upgrade: Portion | None = None

    @property
    def version(self) -> Version:
        """Return the commit that the epoch follows, without an id if unknown."""
        return Version(self.committed, self.committed_id)

    @staticmethod
    def of(job: BatchJob) -> Epoch:
        """Return the variable part of a batch."""
        return Epoch(
            job.batch,
            job.committed,
            job.pieces,
            job.snapshots_due,
            job.time,
            job.is_sampled,
            job.version.id,
            job.upgrade,
        )

    def job(self, common: BatchJob) -> BatchJob:
        """Return the batch: the inverse of ``of``, but without commits."""
        return replace(
            common,
            batch=self.batch,
            committed=self.committed,
            pieces=self.pieces,
            snapshots_due=self.snapshots_due,
            time=self.time,
            is_sampled=self.is_sampled,
            upgrade=self.upgrade,
            commits=(),
        )


@pickled_by_values
@dataclass(frozen=True, slots=True)
class Ahead:
    """Planned input of the epoch after the current one.

    A task that is done with the current epoch starts on it (``runtime.resident.pipelining``). It is
    dropped if another epoch follows.
    """

    batch: int
    pieces: Pieces
    is_sampled: bool = True
    time: BatchTime = NO_TIME  # without marks: they follow from the commit that is not made yet

    def is_of(self, epoch: Epoch) -> bool:
        """Return whether ``epoch`` is the one that was planned ahead."""
        return (
            self.batch == epoch.batch
            and self.pieces == epoch.pieces
            and self.time.unordered == epoch.time.unordered
        )

    def job(self, common: BatchJob) -> BatchJob:
        """Return a batch with the input of level 0."""
        return replace(
            common,
            batch=self.batch,
            pieces=self.pieces,
            snapshots_due=None,
            time=self.time,
            is_sampled=self.is_sampled,
            commits=(),
        )


def packed_for_tasks(message: Epoch | Ahead, tasks: int) -> Iterator[bytes]:
    """Yield a message for each task, with the pieces of that task alone.

    All pieces for all tasks would be a cost that grows with the square of their number.
    """
    common = pickle.dumps(replace(message, pieces=()))
    readers = len(message.pieces)
    for task in range(tasks):
        own = message.pieces[task] if task < readers else ()
        yield common + pickle.dumps((readers, own))


def unpacked_for_task(packed: bytes, task: int) -> Epoch | Ahead:
    """Return a message; the pieces of other tasks are empty."""
    parts = io.BytesIO(packed)
    message: Epoch | Ahead = pickle.load(parts)
    readers, own = pickle.load(parts)
    pieces = tuple(own if number == task else () for number in range(readers))
    return replace(message, pieces=pieces)
