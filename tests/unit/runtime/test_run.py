"""A run's life, on a host without Spark: its start and its phases, how it is watched, how it
ends.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime import applications
from tests.unit.runtime.applications import new_generated_run, new_run, until
from wallaroo.cli.run.text import log_facts, log_line
from wallaroo.errors import CheckpointError, InternalError, PeerError
from wallaroo.monitoring.metrics.status import RunState, WorkerStatus
from wallaroo.runtime.in_process import InProcessHost


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Closed: events wait until it is opened."""
    applications.GATE.clear()
    yield applications.GATE
    applications.GATE.set()


class Waiting(InProcessHost):
    """A host whose start waits for something that does not come."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupted = threading.Event()

    def open(self, site: Any, enter: Any) -> None:
        enter("starting Spark")
        assert self.interrupted.wait(400)
        raise PeerError("Spark did not start")

    def interrupt(self) -> None:
        super().interrupt()
        self.interrupted.set()


class Leaving(InProcessHost):
    """A host with workers that can be taken away."""

    def __init__(self) -> None:
        super().__init__()
        self.members = tuple(WorkerStatus(f"worker-{n}", f"host-{n}", 1, 1, (n,)) for n in (0, 1))

    def workers(self) -> tuple[WorkerStatus, ...]:
        return self.members


def test_workers_that_leave_in_mid_batch_are_no_longer_in_status_and_log(
    tmp_path: Path, gate: threading.Event
) -> None:
    host = Leaving()
    run = new_run(tmp_path, host)
    run.start()
    until(lambda: "| 2 workers: " in log_line(run.status()))
    host.members = ()
    until(lambda: not run.status().workers)
    assert "2 workers" not in log_line(run.status())
    assert log_facts(run.status())["workers"] == 0
    run.stop()
    gate.set()
    assert run.wait(400)


def test_a_run_whose_input_ends_is_finished_with_everything_written(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    run.start()
    assert run.wait(400)
    assert run.exception is None
    assert run.status().state == "finished"
    assert (tmp_path / "out.txt").read_text() == (tmp_path / "in.txt").read_text()


def test_a_run_that_was_asked_to_stop_is_stopped(tmp_path: Path, gate: threading.Event) -> None:
    run = new_run(tmp_path)
    run.start()
    run.stop()
    gate.set()
    assert run.wait(400)
    assert (run.exception, run.status().state) == (None, "stopped")


def test_a_run_whose_end_fails_has_ended_with_that_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a state that the run cannot change to, then no caller waits for ever."""
    run = new_run(tmp_path)
    enter = run.meter.enter

    def refuse(state: RunState) -> None:
        if state is RunState.FINISHED:
            raise InternalError("a run that is running cannot become finished")
        enter(state)

    monkeypatch.setattr(run.meter, "enter", refuse)
    run.begin()
    assert run.wait(20)
    assert isinstance(run.exception, InternalError)


def test_a_stop_during_the_start_ends_it_and_is_no_failure(tmp_path: Path) -> None:
    run = new_run(tmp_path, Waiting())
    run.begin()
    until(lambda: run.status().doing == "starting Spark")
    assert not run.wait_started(0.01)
    assert run.status().doing_s > 0

    run.stop()

    assert run.wait(400)
    assert run.wait_started()
    assert (run.exception, run.status().state, run.status().doing) == (None, "stopped", "")
    assert not run._spec.site.scratch.exists()


def test_a_stop_ends_though_the_batch_under_way_does_not(
    tmp_path: Path, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not committed, and the next run begins with it."""
    checkpoint = tmp_path / "state"
    run = new_run(tmp_path, checkpoint=checkpoint, stop_s=0.2)
    run.start()
    until(lambda: run.status().tasks)
    run.stop()
    assert run.wait(400)
    assert run.exception is None
    assert "did not end within 0.2 s, or lost its tasks, and was cancelled" in caplog.text
    assert not (tmp_path / "out.txt").exists() or not (tmp_path / "out.txt").read_text()


def test_a_batch_that_is_overdue_is_reported_in_the_status_and_in_the_log(
    tmp_path: Path, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    class Describing(InProcessHost):
        def stuck(self, batch: int) -> tuple[str, ...]:
            return ("task 0 of level 0 is at app.py:7 in slow()",)

    run = new_run(tmp_path, Describing(), overdue_s=0.2)
    run.start()
    until(lambda: "batch 0 to end; task 0 of level 0 is at app.py:7" in run.status().waiting_for)
    gate.set()
    assert run.wait(400)
    assert run.status().state == "finished"
    assert [record for record in caplog.messages if "batch 0 has taken" in record]
    assert run.status().waiting_for == ""


def test_a_recovered_run_knows_after_which_batch_it_began(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wallaroo")
    first = new_run(tmp_path, checkpoint=tmp_path / "state")
    first.start()
    assert first.wait(400)
    assert first.status().recovered_batch == -1
    second = new_run(tmp_path, checkpoint=tmp_path / "state")
    second.start()
    assert second.wait(400)
    assert second.status().recovered_batch == first.status().last_batch
    assert "continuing from commit" in caplog.text


def test_a_scratch_folder_that_is_removed_ends_the_run_with_its_own_message(
    tmp_path: Path, gate: threading.Event
) -> None:
    run = new_run(tmp_path, stop_s=0.2)
    run.start()
    scratch = run._spec.site.scratch
    removed = scratch.rename(scratch.with_name(f"{scratch.name}-removed"))  # all of it at once
    assert run.wait(400)
    assert isinstance(run.exception, PeerError)
    assert "was removed while it ran" in str(run.exception)
    assert run.status().state == "failed"
    shutil.rmtree(removed)


def test_a_sink_refuses_before_the_host_is_started(tmp_path: Path) -> None:
    """Spark takes seconds to start."""
    (tmp_path / "out.txt").write_text("of another run")
    host = Waiting()
    run = new_run(tmp_path, host)
    with pytest.raises((CheckpointError, PeerError)):
        run.start()
    assert not host.interrupted.is_set()


def test_latencies_and_rates_do_not_count_the_start(tmp_path: Path) -> None:
    class Slow(InProcessHost):
        def open(self, site: Any, enter: Any) -> None:
            super().open(site, enter)
            until(lambda: (site.root / "spool" / "in.spool" / "head").exists())
            threading.Event().wait(1.5)

    run = new_generated_run(tmp_path, Slow())
    run.start()
    assert run.wait(400)
    (latency,) = run.status().latency
    assert latency.count == 100
    assert latency.max_ms < (run.status().elapsed_s - 1.5) * 1e3 + 100
    assert run.status().running_at - run.status().started_at > 1.5


def test_an_error_while_closing_is_reported_after_everything_else_is_closed(
    tmp_path: Path,
) -> None:
    class Broken(InProcessHost):
        def close(self) -> None:
            raise OSError("no")

    run = new_run(tmp_path, Broken())
    run.begin()
    assert run.wait(400)
    assert "while closing: OSError: no" in str(run.exception)
    assert not run._spec.site.scratch.exists()
