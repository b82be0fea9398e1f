"""Sessions of systems without transactions.

Where it runs: driver, in the committer's thread.

Committed outputs are handed over slice by slice, in order, each at least once.

The invariant: outputs are forgotten when `deliver` has returned from the call with them, or has
counted them in `SlicedSession.accepted`, not before.  Within a run a slice that failed is delivered
again without those, and slices before it are not; after a crash the current batch is delivered from
its beginning, with the same slices.  A slice that was refused for some of its outputs is delivered
one by one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from wallaroo.durable.commit_id import CommitId
from wallaroo.errors import PeerError, WallarooError
from wallaroo.network.client_errors import ClientErrors
from wallaroo.sinks.queued import system
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.staging import Staged

BACKOFF_S_MAX = 30.0  # the longest pause between two tries


@dataclass(slots=True)
class Progress:
    """The progress of delivery, across the sessions of one run."""

    batch: int = -1
    done: int = 0  # outputs of the batch that were accepted
    failures: int = 0  # in a row
    apart: int = 0  # outputs before this one are delivered one by one

    def pause_s(self, backoff_s: float) -> float:
        """Return a pause that doubles with every failure."""
        doublings = min(max(0, self.failures - 1), 32)
        return min(BACKOFF_S_MAX, backoff_s * 2.0**doublings)


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive outputs of a commit; ``first`` is the number of the first."""

    commit: CommitId
    first: int
    outputs: Sequence[bytes]

    @property
    def key(self) -> str:
        """Return an id that is the same each time the slice is sent.

        It is the commit's id and the output's number in the commit, or the first and the last
        one's.
        """
        if len(self.outputs) == 1:
            return self.key_of(0)
        return f"{self.key_of(0)}-{self.first + len(self.outputs) - 1}"

    def key_of(self, place: int) -> str:
        """Return the id of the output at a position of the slice."""
        return f"{self.commit.id}-{self.first + place}"


class RefusedSliceError(Exception):
    """A slice of several outputs that was refused as a whole.

    It may be accepted in part.
    """


class SlicedSession(system.Session):
    """A session that delivers batches in slices of at most ``outputs_max``."""

    def __init__(self, checkpoint: str, progress: Progress, outputs_max: int):
        self._checkpoint = checkpoint
        self._progress = progress
        self._outputs_max = outputs_max
        # how many of a slice's first outputs were accepted, though `deliver` raised
        self.accepted = 0

    @abstractmethod
    def deliver(self, part: Slice) -> None:
        """Hand a slice over; raise unless it is known to be accepted.

        After a `RefusedSliceError` its outputs are delivered one by one.
        """

    def last(self) -> CommitId:
        """Return the state before the first commit: the system remembers no commits."""
        return CommitId(self._checkpoint)

    def mark(self) -> object:
        """Return which outputs were accepted last."""
        return self._progress.batch, self._progress.done

    def write(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        """Hand over output that was not accepted yet.  Raises what `deliver` raised."""
        progress = self._progress
        if progress.batch != batch.batch:
            progress.batch = batch.batch
            progress.done = 0
            progress.apart = 0
        outputs = [bytes(output) for part in parts for output in part.outputs()]
        while progress.done < len(outputs):
            outputs_max = 1 if progress.done < progress.apart else self._outputs_max
            some = outputs[progress.done : progress.done + outputs_max]
            self.accepted = 0
            try:
                self.deliver(Slice(batch.commit, progress.done, some))
            except RefusedSliceError:
                progress.apart = progress.done + len(some)
                progress.failures = 0
                continue
            except Exception:
                progress.done += self.accepted
                progress.failures += 1
                raise
            progress.done += len(some)
            progress.failures = 0
        return True


class SlicedSystem(system.ExternalSystem[system.Config]):
    """A system that accepts outputs one by one, and has no transactions."""

    session: ClassVar[Any]  # the class of its sessions

    def __init__(self, config: system.Config, context: system.CommitContext):
        super().__init__(config, context)
        self._progress = Progress()

    def connect(self, checkpoint: str) -> system.Session:
        opened: system.Session = self.session(self._config, self._progress, checkpoint)
        return opened

    def retry_text(self, place: str, error: object, retries: int | None, pause_s: float) -> str:
        """Return the failure and the next retry; empty after the last of ``retries``."""
        failures = self._progress.failures
        if retries is not None and failures > retries:
            return ""
        of = "" if retries is None else f" of {retries}"
        return f"{place} ({error}; retry {failures}{of} in {pause_s:g} s)"


class AckingSystem(SlicedSystem[system.Config]):
    """A server that confirms outputs one by one, and has no transactions.

    ``refusal`` states in words how it treats output that it does not accept, with ``{output}`` and
    ``{target}``. ``ways_to_correct`` states the user's remedies before the next run.
    """

    client: ClassVar[ClientErrors]
    refusal: ClassVar[str]
    ways_to_correct: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.errors = (*cls.client.types, system.DeliveryError)

    @property
    @abstractmethod
    def place(self) -> str:
        """Return the server's name in errors."""

    def waiting_for(self, error: Exception) -> str:
        if isinstance(error, system.DeliveryError):
            passes = error.is_transient
        else:
            passes = self.client.is_transient(error)
        return f"{self.place} ({self.client.sentence(error)})" if passes else ""

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        output = f"batch {batch.batch}" if batch else "output"
        what = self.refusal.format(output=output, target=self.target)
        return PeerError(
            f"{self.place} {what} of sink '{self._context.sink}': {self.client.sentence(error)}. "
            f"Nothing is lost: committed output waits in {self._context.staging}. "
            f"{self.ways_to_correct}, then run again."
        )
