"""StdoutSinkConfig: outputs as lines on the driver's standard output."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.durable.commit_id import CommitHistory, CommitId
from wallaroo.errors import PeerError
from wallaroo.sinks.interface import SinkCommitter, SinkConfig, SinkStatus, SinkWriter, WriteContext
from wallaroo.sinks.staging import StagedWriter, read_staged, remove_orphans, remove_staged
from wallaroo.steps.kinds import Encoder


def whole_lines(outputs: Sequence[bytes]) -> list[bytes]:
    """Return the outputs, each with a newline at its end.

    >>> whole_lines([b"a", b"b\\n"])
    [b'a\\n', b'b\\n']
    """
    return [output if output.endswith(b"\n") else output + b"\n" for output in outputs]


class LineWriter(StagedWriter):
    """A writer that stages outputs, each with a newline at its end."""

    def write(self, outputs: Sequence[bytes]) -> None:
        super().write(whole_lines(outputs))


class StdoutCommitter(SinkCommitter):
    """A committer that prints a batch when it commits."""

    def __init__(self, sink: str, staging: Path):
        self._sink = sink
        self._staging = staging
        self._status = SinkStatus()

    def recover(self, history: CommitHistory, tokens: Sequence[Any]) -> None:
        """Drop what was staged, and never print the last batch twice."""
        remove_orphans(self._staging, set(), history.owner)
        self._status.committed_batch = history.last.batch

    def commit(self, commit: CommitId, tokens: Sequence[Any]) -> None:
        if commit.batch <= self._status.committed_batch:
            return
        staged = [token for token in tokens if token is not None]
        for token in staged:
            self._print(read_staged(self._staging, token).body)
        remove_staged(self._staging, staged)
        self._status.committed_batch = commit.batch
        self._status.outputs += sum(token["outputs"] for token in staged)
        self._status.note_sent(commit.batch, time.time_ns())

    def _print(self, lines: memoryview) -> None:
        try:
            print(bytes(lines).decode(errors="backslashreplace"), end="", flush=True)
        except OSError as error:  # the program behind the pipe has ended, or the disk is full
            raise PeerError(
                f"Sink '{self._sink}' cannot print: {error.strerror}. Let standard output be read "
                f"until the run ends, or go to a disk with space."
            ) from error

    def check_rollback(self, to: CommitId, tokens: Sequence[Any]) -> None:
        """Accept every rollback."""

    def rollback(self, to: CommitId, tokens: Sequence[Any]) -> None:
        """Do nothing: printed output stays, and is printed again when it is committed again."""

    def abort(self, batch: int, tokens: Sequence[Any]) -> None:
        remove_staged(self._staging, tokens)

    def status(self) -> SinkStatus:
        return self._status.copy()

    def close(self, drain_s: float) -> None:
        """Do nothing: there is nothing to release."""


@dataclass(frozen=True, slots=True)
class StdoutSinkConfig(SinkConfig):
    """A sink that prints outputs as lines when their batch commits.

    Best effort, for trying things out: after a crash the last committed batch may be missing.  It
    is never printed twice, unless the checkpoint was rolled back.
    """

    kind: ClassVar[str] = "stdout"
    can_roll_back: ClassVar[bool] = True
    has_staged_tokens: ClassVar[bool] = True
    encoder: Encoder[Any] | None = None
    name: str = field(default="", kw_only=True)

    def writer(self, context: WriteContext) -> SinkWriter:
        return LineWriter(context)

    def committer(self, sink: str, staging: Path, is_durable: bool) -> StdoutCommitter:
        return StdoutCommitter(sink, staging)
