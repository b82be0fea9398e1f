"""The system that a queued committer puts batches into, and its sessions.

Where it runs: driver, in the committer's thread (``sinks/queued_committer.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from wallaroo.errors import WallarooError
from wallaroo.identity import CommitId
from wallaroo.sinks.pending import PendingBatch
from wallaroo.sinks.staging import Staged

RETRY_S = 0.25  # between two tries
STALLED_S = 60.0  # without a sign of life: then the session is closed and another one is opened
ENDLESS_S = float("inf")  # instead, if no session can be ended from outside
BROKEN_OFF = "no answer, so the connection was closed"


class DeliveryError(Exception):
    """Output that the system did not accept.

    ``args`` are the reason, and whether the system may accept it later.
    """

    def __init__(self, why: str, is_transient: bool):
        super().__init__(why, is_transient)
        self.is_transient = is_transient

    def __str__(self) -> str:
        return str(self.args[0])


class Session(ABC):
    """A connection to the system, in the committer's thread."""

    batches_max: ClassVar[int] = 1  # waiting batches that are put together

    @abstractmethod
    def last(self) -> CommitId:
        """Return the newest commit of this checkpoint that is in the system.

        If there is none, it is the state before the first one.
        """

    @abstractmethod
    def put(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        """Put a batch's outputs in one transaction, ``parts`` in order.

        Returns False if they are there already; then ``parts`` is not touched.
        """

    def put_several(self, batches: Sequence[tuple[PendingBatch, Iterator[Staged]]]) -> list[bool]:
        """Put at most ``batches_max`` batches, in order, in as few transactions as can be.

        Returns for each what `put` returns.
        """
        return [self.put(batch, parts) for batch, parts in batches]

    def pause_s(self) -> float:
        """Return how long to wait before the next put, so that more is put together."""
        return 0.0

    def mark(self) -> object:
        """Return something that changes as long as calls make progress.

        Called from another thread.
        """
        return None

    def cancel(self) -> None:  # noqa: B027  # a system may have nothing to cancel
        """End what the system does at this moment, as far as it can be reached.

        The call that waits for it raises, and the session is closed then.  Called from another
        thread.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class System(ABC):
    """The system that a sink writes to."""

    errors: ClassVar[tuple[type[Exception], ...]]  # what its client raises
    ways_on: ClassVar[str] = ""  # what to do if the checkpoint was rolled back
    # what a session's calls may take without a sign of life
    stalled_s: float = STALLED_S
    # whether output is there once even if an older session's call, which hangs now, ends later:
    # a new session fences the older ones, or the system compares commits in each transaction
    is_fencing: bool = False

    @property
    @abstractmethod
    def target(self) -> str:
        """Return the name of what is written to, such as a table or a topic."""

    @abstractmethod
    def connect(self, checkpoint: str) -> Session:
        """Open a session that writes for a checkpoint.

        Raises one of ``errors``, or WallarooError for what is not transient.
        """

    @abstractmethod
    def waiting_for(self, error: Exception) -> str:
        """Return what is waited for, in a few words, if a retry can help.

        Else returns an empty text.
        """

    def pause_s(self, error: Exception) -> float:
        """Return how long to wait before the next try."""
        return RETRY_S

    @abstractmethod
    def refused(self, error: Exception, batch: PendingBatch | None, staging: Path) -> WallarooError:
        """Return the error for what is not transient; ``batch`` was being put, if any was."""
