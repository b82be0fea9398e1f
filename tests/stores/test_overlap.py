"""A batch that runs while the store has not answered to the commit before it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.stores.conftest import Place
from tests.stores.model import Model, ModelObjects
from tests.stores.stored_driver import expected, new_run
from wallaroo.engine.report import TaskReport
from wallaroo.errors import PeerError, TakenOverError, WallarooError
from wallaroo.instrumentation.tuning import Tuning
from wallaroo.runtime.in_process import InProcessRunner
from wallaroo.runtime.tasks.job import BatchJob
from wallaroo.state.log.commits import Commit
from wallaroo.state.store.objects import NoAnswerError
from wallaroo.state.store.records import Kind
from wallaroo.state.store.store_log import StoreLog
from wallaroo.state.store.stored_checkpoint import StoredCheckpoint

EVENTS = 700
WAIT_S = 400.0


class Overlap:
    """The order of batches and of the store's answers, of which each waits for the next batch.

    Answers to commits that are followed by a sweep, every second one, do not wait: no batch runs
    then.
    """

    def __init__(self, output: Path, monkeypatch: pytest.MonkeyPatch):
        self.refused = -1  # the commit to which the store does not answer
        self.left: dict[int, int] = {}  # by batch: the lines that had left when its tasks were done
        self.outputs: dict[int, int] = {}  # by batch
        self._output = output
        self._ran: dict[int, threading.Event] = {batch: threading.Event() for batch in range(99)}
        self._run_batch = InProcessRunner.run_batch
        self._append = StoredCheckpoint.append
        overlap = self

        def run_batch(runner: InProcessRunner, job: BatchJob) -> list[TaskReport]:
            return overlap._noted(runner, job)

        def append(stored: StoredCheckpoint, commit: Commit) -> None:
            overlap._answered(stored, commit)

        monkeypatch.setattr(InProcessRunner, "run_batch", run_batch)
        monkeypatch.setattr(StoredCheckpoint, "append", append)

    def _noted(self, runner: InProcessRunner, job: BatchJob) -> list[TaskReport]:
        reports = self._run_batch(runner, job)
        if any(job.pieces):  # not the warm-up
            lines = self._output.read_text() if self._output.exists() else ""
            self.left[job.batch] = lines.count("\n")
            self.outputs[job.batch] = sum(sum(report.outputs.values()) for report in reports)
            self._ran[job.batch].set()
        return reports

    def _answered(self, stored: StoredCheckpoint, commit: Commit) -> None:
        is_last = commit.offsets["in"][1] == EVENTS
        if commit.batch % 2 and not is_last:
            assert self._ran[commit.batch + 1].wait(WAIT_S)
        if commit.batch == self.refused:
            raise PeerError("the object store does not answer")
        self._append(stored, commit)


@pytest.fixture
def overlap(tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> Overlap:
    (tmp_path / "in.txt").write_text("".join(f"{number}\n" for number in range(EVENTS)))
    return Overlap(tmp_path / "out.txt", monkeypatch)


def run_to_end(folder: Path, place: Place) -> WallarooError | None:
    run = new_run(folder, place.url)
    run.begin()
    assert run.wait(WAIT_S)
    return run.exception


@pytest.mark.s3
def test_a_batch_runs_while_the_store_has_not_answered(
    tmp_path: Path, place: Place, overlap: Overlap
) -> None:
    """No output leaves before the answer to its commit; all of it does after the last one."""
    assert run_to_end(tmp_path, place) is None

    assert sorted((tmp_path / "out.txt").read_text().splitlines()) == expected(EVENTS)
    batches = sorted(overlap.left)
    assert len(batches) >= 5
    for batch in batches:
        answered = batch - 1 if batch and not batch % 2 else batch
        assert overlap.left[batch] == sum(overlap.outputs[each] for each in range(answered))


@pytest.mark.s3
def test_a_commit_that_fails_takes_the_batch_after_it_along(
    tmp_path: Path, place: Place, overlap: Overlap
) -> None:
    """That was built on it, in this machine's view, too; the next run begins before both."""
    overlap.refused = 3

    error = run_to_end(tmp_path, place)

    assert "the object store does not answer" in str(error)
    assert 4 in overlap.left
    left = (tmp_path / "out.txt").read_text().splitlines()
    assert len(left) == sum(overlap.outputs[batch] for batch in range(3))

    overlap.refused = -1
    assert run_to_end(tmp_path, place) is None
    assert sorted((tmp_path / "out.txt").read_text().splitlines()) == expected(EVENTS)


def test_a_run_that_ends_while_a_commit_is_under_way_notes_no_end(tmp_path: Path) -> None:
    """Both would have the same number."""
    model = Model()
    objects = ModelObjects(model)
    log = StoreLog(objects, sleep=lambda seconds: None)
    assert log.fence(None, "checkpoint")
    create = objects.create
    has_begun = threading.Event()
    answers = threading.Event()

    def slow(key: str, content: bytes) -> None:
        has_begun.set()
        assert answers.wait(WAIT_S)
        create(key, content)

    vars(objects)["create"] = slow
    numbers: list[Any] = []
    append = threading.Thread(target=lambda: numbers.append(log.append(Kind.COMMITS).number))
    append.start()
    assert has_begun.wait(WAIT_S)

    StoredCheckpoint(log, tmp_path).close()

    answers.set()
    append.join(WAIT_S)
    assert numbers == [1]
    newest = log.newest()
    assert newest is not None
    assert newest.head.kind is Kind.COMMITS


def test_a_run_whose_store_is_silent_gives_up_once(tmp_path: Path) -> None:
    """The note of its end is not worth as long a wait as the commit was."""
    objects = ModelObjects(Model())
    waits: list[float] = []
    log = StoreLog(objects, sleep=waits.append)
    assert log.fence(None, "checkpoint")
    assert log.newest() is not None  # it has answered

    def silent(*request: object) -> None:
        raise NoAnswerError("connection refused")

    vars(objects).update(create=silent, get=silent)

    with pytest.raises(PeerError, match="does not answer"):
        log.append(Kind.COMMITS)
    assert 100 < sum(waits) < 130  # docs/storage.md

    waits.clear()
    StoredCheckpoint(log, tmp_path).close()
    assert sum(waits) < 1


def test_a_silent_store_is_named_and_holds_up_none_who_asks_for_the_owner(
    tmp_path: Path,
) -> None:
    """The run's watch asks at intervals, and has the status to refresh meanwhile."""
    objects = ModelObjects(Model())
    has_waited = threading.Event()
    answers = threading.Event()

    def wait(seconds: float) -> None:
        has_waited.set()
        assert answers.wait(WAIT_S)

    log = StoreLog(objects, sleep=wait, named_s=0.0)
    assert log.fence(None, "checkpoint")
    get = objects.get

    def silent(key: str) -> bytes | None:
        if not answers.is_set():
            raise NoAnswerError("503")
        return get(key)

    vars(objects)["get"] = silent
    stored = StoredCheckpoint(log, tmp_path, Tuning(owner_check_s=0.0))

    stored.require()
    assert has_waited.wait(WAIT_S)
    stored.require()
    assert stored.waiting_for == "the object store of model://place, which does not answer (503)"

    answers.set()
    while stored.waiting_for:
        time.sleep(0.01)
    assert StoreLog(objects).fence(log.last, "checkpoint")
    with pytest.raises(TakenOverError):
        require_for(stored, WAIT_S)


def require_for(stored: StoredCheckpoint, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        stored.require()
