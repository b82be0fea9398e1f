"""Workers of a resident cluster that are there and cannot go on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.e2e.test_quiet_deaths import Eventually, Quiet, quiet_run
from wallaroo.spark.cluster.excluded_hosts import PROBE_AGAIN_S

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture
def pair(tmp_path: Path, eventually: Eventually) -> Iterator[Quiet]:
    """A run on two workers, whose views are in the folder ``views``."""
    views = f"spark.executorEnv.WALLAROO_VIEW_DIR={tmp_path / 'views'}"
    options = ("--min-workers", "2", "--conf", views)
    with quiet_run(tmp_path, eventually, 2, 1, *options) as run:
        run.process_a_round()
        yield run


def names(run: Quiet) -> list[str]:
    """Return the workers that take part."""
    return [worker["name"] for worker in run.status()["workers"]]


def lose_folder(
    run: Quiet, eventually: Eventually, reason: str, repair: Callable[[], None]
) -> None:
    """See a worker that lost a folder excluded at its next start, and return after ``repair``."""
    holder = run.worker(is_idle=False)
    assert holder is not None
    holder.kill()
    run.process_a_round()
    assert f"worker-1 (127.0.0.2) cannot take part: {reason}" in run.log
    assert names(run) == ["worker-2"]
    time.sleep(PROBE_AGAIN_S * 1.5)  # it is probed again, which may not be seen
    assert "spark ERROR" not in run.log
    repair()
    eventually(lambda: names(run) == ["worker-1", "worker-2"], "worker-1 is back")
    run.process_a_round()


def test_a_worker_without_a_usable_folder_is_named_and_the_others_go_on_until_it_is_back(
    pair: Quiet, tmp_path: Path, eventually: Eventually
) -> None:
    """Each count is there once, whatever happens."""
    view = tmp_path / "views" / "worker-1"
    shutil.rmtree(view)
    view.write_text("in the way")
    reason = f"host 'worker-1' cannot use its folder for views ({view}: Not a directory)"
    lose_folder(pair, eventually, reason, view.unlink)

    local = pair.cluster.folder / "local" / "worker-1"
    aside = local.rename(local.with_name("aside"))
    lose_folder(pair, eventually, f"it cannot use its folder {local}/", lambda: move(aside, local))

    shutil.rmtree(pair.cluster.folder / "work" / "worker-1")
    reason = "the working folder of its Spark executor was removed"
    lose_folder(pair, eventually, reason, lambda: restart(pair))


def move(source: Path, target: Path) -> None:
    source.rename(target)


def restart(run: Quiet) -> None:
    run.cluster.kill_worker("worker-1")
    run.cluster.add_worker("worker-1")


@pytest.mark.parametrize("host", ["resident", "micro-batch"])
def test_a_worker_that_is_stopped_is_named_as_what_the_batch_waits_for(
    tmp_path: Path, eventually: Eventually, host: str
) -> None:
    """Not the other one, whose tasks wait for it."""
    with quiet_run(tmp_path, eventually, 2, 1, "--min-workers", "2", "--host", host) as run:
        run.process_a_round()
        eventually(lambda: run.worker(is_idle=host == "micro-batch"), "a worker process")
        stopped = run.worker(is_idle=host == "micro-batch")
        assert stopped is not None
        stopped.suspend()
        lines = "".join(f"key{number}\n" for number in range(20))
        assert run._sent(lines)
        run.rounds += 1
        try:
            named = "tasks on worker-1 (127.0.0.2)"
            eventually(lambda: named in run.status()["waiting_for"], "the status names worker-1")
            overdue = f"s so far: its {named} have not ended\n"
            eventually(lambda: overdue in run.log, "the log, too")
            assert "worker-2" not in run.status()["waiting_for"]
        finally:
            stopped.resume()
        run.process_a_round()


def test_a_worker_all_of_whose_processes_are_stopped_is_lost_and_the_others_go_on(
    pair: Quiet,
) -> None:
    """Its connections last; Spark gives up its executor for lack of heartbeats."""
    worker = psutil.Process(pair._worker_1())
    stopped = [worker, *worker.children(recursive=True)]
    for process in stopped:
        process.suspend()
    try:
        pair.process_a_round()
        assert "worker-1 has left: its Spark executor has ended" in pair.log
        assert names(pair) == ["worker-2"]
    finally:
        for process in stopped:
            with suppress(psutil.Error):  # Spark has ended it
                process.resume()
