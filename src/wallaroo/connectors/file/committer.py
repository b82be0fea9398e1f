"""The common base of the committers of both kinds of file sinks.

They share the order of checks, and the handling of staged files.

The invariant: content that this sink did not write is never truncated, overwritten or mistaken for
its own. All checks precede any change: the target is empty, or its content names this checkpoint,
this sink and a commit of its history; otherwise the run is refused. The one exception is explicit:
``overwrite=True`` with a checkpoint that has committed nothing.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wallaroo.durable.commit_id import CommitHistory, CommitId
from wallaroo.durable.folders import make_private
from wallaroo.durable.ownership import UNOWNED
from wallaroo.durable.whole_file import remove_unfinished, sync_folder
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.sinks.interface import SinkCommitter, SinkStatus
from wallaroo.sinks.staging import StagedToken, remove_orphans, remove_staged
from wallaroo.sinks.target_record import (
    LEFT,
    TargetRecord,
    begin_target,
    has_left,
    last_left,
    note_left,
    read_target,
)


@dataclass(frozen=True, slots=True)
class FileTarget:
    """One file sink of one run, with its target and its options."""

    sink: str
    target: Path
    staging: Path
    is_durable: bool
    is_overwriting: bool


class FileCommitter(SinkCommitter):
    """A committer that publishes staged output at a target, once per commit."""

    def __init__(self, place: FileTarget):
        make_private(place.staging, is_durable=place.is_durable)
        self._place = place
        self._status = SinkStatus()
        self._record: TargetRecord | None = None  # the target of output until now
        self._owner = UNOWNED

    @property
    @abstractmethod
    def _folder(self) -> Path:
        """Return the folder in which output gets its name."""

    @abstractmethod
    def _inspect(self, history: CommitHistory, staged: Sequence[StagedToken]) -> None:
        """Inspect the target; raise if it cannot be continued.

        Changes nothing.  ``staged`` is the output of the last commit.
        """

    @abstractmethod
    def _begin(self) -> None:
        """Remove the remains of a crash; record that the target belongs to this sink."""

    @abstractmethod
    def _holds(self, commit: CommitId) -> bool:
        """Return whether the commit's output is at the target, as far as the target shows it."""

    @abstractmethod
    def _publish(self, commit: CommitId, staged: Sequence[StagedToken]) -> None:
        """Make the commit's output visible."""

    @abstractmethod
    def _wipe(self) -> None:
        """Remove all output from the target."""

    @abstractmethod
    def _inspect_rollback(self, to: CommitId) -> None:
        """Determine the changes of `_roll_back`; raise if it is impossible."""

    @abstractmethod
    def _roll_back(self, to: CommitId) -> None:
        """Roll the output back, unless already done."""

    def recover(self, history: CommitHistory, tokens: Sequence[Any]) -> None:
        """Publish the last commit if it was not finished; remove uncommitted output."""
        place = self._place
        last = history.last
        self._owner = history.owner
        staged: list[StagedToken] = [token for token in tokens if token is not None]
        with self._disk_errors():
            self._record = record = read_target(place.staging, history, tokens)
            if place.is_overwriting and not last.exists:
                self._owner.require()
                self._wipe()
            self._inspect(history, staged)
            begin_target(place.staging, record, self._target_name, last, place.is_durable)
            self._owner.require()  # bytes after it may be another run's output by now
            remove_unfinished(place.staging / LEFT)
            self._begin()
            if place.is_durable:  # a run may have died between rename and sync
                sync_folder(place.staging)
                sync_folder(self._folder)
        if staged and not self._holds(last) and not has_left(place.staging, last):
            self._owner.require()
            self.commit(last, staged)
        self._status.committed_batch = last.batch
        remove_orphans(place.staging, set(), history.owner)

    def commit(self, commit: CommitId, tokens: Sequence[Any]) -> None:
        if commit.batch <= self._status.committed_batch:
            return
        staged: list[StagedToken] = [token for token in tokens if token is not None]
        if staged:
            with self._disk_errors():
                self._publish(commit, staged)
                note_left(self._place.staging, commit, self._owner.epoch)
                remove_staged(self._place.staging, staged)
            self._status.note_sent(commit.batch, time.time_ns())
        self._status.committed_batch = commit.batch
        self._status.outputs += sum(token["outputs"] for token in staged)

    def check_rollback(self, to: CommitId, tokens: Sequence[Any]) -> None:
        """Raise CheckpointError if the output cannot be moved back; change nothing."""
        record = read_target(self._place.staging, CommitHistory(to.checkpoint, (to,)), tokens)
        if record is not None and record.target != self._target_name:
            raise CheckpointError(
                f"its output is in {record.target}, the configuration says {self._place.target}: "
                f"roll back with the path that it was run with"
            )
        if record is not None and record.before and record.since.batch > to.batch:
            raise CheckpointError(
                f"until batch {record.since.batch} its output went to {record.before}: it can be "
                f"moved back to that batch only"
            )
        with self._disk_errors():
            self._inspect_rollback(to)

    def rollback(self, to: CommitId, tokens: Sequence[Any]) -> None:
        self.check_rollback(to, tokens)
        with self._disk_errors():
            self._roll_back(to)
            left = last_left(self._place.staging)
            if left is not None and to.exists and left.batch > to.batch:
                note_left(self._place.staging, to, "")  # also if its output was moved away since

    def abort(self, batch: int, tokens: Sequence[Any]) -> None:
        remove_staged(self._place.staging, tokens)

    def status(self) -> SinkStatus:
        return self._status.copy()

    def close(self, drain_s: float) -> None:
        """Do nothing: a commit is visible when it returns, and nothing is held."""

    def _left_here(self) -> CommitId | None:
        """Return the last commit with output that is known to have been written to the target."""
        record = self._record
        left = last_left(self._place.staging)
        if record is None or left is None or record.target != self._target_name:
            return None
        return left if left.batch > record.since.batch else None

    @property
    def _target_name(self) -> str:
        return str(self._place.target.absolute())

    def _foreign(self, what: str, history: CommitHistory, moved: str = "it") -> PeerError:
        """Return the error for output that is not this checkpoint's."""
        ways = [f"Move {moved} to another place", "choose another path"]
        if not history.last.exists:
            ways.append("set overwrite=True to delete it")
        listed = f"{', '.join(ways[:-1])}, or {ways[-1]}"
        return PeerError(f"{self._place.target} holds {what}. Nothing was changed. {listed}.")

    def _foreign_sink(self, sink: str) -> PeerError:
        return PeerError(
            f"{self._place.target} is written by sink '{sink}' of this application, so sink "
            f"'{self._place.sink}' cannot write it. Give every file sink a path of its own."
        )

    def _not_in_history(self, batch: int, history: CommitHistory) -> CheckpointError:
        return CheckpointError(
            f"{self._place.target} holds output of batch {batch} from a commit that its checkpoint "
            f"does not have: the checkpoint was rolled back or is an older copy, and "
            f"{_end_of(history)}. Nothing was changed. Roll the sinks back too (wallaroo state "
            f"rollback), use the newer checkpoint, or move the output to another place: this sink "
            f"then begins with batch {history.last.batch + 1}."
        )

    def _moved_back(self, history: CommitHistory) -> CheckpointError:
        return CheckpointError(
            f"{self._place.target} was rolled back, but its checkpoint was not: it "
            f"{_end_of(history)}. Finish the rollback: run the same wallaroo state rollback again."
        )

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise PeerError(
                f"The file sink cannot write {error.filename or self._place.target}: "
                f"{error.strerror or error}. Free space or correct the permissions, then run again."
            ) from error


def _end_of(history: CommitHistory) -> str:
    last = history.last
    return f"ends with batch {last.batch}" if last.exists else "has committed nothing"


def make_folder(path: Path, is_durable: bool) -> None:
    """Create a folder for users' files and its missing parents, readable as their umask allows."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        if is_durable:
            sync_folder(folder.parent)
