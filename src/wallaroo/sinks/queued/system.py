"""The external system that a queued committer writes to, and its sessions.

Where it runs: driver, in the committer's thread (``sinks/queued/queued_committer.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from wallaroo.durable.commit_id import CommitId
from wallaroo.errors import WallarooError
from wallaroo.sinks.interface import SinkConfig
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.staging import Staged

RETRY_S = 0.25  # between two tries
STALLED_S = 60.0  # without a sign of life; then the session is closed and another one is opened
ENDLESS_S = float("inf")  # for sessions that cannot be ended from outside
BROKEN_OFF = "no answer, so the connection was closed"
Config = TypeVar("Config", bound=SinkConfig)


@dataclass(frozen=True, slots=True)
class CommitContext:
    """The context of a committer: sink, outbox and durability."""

    sink: str  # the sink's unique name in the plan
    staging: Path  # the outbox: a directory for this sink next to the checkpoint
    is_durable: bool  # whether what is confirmed must survive a power cut


class DeliveryError(Exception):
    """Output that was not accepted.

    ``args``: the reason, and whether a retry may help.
    """

    def __init__(self, why: str, is_transient: bool):
        super().__init__(why, is_transient)
        self.is_transient = is_transient

    def __str__(self) -> str:
        return str(self.args[0])


class Session(ABC):
    """A connection to the system, in the committer's thread."""

    batches_max: ClassVar[int] = 1  # waiting batches that are written together

    @abstractmethod
    def last(self) -> CommitId:
        """Return the newest commit of this checkpoint that is in the system.

        If there is none, it is the state before the first one.
        """

    @abstractmethod
    def write(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        """Write a batch's outputs in one transaction, ``parts`` in order.

        Returns False if they are there already; then ``parts`` is not touched.
        """

    def write_several(self, batches: Sequence[tuple[PendingBatch, Iterator[Staged]]]) -> list[bool]:
        """Write at most ``batches_max`` batches, in order, in as few transactions as possible.

        Returns for each what `write` returns.
        """
        return [self.write(batch, parts) for batch, parts in batches]

    def pause_s(self) -> float:
        """Return how long to wait before the next write, so that more is written at once."""
        return 0.0

    def mark(self) -> object:
        """Return a value that changes while calls progress; called from another thread."""
        return None

    def cancel(self) -> None:  # noqa: B027  # a system may have nothing to cancel
        """End the system's current call, as far as it can be reached.

        The call that waits for it raises, and the session is closed then.  Called from another
        thread.
        """

    def close(self) -> None:  # noqa: B027  # there may be no connection
        """Close the connection."""


class ExternalSystem(ABC, Generic[Config]):
    """The system outside of the application that a sink writes to."""

    errors: ClassVar[tuple[type[Exception], ...]]  # errors that its client raises
    ways_on: ClassVar[str] = ""  # the remedy if the checkpoint was rolled back
    # how long a session's calls may take without a sign of life
    stalled_s: float = STALLED_S
    # whether output is written once even if a hanging call of an older session completes later: a
    # new session fences the older ones, or the system compares commits in each transaction
    is_fencing: bool = False
    # the name of the record of commits that the system keeps together with the output; empty if it
    # keeps none, or if entries vanish while the output stays
    ledger: str = ""
    # whether output of the checkpoint is in the ledger, so that a missing target was removed; known
    # when a session is opened
    is_written: bool = False
    # what to do to continue without output that the ledger lacks
    without_it: ClassVar[str] = "name another ledger="

    def __init__(self, config: Config, context: CommitContext):
        """Keep both; a subclass raises PeerError for an invalid configuration."""
        self._config = config
        self._context = context

    @property
    def target(self) -> str:
        """Return the name of the target, such as a table or a topic."""
        return self._config.target

    @property
    def place(self) -> str:
        """Return the name of the system, such as a server's or a file's, in waits."""
        return self.target

    @abstractmethod
    def connect(self, checkpoint: str) -> Session:
        """Open a checkpoint's session.  Raises ``errors``; WallarooError if permanent."""

    @abstractmethod
    def waiting_for(self, error: Exception) -> str:
        """Return in a few words the reason to wait, if a retry can help, else ""."""

    def pause_s(self, error: Exception) -> float:
        """Return how long to wait before the next attempt."""
        return RETRY_S

    @abstractmethod
    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        """Return the error for a permanent failure; ``batch`` was being written, if any."""
