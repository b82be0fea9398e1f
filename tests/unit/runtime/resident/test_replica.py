"""Copies of key groups that tasks of other hosts own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.runtime.resident.test_lasting_state import GROUPS, Log
from wallaroo.runtime.resident.replica import Replica
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.log.history import History
from wallaroo.state.views.environments import close_environments
from wallaroo.state.views.view import View


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    checkpoint = open_checkpoint(tmp_path / "checkpoint", is_durable=False)
    checkpoint.commits.append_from_here()
    made = Log(checkpoint)
    yield made
    made.state.release()
    close_environments()
    checkpoint.release()


@pytest.fixture
def replica(log: Log, tmp_path: Path) -> Iterator[Replica]:
    """Of all key groups, in the view of another host."""
    made = Replica(tmp_path / "view", GROUPS, range(GROUPS), log.checkpoint.storage, every_s=0.0)
    yield made
    made.close()


def finished(replica: Replica, committed: int) -> int | None:
    replica.follow(committed)
    turn = replica._turn
    if turn is not None:
        turn.result()
    return replica.newly_held()


def values(log: Log, view: Path) -> list[bytes]:
    """The copy as the next owner opens it, without the log's entries."""
    history = History(log.checkpoint.storage, (), log.batch, log.checkpoint.commits.read)
    opened = View(view, GROUPS, 0, GROUPS)
    try:
        caught_up = opened.catch_up(history)
        assert caught_up.bytes_read == 0, "nothing was missing"
        return sorted(row[2] for group in range(GROUPS) for row in opened.rows(group))
    finally:
        opened.close()


def test_the_copy_follows_the_commits(log: Log, replica: Replica, tmp_path: Path) -> None:
    log.attempt(a="1", b="2")
    assert finished(replica, 0) == 0
    log.attempt(a="3")
    log.attempt(c="4", b=None)
    assert finished(replica, 2) == 2
    assert values(log, tmp_path / "view") == [b"3", b"4"]


def test_a_turn_reports_once_and_only_what_is_new(log: Log, replica: Replica) -> None:
    log.attempt(a="1")
    assert finished(replica, 0) == 0
    assert replica.newly_held() is None
    assert finished(replica, 0) is None


def test_nothing_is_copied_before_the_first_commit(replica: Replica) -> None:
    assert finished(replica, -1) is None


def test_a_turn_waits_for_its_time(log: Log, tmp_path: Path) -> None:
    patient = Replica(tmp_path / "v", GROUPS, range(GROUPS), log.checkpoint.storage, every_s=3600)
    log.attempt(a="1")
    assert finished(patient, 0) == 0
    log.attempt(a="2")
    assert finished(patient, 1) is None
    patient.close()


def test_what_cannot_be_read_is_left_for_a_later_turn(
    log: Log, replica: Replica, tmp_path: Path
) -> None:
    log.attempt(a="1")
    log.attempt(a="2")
    assert finished(replica, 7) is None, "there is no such commit"
    assert finished(replica, 1) == 1
    assert values(log, tmp_path / "view") == [b"2"]
