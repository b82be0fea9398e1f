"""The sink interface: write in the task, commit after the commit point, abort.

Where it runs: configurations travel (pickled) to workers; writers run in workers; committers run in
the driver.

The law of a sink:

* A task makes one writer per sink and batch, gives it encoded outputs in order (``write``, many
  times), then ``prepare``s it and gets a *token*: a small picklable value that says where the
  output is staged.  A task may run more than once for a batch; every run makes its own writer and
  its own token, and only one run's tokens are accepted.
* After the commit point the driver calls ``commit(batch, tokens)``: tokens in output order, exactly
  once in an undisturbed run, again for the last committed batches after a crash.  ``commit`` must
  therefore be idempotent by batch number.  It must not lose or reorder.
* ``abort(batch, tokens)`` drops what uncommitted tokens staged.  It may never be called (a crash):
  staged output nobody committed must be recognisable and removable later (``recover``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.steps import Encoder

SENT_AT_MAX = 64  # batches whose time of leaving a status keeps


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What a writer is told: whose output, which batch, which task and attempt, where to stage."""

    sink: str  # the sink's unique name in the plan
    batch: int
    task: int
    attempt: str  # fresh for every attempt of a task; use it in names of staged files
    # a directory for this sink beside the checkpoint (shared between workers and driver); it exists
    staging: Path
    is_durable: bool  # whether what prepare() returns must survive a power cut (fsync)


class SinkWriter(ABC):
    """Stages one task's output of one batch."""

    @abstractmethod
    def write(self, outputs: Sequence[bytes]) -> None:
        """Stage these encoded outputs, in order.  Called with a few thousand at a time."""

    @abstractmethod
    def prepare(self) -> Any:
        """Finish staging; return the token (picklable, small, JSON-able), or None where nothing was
        written.
        """

    @abstractmethod
    def abort(self) -> None:
        """Drop what was staged."""


@dataclass(slots=True)
class SinkStatus:
    """What the live table and the log say about one sink."""

    committed_batch: int = -1  # last batch whose output left completely
    outputs: int = 0  # outputs that left
    # e.g. "127.0.0.1:7002 (connection refused)"; empty where nothing is waited for
    waiting_for: str = ""
    pending_bytes: int = 0  # committed output that has not left yet
    # batch -> wall clock when its output left (bounded, last 64)
    sent_at_ns: dict[int, int] = field(default_factory=dict)

    def note_sent(self, batch: int, at_ns: int) -> None:
        """Keep when a batch's output left; the oldest are forgotten."""
        self.sent_at_ns[batch] = at_ns
        while len(self.sent_at_ns) > SENT_AT_MAX:
            del self.sent_at_ns[min(self.sent_at_ns)]

    def copy(self) -> SinkStatus:
        """A snapshot that does not change any more."""
        return replace(self, sent_at_ns=dict(self.sent_at_ns))


class SinkCommitter(ABC):
    """Driver side of one sink for one run."""

    @abstractmethod
    def recover(self, batch: int, tokens: Sequence[Any]) -> None:
        """Before the first batch is staged: finish the last committed one if it was not finished,
        drop what nobody committed.

        ``batch`` is -1 where the checkpoint has none.  Only the last batch's tokens are given: a
        committer whose ``commit`` returns before the output left keeps its own list of the batches
        before it.
        """

    @abstractmethod
    def commit(self, batch: int, tokens: Sequence[Any]) -> None:
        """Make a committed batch's output visible.  May return before it left (an outbox); must
        keep order.
        """

    def abort(self, batch: int, tokens: Sequence[Any]) -> None:  # noqa: B027  # doing nothing is allowed
        """Drop staged output of a batch that did not commit."""

    @abstractmethod
    def status(self) -> SinkStatus:
        """A snapshot for people."""

    def backlog(self) -> int:
        """Committed bytes that have not left yet; the driver starts no batch while it is above its
        bound.
        """
        return self.status().pending_bytes

    @abstractmethod
    def close(self, drain_seconds: float) -> None:
        """Let committed output leave for at most this long, then release everything."""


class SinkConfig(ABC):
    """A sink as users configure it; picklable.  Subclasses are frozen dataclasses in
    ``sinks/``.
    """

    kind: ClassVar[str] = "sink"
    encoder: Encoder[Any] | None

    @property
    @abstractmethod
    def label(self) -> str:
        """What errors and tables call it, e.g. ``tcp 127.0.0.1:7002``."""

    @abstractmethod
    def writer(self, context: WriteContext) -> SinkWriter:
        """Worker side: stage one task's output of one batch."""

    @abstractmethod
    def committer(self, sink: str, staging: Path, is_durable: bool) -> SinkCommitter:
        """Driver side: open whatever commits (a process, a connection, a directory)."""
