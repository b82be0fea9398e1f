"""State that stays open: the view, and what was written since."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from wallaroo.engine.blocks.keys import encode_key, group_of
from wallaroo.errors import CheckpointError
from wallaroo.instrumentation.tuning import Tuning
from wallaroo.runtime.resident.resident_state import ResidentState
from wallaroo.runtime.resident.view_refresh import Views
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.log.commits import Commit
from wallaroo.state.log.history import History, Version
from wallaroo.state.task_state import TaskState
from wallaroo.state.views.environments import close_environments

GROUPS, STEP = 4, "count"


class Log:
    """A task's state, the log it reads, and the driver that commits."""

    def __init__(self, checkpoint: Checkpoint, refresh_s: float = 3600.0):
        self.checkpoint = checkpoint
        self.opened: list[int] = []  # commits at which the log was read
        self.made = 0  # views
        self.state = self.opened_state(refresh_s)
        self.batch = -1

    def opened_state(self, refresh_s: float) -> ResidentState:
        """A state of this task that nothing has been read of."""
        storage = self.checkpoint.storage
        tuning = Tuning(refresh_s=refresh_s)
        return ResidentState(Views(storage, self._make, self._read_log, tuning))

    @property
    def committed(self) -> Version:
        """The last commit."""
        return Version(self.batch, f"id {self.batch}" if self.batch >= 0 else "")

    def _make(self) -> TaskState:
        self.made += 1
        view = self.checkpoint.view_root
        return TaskState(view, GROUPS, (0, GROUPS), (STEP,), self.checkpoint.id)

    def _read_log(self, committed: int) -> History:
        self.opened.append(committed)
        commits = self.checkpoint.commits
        return History(self.checkpoint.storage, (), committed, commits.read)

    def attempt(self, is_committed: bool = True, **written: str | None) -> None:
        """Run an epoch that writes; commit it."""
        epoch = self.batch + 1
        self.state.begin(epoch, self.committed, range(GROUPS))
        states: Any = {STEP: Changes(written)}
        name = f"{epoch}.0.0.{len(self.opened)}"
        delta = self.state.write_delta(states, name, self.checkpoint.storage, epoch)
        snapshots = self.state.take_snapshots()
        if is_committed:
            assert delta is None or delta.inline
            commit = Commit(
                epoch,
                {},
                (delta,) if delta else (),
                snapshots,
                checkpoint=self.checkpoint.id,
                id=f"id {epoch}",
                parent=f"id {epoch - 1}",
            )
            self.checkpoint.commits.publish(commit)
            self.batch = epoch

    def read(self, key: str) -> bytes | None:
        """Read as the next epoch does; one key, or many at once."""
        self.state.begin(self.batch + 1, self.committed, range(GROUPS))
        reader = self.state.reader(STEP)
        encoded = encode_key(key)
        found = dict(reader.many(group_of(encoded, GROUPS), {encoded: key}))
        assert found == {key: reader(key)}
        return found[key]


class Changes:
    """In place of a ``KeyedState`` that has changed."""

    def __init__(self, written: dict[str, str | None]):
        self._written = written

    def changes(self) -> Iterator[tuple[str, bytes | None]]:
        for key, value in self._written.items():
            yield key, None if value is None else value.encode()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    checkpoint = open_checkpoint(tmp_path, is_durable=False)
    checkpoint.commits.append_from_here()
    made = Log(checkpoint)
    yield made
    made.state.release()
    checkpoint.release()


def test_an_epoch_reads_what_the_one_before_it_wrote(log: Log) -> None:
    log.attempt(a="1", b="1")
    log.attempt(a="2", b=None)

    assert (log.read("a"), log.read("b"), log.read("c")) == (b"2", None, None)
    assert log.opened == [-1]


def test_what_an_attempt_wrote_that_was_not_committed_is_gone(log: Log) -> None:
    log.attempt(a="1")
    log.attempt(is_committed=False, a="2", b="2")
    log.attempt(c="3")

    assert (log.read("a"), log.read("b"), log.read("c")) == (b"1", None, b"3")


def test_a_commit_that_the_task_did_not_see_makes_it_begin_again_from_the_log(log: Log) -> None:
    log.attempt(a="1")
    elsewhere = Log(log.checkpoint)
    elsewhere.batch = log.batch
    elsewhere.attempt(a="2")
    elsewhere.attempt(a="3")
    elsewhere.state.release()
    log.batch = elsewhere.batch

    assert log.read("a") == b"3"
    assert log.opened == [-1, log.batch]


def test_a_view_is_refreshed_beside_the_epochs_and_nothing_is_missed(
    log: Log, eventually: Callable[..., Any]
) -> None:
    log.state = log.opened_state(refresh_s=0.0)

    def is_refreshed() -> bool:
        number = log.batch + 1
        log.attempt(a=str(number), **{f"k{number % 7}": str(number)})
        assert log.read("a") == str(number).encode()
        assert log.read(f"k{number % 7}") == str(number).encode()
        return log.made > 4

    eventually(is_refreshed, "four refreshed views")
    log.state.release()
    again = Log(log.checkpoint)
    again.batch = log.batch
    assert again.read("a") == str(log.batch).encode()
    again.state.release()


def test_a_refreshed_view_is_made_of_what_the_task_wrote_itself(
    log: Log, eventually: Callable[..., Any]
) -> None:
    log.attempt(a="0")
    log.state.release()
    log.state = log.opened_state(refresh_s=0.0)
    log.attempt(a="1", b="1")
    read = list(log.opened)

    def is_refreshed() -> bool:
        log.attempt(a=f"{log.batch}", b=None)
        return log.made > 5

    eventually(is_refreshed, "four refreshed views")
    assert log.opened == read  # the log was not read again
    assert log.read("b") is None
    log.state.release()
    again = Log(log.checkpoint)
    again.batch = log.batch
    assert again.read("a") == str(log.batch - 1).encode()
    assert again.read("b") is None
    again.state.release()


def test_a_refresh_whose_files_were_removed_meanwhile_begins_again_from_the_log(
    log: Log, eventually: Callable[..., Any]
) -> None:
    """A sweep removes what no retained commit needs, a background catch-up may be slower."""
    log.attempt(a="1")
    log.state.release()
    log.state = log.opened_state(refresh_s=0.0)
    log.attempt(b="1")
    close_environments()
    shutil.rmtree(log.checkpoint.view_root)
    failed: list[int] = []

    def read_log(committed: int) -> History:
        if threading.current_thread() is not threading.main_thread() and not failed:
            failed.append(committed)
            raise CheckpointError("the checkpoint lacks a file")
        return log._read_log(committed)

    log.state._views.read_log = read_log

    def has_begun_again() -> bool:
        log.attempt(c=str(log.batch))
        return bool(failed) and len(log.opened) > 2

    eventually(has_begun_again, "the log is read again")
    assert (log.read("a"), log.read("b")) == (b"1", b"1")
    assert log.read("c") == str(log.batch - 1).encode()


def test_what_is_at_another_commit_is_read_out_of_the_log(
    log: Log, eventually: Callable[..., Any]
) -> None:
    log.attempt(a="1", b="1")
    log.state.release()
    log.state = log.opened_state(refresh_s=0.0)
    log.attempt(c="1")
    close_environments()
    shutil.rmtree(log.checkpoint.view_root)
    read = len(log.opened)
    made = log.made

    def is_refreshed() -> bool:
        """A second view is made when the first one is in use."""
        log.attempt(c=str(log.batch))
        return len(log.opened) > read and log.made >= made + 2

    eventually(is_refreshed, "a view made again of the log")
    values = log.read("a"), log.read("b"), log.read("c")
    assert values == (b"1", b"1", str(log.batch - 1).encode())
