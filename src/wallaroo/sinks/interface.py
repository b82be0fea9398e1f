"""The sink interface: write, commit after the commit point, abort.

Where it runs: configurations are pickled and sent to workers; writers run in workers; committers
run in the driver.

The contract of a sink:

* A task creates one writer per sink and batch, passes it encoded outputs in order (``write``, many
  times), then ``prepare``s it and gets a *token*: a small picklable value that names the place of
  the staged output.  A task may run more than once for a batch; every run creates its own writer
  and its own token, and only one run's tokens are accepted.
* After the commit point the driver calls ``commit(commit, tokens)``: tokens in output order,
  exactly once in an undisturbed run, again for the last commit after a crash.  ``commit`` must
  therefore be idempotent.  It must not lose or reorder.
* A batch's number is used again after a rollback, a commit's identity is not: a sink's records of
  its output name the `CommitId`.  ``recover`` is given the history of the checkpoint and refuses,
  before it changes anything, to continue after output of a commit that is not in it.
* ``abort(batch, tokens)`` drops what uncommitted tokens staged.  A crash may prevent the call:
  staged output that was not committed must be recognisable and removable later (``recover``).
* ``rollback(to, tokens)`` moves the visible output back; see `SinkCommitter.rollback`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.durable.commit_id import CommitHistory, CommitId
from wallaroo.errors import CheckpointError, Problem, WallarooParameterError
from wallaroo.instrumentation.tuning import DEFAULT
from wallaroo.steps.kinds import Encoder

SENT_AT_MAX = 64  # batches whose time of leaving a status keeps
CANNOT_FOLLOW = "what it has sent cannot be taken back"


@dataclass(frozen=True, slots=True)
class WriteContext:
    """The context of a writer: sink, batch, task, attempt and staging directory."""

    sink: str  # the sink's unique name in the plan
    batch: int
    task: int
    attempt: str  # fresh for every attempt of a task; use it in names of staged files
    # a directory for this sink next to the checkpoint (shared between workers and driver); it
    # exists
    staging: Path
    is_durable: bool  # whether what prepare() returns must survive a power cut (fsync)
    # output of at most this size is put into the token
    inline_bytes_max: int = DEFAULT.inline_bytes_max


class SinkWriter(ABC):
    """A writer that stages one task's output of one batch."""

    @abstractmethod
    def write(self, outputs: Sequence[bytes]) -> None:
        """Stage these encoded outputs, in order.  Called with a few thousand at a time."""

    @abstractmethod
    def prepare(self) -> Any:
        """Finish staging; return the token, or None if nothing was written.

        The token is picklable, small and JSON-able.
        """

    @abstractmethod
    def abort(self) -> None:
        """Drop what was staged."""


@dataclass(slots=True)
class SinkStatus:
    """The status of one sink in the live table and the log."""

    committed_batch: int = -1  # last batch whose output was sent completely
    outputs: int = 0  # outputs sent
    # e.g. "127.0.0.1:7002 (connection refused)"; empty if nothing is waited for
    waiting_for: str = ""
    pending_bytes: int = 0  # committed output that has not left yet
    is_gathering: bool = False  # whether pending output is held back until there is more
    # batch -> wall clock when its output was sent (bounded, last 64)
    sent_at_ns: dict[int, int] = field(default_factory=dict)

    def note_sent(self, batch: int, at_ns: int) -> None:
        """Record the time at which a batch's output was sent; forget the oldest."""
        self.sent_at_ns[batch] = at_ns
        while len(self.sent_at_ns) > SENT_AT_MAX:
            del self.sent_at_ns[min(self.sent_at_ns)]

    def copy(self) -> SinkStatus:
        """Return an immutable snapshot."""
        return replace(self, sent_at_ns=dict(self.sent_at_ns))


class SinkCommitter(ABC):
    """The driver's side of one sink for one run."""

    @abstractmethod
    def recover(self, history: CommitHistory, tokens: Sequence[Any]) -> None:
        """Finish an unfinished last commit; drop staged output that was not committed.

        Called before the first batch is staged.

        ``tokens`` are those of ``history.last``, which may be the state before the first commit
        (``history.last.exists`` is false).  They are empty too if this sink had no output in that
        commit, or was not part of the application then.  ``history.tokens`` has those of all
        retained commits.  A committer whose ``commit`` returns before the output is sent keeps its
        own list of earlier commits, at the latest when it is asked to `retain_from` a later one.

        Raises CheckpointError or PeerError, with nothing changed, if the target holds output of
        another checkpoint, or of a commit that is not in ``history``.
        """

    @abstractmethod
    def commit(self, commit: CommitId, tokens: Sequence[Any]) -> None:
        """Make a committed batch's output visible; do nothing for the same commit again.

        May return before the output is sent (an outbox); must keep order.
        """

    def retain_from(self, batch: int) -> None:  # noqa: B027  # only a sink that relies on commits has to act
        """Prepare for the loss of the commits before ``batch``.

        They are forgotten when this returns: ``history.tokens`` of the next ``recover`` may lack
        their tokens.  Called after each ``commit``.
        """

    def passed(self, batch: int, watermark_ns: int) -> None:  # noqa: B027  # few sinks know times
        """Note the watermark of all sources in a commit.

        Commits after ``batch`` have no output of earlier times, late events excepted.  Called after
        ``commit``, for the last one at the start of a run too, if the application has event time.
        """

    def poll(self) -> None:  # noqa: B027  # only what can hang has to act
        """Check on the sending thread or process."""

    def check(self, seconds: float) -> None:  # noqa: B027  # only what connects has to act
        """Wait for the target's first answer after ``recover``, for a limited time.

        Raises WallarooError if the target cannot be used.  An unavailable one is not an error.
        """

    def abort(self, batch: int, tokens: Sequence[Any]) -> None:  # noqa: B027  # doing nothing is allowed
        """Drop staged output of a batch that did not commit."""

    def check_rollback(self, to: CommitId, tokens: Sequence[Any]) -> None:
        """Raise CheckpointError if `rollback` with the same arguments would; change nothing."""
        raise CheckpointError(CANNOT_FOLLOW)

    def rollback(self, to: CommitId, tokens: Sequence[Any]) -> None:
        """Restore the visible output as of commit ``to``, whose tokens these are.

        Called on a new committer instead of ``recover``, with no run on the checkpoint, after
        ``check_rollback`` of every sink.  Without a commit (``to.exists`` is false) everything that
        this checkpoint wrote is removed.  Calling it again does nothing.  A crash in between is
        finished by calling it again; until then ``recover`` either finishes it or refuses.

        Raises CheckpointError before anything is touched if the sink cannot follow.
        """
        raise CheckpointError(CANNOT_FOLLOW)

    @abstractmethod
    def status(self) -> SinkStatus:
        """Return a snapshot for display."""

    def backlog(self) -> int:
        """Return the committed bytes that have not left yet.

        The driver starts no batch while they are above its bound.
        """
        return self.status().pending_bytes

    @abstractmethod
    def close(self, drain_s: float) -> None:
        """Let committed output leave for at most ``drain_s`` seconds, then release everything."""


class SinkConfig(ABC):
    """Picklable configuration of a sink; subclasses are frozen dataclasses."""

    kind: ClassVar[str] = "sink"
    can_roll_back: ClassVar[bool] = False  # whether its committer has `rollback`
    takes_rows: ClassVar[bool] = False  # whether an event that is a dict can be written as it is
    # whether its tokens are those of `StagedWriter`: only such output may be staged before its
    # batch's turn, as it can be removed in the task if another batch comes
    has_staged_tokens: ClassVar[bool] = False
    # the options that identify it in errors: "topic={0.topic!r}" is KafkaSinkConfig(topic='orders')
    shown_options: ClassVar[str] = ""
    target_form: ClassVar[str] = ""  # the format of its target: "{0.host}:{0.port}"
    # the user's name for it, or "": a named sink may move to another target with waiting output; a
    # configuration may do without it
    name: str
    encoder: Encoder[Any] | None

    @property
    def label(self) -> str:
        """Return the name of the sink in errors and tables, e.g. ``tcp 127.0.0.1:7002``."""
        return f"{self.kind} {self.target}".rstrip()

    @property
    def target(self) -> str:
        """Return the place of output, without secrets.

        With the kind, it identifies a sink without a name, so that what waits for one receiver is
        not sent to another.  Checkpoints note it.  Sinks of one target are taken to have one
        receiver.
        """
        return self.target_form.format(self)

    @property
    def address(self) -> str:
        """Return the system of the target, if there may be several; noted as ``target`` is."""
        return ""

    @property
    def staged_form(self) -> str:
        """Describe how staged output must be read, besides ``columns``.

        Checkpoints note it; while output waits, a sink of another form is refused.
        """
        return ""

    @property
    def written_form(self) -> str:
        """Describe the content of its files, or "" if it writes none; checkpoints note it."""
        return ""

    @property
    def bound_by(self) -> str:
        """Return the option for which its receiver has to have all earlier output, or "".

        Such a sink does not move to another target.
        """
        return ""

    @property
    def needs_time(self) -> bool:
        """Return whether its committer waits for watermarks, which requires event times."""
        return False

    @abstractmethod
    def writer(self, context: WriteContext) -> SinkWriter:
        """Return a writer that stages one task's output of one batch; called in a worker."""

    @abstractmethod
    def committer(self, sink: str, staging: Path, is_durable: bool) -> SinkCommitter:
        """Open the committer in the driver, with the process, connection or directory it uses."""

    def decoded(self, output: bytes) -> Any:
        """Return a staged output as the sink writes it: a record, a row; or as it is.

        It is the counterpart of an encoder that packs more than bytes for a sink.
        """
        return output

    def decoded_all(self, outputs: Sequence[bytes]) -> list[Any]:
        """Return staged outputs, `decoded`."""
        return list(map(self.decoded, outputs))

    def _wrong(self, what: str, fix: str) -> WallarooParameterError:
        """Return the error for a parameter that cannot be used."""
        options = self.shown_options.format(self)
        element = type(self).__name__ + (options and f"({options})")
        return WallarooParameterError(Problem(element, "", what, fix))
