"""The sink interface: write in the task, commit after the commit point, abort.

Where it runs: configurations travel (pickled) to workers; writers run in workers; committers run in
the driver.

The contract of a sink:

* A task makes one writer per sink and batch, gives it encoded outputs in order (``write``, many
  times), then ``prepare``s it and gets a *token*: a small picklable value that says where the
  output is staged.  A task may run more than once for a batch; every run makes its own writer and
  its own token, and only one run's tokens are accepted.
* After the commit point the driver calls ``commit(commit, tokens)``: tokens in output order,
  exactly once in an undisturbed run, again for the last commit after a crash.  ``commit`` must
  therefore be idempotent.  It must not lose or reorder.
* A batch's number is used again after a rollback, a commit's identity is not: what a sink remembers
  about its output, it remembers by `CommitId`.  ``recover`` is given the history of the checkpoint
  and refuses, before it changes anything, to go on after output of a commit that is not part of it.
* ``abort(batch, tokens)`` drops what uncommitted tokens staged.  It may never be called (a crash):
  staged output that was not committed must be recognisable and removable later (``recover``).
* ``rollback(to, tokens)`` moves the visible output back; see `SinkCommitter.rollback`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.errors import CheckpointError
from wallaroo.identity import CommitHistory, CommitId
from wallaroo.steps import Encoder
from wallaroo.tuning import DEFAULT

SENT_AT_MAX = 64  # batches whose time of leaving a status keeps
CANNOT_FOLLOW = "what it has sent cannot be taken back"


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What a writer is given: whose output, which batch, which task and attempt, where to stage."""

    sink: str  # the sink's unique name in the plan
    batch: int
    task: int
    attempt: str  # fresh for every attempt of a task; use it in names of staged files
    # a directory for this sink beside the checkpoint (shared between workers and driver); it exists
    staging: Path
    is_durable: bool  # whether what prepare() returns must survive a power cut (fsync)
    inline_bytes_max: int = DEFAULT.inline_bytes_max  # what may ride in the token


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
    is_gathering: bool = False  # whether that is kept until there is more
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
    def recover(self, history: CommitHistory, tokens: Sequence[Any]) -> None:
        """Before the first batch is staged: finish the last commit if it was not finished, drop
        what was staged and not committed.

        ``tokens`` are those of ``history.last``, which may be the state before the first commit
        (``history.last.exists`` is false).  They are empty too where this sink had no output in
        that commit, or was not part of the application then.  ``history.tokens`` has those of all
        retained commits.  A committer whose ``commit`` returns before the output left keeps its own
        list of earlier commits, at the latest when it is asked to `retain_from` a later one.

        Raises CheckpointError or PeerError, with nothing changed, where the target holds output of
        another checkpoint, or of a commit that is not in ``history``.
        """

    @abstractmethod
    def commit(self, commit: CommitId, tokens: Sequence[Any]) -> None:
        """Make a committed batch's output visible; again for the same commit does nothing.

        May return before the output left (an outbox); must keep order.
        """

    def retain_from(self, batch: int) -> None:  # noqa: B027  # only a sink that relies on commits has to act
        """Commits before ``batch`` are forgotten when this returns: ``history.tokens`` of the next
        ``recover`` may lack theirs.  Called after each ``commit``.
        """

    def poll(self) -> None:  # noqa: B027  # only what can hang has to act
        """Look after what sends.  Called about once a second while the run lasts."""

    def abort(self, batch: int, tokens: Sequence[Any]) -> None:  # noqa: B027  # doing nothing is allowed
        """Drop staged output of a batch that did not commit."""

    def check_rollback(self, to: CommitId, tokens: Sequence[Any]) -> None:
        """Raise CheckpointError where `rollback` with the same arguments would; change nothing."""
        raise CheckpointError(CANNOT_FOLLOW)

    def rollback(self, to: CommitId, tokens: Sequence[Any]) -> None:
        """Move the visible output back to what it was after commit ``to``, whose tokens these are.

        Called on a new committer instead of ``recover``, with no run on the checkpoint, after
        ``check_rollback`` of every sink.  Without a commit (``to.exists`` is false) everything that
        this checkpoint wrote is removed.  Calling it again does nothing.  A crash in between is
        finished by calling it again; until then ``recover`` either finishes it or refuses.

        Raises CheckpointError before anything is touched where the sink cannot follow.
        """
        raise CheckpointError(CANNOT_FOLLOW)

    @abstractmethod
    def status(self) -> SinkStatus:
        """A snapshot for display."""

    def backlog(self) -> int:
        """Committed bytes that have not left yet; the driver starts no batch while it is above its
        bound.
        """
        return self.status().pending_bytes

    @abstractmethod
    def close(self, drain_s: float) -> None:
        """Let committed output leave for at most this long, then release everything."""


class SinkConfig(ABC):
    """A sink as users configure it; picklable.  Subclasses are frozen dataclasses in
    ``sinks/``.
    """

    kind: ClassVar[str] = "sink"
    can_roll_back: ClassVar[bool] = False  # whether its committer has `rollback`
    # as the user calls it, or "": a sink with a name may move to another target with what waits; a
    # configuration may do without it
    name: str
    encoder: Encoder[Any] | None

    @property
    @abstractmethod
    def label(self) -> str:
        """What errors and tables call it, e.g. ``tcp 127.0.0.1:7002``."""

    @property
    def target(self) -> str:
        """Return the place of output, without secrets: with the kind, a sink without a name is
        known by it, so that what waits for one receiver is not sent to another.  Checkpoints
        note it.  Sinks of one target are taken to have one receiver.
        """
        return ""

    @property
    def address(self) -> str:
        """At which system the target is, if there may be several; noted as ``target`` is."""
        return ""

    @abstractmethod
    def writer(self, context: WriteContext) -> SinkWriter:
        """Worker side: stage one task's output of one batch."""

    @abstractmethod
    def committer(self, sink: str, staging: Path, is_durable: bool) -> SinkCommitter:
        """Driver side: open whatever commits (a process, a connection, a directory)."""
