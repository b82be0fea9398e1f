"""A system that answers when it is connected to and hangs when output is put."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.connectors.file.files import staged
from tests.unit.sinks.identities import CHECKPOINT, commit_of, history_to
from wallaroo.durable.commit_id import CommitId
from wallaroo.durable.ownership import UNOWNED, AskedOwnership, Ownership
from wallaroo.errors import PeerError, WallarooError
from wallaroo.sinks import RollingSinkConfig
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.queued_committer import QueuedCommitter
from wallaroo.sinks.queued.system import CommitContext, ExternalSystem, Session
from wallaroo.sinks.staging import Staged

Eventually = Callable[..., None]
BOUND_S = 0.5
SILENT = "the replica at b:7200, which confirms nothing (Connection refused)"


class Store(ExternalSystem[Any]):
    """Keeps the numbers of batches; the first ``hanging`` puts hang."""

    errors: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    target = "the store"
    stalled_s = BOUND_S

    def __init__(self, *, is_fencing: bool, can_break_off: bool, hanging: int = 1):
        self.is_fencing = is_fencing
        self.can_break_off = can_break_off
        self.hanging = hanging
        self.kept: list[int] = []
        self.newest = 0  # the session that is not fenced
        self.at_work = 0
        self.most_at_work = 0
        self.let_go = threading.Event()
        self.returned = threading.Event()  # a put that hung
        self.answer: Callable[[], object] = list  # what happens when it is connected to

    def connect(self, checkpoint: str) -> Session:
        self.answer()
        self.newest += 1
        return StoreSession(self, self.newest)

    def waiting_for(self, error: Exception) -> str:
        return f"the store ({error})"

    def pause_s(self, error: Exception) -> float:
        return 0.0

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        return PeerError(str(error))


class StoreSession(Session):
    def __init__(self, store: Store, number: int):
        self._store = store
        self._number = number
        self._is_broken_off = threading.Event()

    def last(self) -> CommitId:
        return CommitId(CHECKPOINT)

    def write(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        store = self._store
        store.at_work += 1
        store.most_at_work = max(store.most_at_work, store.at_work)
        try:
            if store.hanging:
                store.hanging -= 1
                self._hang()
            if store.is_fencing and self._number != store.newest:
                raise OSError("fenced")
            if batch.batch in store.kept:
                return False
            store.kept.append(batch.batch)
            return True
        finally:
            store.at_work -= 1

    def _hang(self) -> None:
        ended = self._is_broken_off if self._store.can_break_off else self._store.let_go
        ended.wait()
        self._store.returned.set()
        if self._store.can_break_off:
            raise OSError("broken off")

    def cancel(self) -> None:
        self._is_broken_off.set()

    def close(self) -> None:
        """Nothing to close."""


class Replica:
    """A second host, which is asked whether a run owns the checkpoint in ``folder``."""

    def __init__(self, folder: Path):
        claim = folder / "claim"
        claim.touch()
        self.answers = threading.Event()
        self.answers.set()
        self.owner = AskedOwnership(
            str(claim),
            claim.stat().st_ino,
            ask=self._ask,
            silence=lambda: "" if self.answers.is_set() else SILENT,
        )

    def _ask(self) -> None:
        assert self.answers.wait(400)


class Output:
    """A committer of a store, and batches for it."""

    def __init__(self, store: Store, folder: Path, owner: Ownership = UNOWNED):
        self._config: Any = RollingSinkConfig(
            str(folder / "out")
        )  # whose outputs are staged as any
        self._staging = folder / "staging"
        context = CommitContext("s", self._staging, is_durable=False)
        self.committer = QueuedCommitter(store, context, points="p")
        self.committer.recover(replace(history_to(), owner=owner), [])

    def commit(self, batch: int) -> None:
        self.committer.commit(commit_of(batch), staged(self._config, self._staging, batch, [b"a"]))

    def is_sent(self) -> bool:
        self.committer.poll()
        return self.committer.backlog() == 0


@pytest.mark.parametrize("can_break_off", [True, False])
def test_output_leaves_once_where_a_session_hangs_that_a_new_one_fences(
    tmp_path: Path,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
    can_break_off: bool,
) -> None:
    store = Store(is_fencing=True, can_break_off=can_break_off, hanging=2)
    output = Output(store, tmp_path)
    with caplog.at_level(logging.WARNING):
        for batch in range(3):
            output.commit(batch)
        eventually(output.is_sent, "the output has left")
    store.let_go.set()  # what hung continues now
    assert store.returned.wait(400)
    output.commit(3)
    eventually(output.is_sent, "the next output has left")
    output.committer.close(60.0)
    assert store.kept == [0, 1, 2, 3]
    ways = "closed and opened again" if can_break_off else "given up and opened again"
    assert "Sink 's': the store (no answer for " in caplog.text
    assert f"; it is {ways}." in caplog.text


def test_a_session_that_no_other_one_fences_is_ended_before_the_next_one_begins(
    tmp_path: Path, eventually: Eventually
) -> None:
    store = Store(is_fencing=False, can_break_off=True, hanging=2)
    output = Output(store, tmp_path)
    for batch in range(3):
        output.commit(batch)
    eventually(output.is_sent, "the output has left")
    output.committer.close(60.0)
    assert store.kept == [0, 1, 2]
    assert store.most_at_work == 1


def test_a_session_that_can_neither_be_ended_nor_fenced_is_named_and_left_alone(
    tmp_path: Path, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(is_fencing=False, can_break_off=False)
    output = Output(store, tmp_path)
    output.commit(0)

    def is_reported() -> bool:
        output.committer.poll()
        return "it cannot be ended; restart the application if it stays so" in caplog.text

    with caplog.at_level(logging.WARNING):
        eventually(is_reported, "the log names it")
    assert output.committer.status().waiting_for.startswith("the store (no answer for ")
    assert output.committer.status().pending_bytes > 0
    assert store.newest == 1
    store.let_go.set()
    eventually(output.is_sent, "the output has left")
    assert output.committer.status().waiting_for == ""
    output.committer.close(60.0)
    assert store.kept == [0]


@pytest.mark.parametrize("is_fencing", [True, False])
def test_a_replica_that_does_not_answer_is_named_in_place_of_the_system(
    tmp_path: Path, eventually: Eventually, caplog: pytest.LogCaptureFixture, is_fencing: bool
) -> None:
    """The run asks it for its ownership before each session and each write."""
    store = Store(is_fencing=is_fencing, can_break_off=False, hanging=0)
    replica = Replica(tmp_path)

    def be_away_with_the_replica() -> None:
        replica.answers.clear()
        store.answer = list
        raise OSError("away")

    store.answer = be_away_with_the_replica
    output = Output(store, tmp_path, replica.owner)
    committer = output.committer
    eventually(lambda: committer.status().waiting_for == SILENT, "a session waits for the replica")
    assert not committer._attempt.silent_s
    replica.answers.set()
    eventually(lambda: committer._attempt.is_at_rest, "the session is open")

    replica.answers.clear()
    output.commit(0)
    eventually(lambda: committer.status().waiting_for == SILENT, "a write waits for the replica")
    assert not committer._attempt.silent_s
    committer.poll()
    assert caplog.messages == []
    replica.answers.set()
    eventually(output.is_sent, "the output has left")
    assert committer.status().waiting_for == ""
    committer.close(60.0)
    assert (store.kept, store.newest) == ([0], 1)


def test_output_leaves_while_a_run_ends_although_a_session_hangs(tmp_path: Path) -> None:
    store = Store(is_fencing=True, can_break_off=False)
    output = Output(store, tmp_path)
    output.commit(0)
    output.committer.close(120.0)
    store.let_go.set()
    assert store.kept == [0]


def refuse() -> None:
    raise PeerError("there is no such table")


def be_away() -> None:
    raise OSError("away")


def checked(store: Store, folder: Path, seconds: float) -> QueuedCommitter:
    committer = Output(store, folder).committer
    try:
        committer.check(seconds)
    finally:
        store.let_go.set()
    return committer


def test_a_target_that_cannot_be_used_is_an_error_before_anything_is_committed(
    tmp_path: Path,
) -> None:
    store = Store(is_fencing=True, can_break_off=True)
    store.answer = refuse
    with pytest.raises(PeerError, match="there is no such table"):
        checked(store, tmp_path, 60)


def test_a_start_does_not_wait_for_a_target_that_is_unavailable(tmp_path: Path) -> None:
    store = Store(is_fencing=True, can_break_off=True)
    store.answer = be_away
    committer = checked(store, tmp_path, 600)
    assert committer.status().waiting_for == "the store (away)"
    committer.close(0)


def test_a_start_waits_for_a_target_that_hangs_for_a_bounded_time(tmp_path: Path) -> None:
    store = Store(is_fencing=True, can_break_off=True)
    store.answer = store.let_go.wait
    checked(store, tmp_path, 0.1).close(0)
