"""The resident host from end to end, with real processes."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.conformance.apps import windowed
from tests.conformance.apps.shapes import build
from tests.conformance.apps.steps import pass_on, sink, source
from tests.conformance.cases import Case, exactly, in_any_order, several_keys_case
from tests.conformance.runners import REPOSITORY
from tests.unit.runtime.resident.processes import Hosts, ProcessJob, resident_host
from wallaroo.api.application import Application
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.connectors.files.source import FilesSourceConfig
from wallaroo.instrumentation import tracing
from wallaroo.instrumentation.tuning import Pace, Tuning
from wallaroo.options import RunOptions
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.runtime.placement import Member
from wallaroo.spark import base_host as spark_host
from wallaroo.spark.resident import generations
from wallaroo.testing import run_local

# a mark for each epoch: a driver that looks ahead scans all of the file, mark by mark
SMALL = Tuning(Pace(events_first=16, events_min=16, events_max=64), mark_bytes=1500)


# output is staged in files, however small
STAGED = replace(SMALL, inline_bytes_max=0)


def prepared(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rounds: int, tuning: Tuning = SMALL
) -> tuple[Run, Case]:
    """A run with many small epochs, on processes, that has not begun; and what it is to give."""
    return of_case(several_keys_case(rounds, digits=100), folder, monkeypatch, tuning)


def of_case(
    case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch, tuning: Tuning
) -> tuple[Run, Case]:
    """A run of a case, that has not begun; and the case."""
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in case.lines["in"]))
    options = RunOptions(
        tuning=tuning,
        checkpoint=folder / "state",
        status_address=None,
        latency="low",
        module_paths=(REPOSITORY,),
        key_groups=4,
    )
    return Run(case.build(folder, folder), options, resident_host(monkeypatch, options)), case


def copied(inputs: Path, outputs: Path) -> Application:
    return build("copies", source(inputs, "in").to(pass_on).to_sink(sink(outputs, "out")))


def check(case: Case, folder: Path) -> None:
    """See that its output is right."""
    case.check({"out": (folder / "out.txt").read_text().splitlines()})


def test_a_task_that_is_killed_begins_again_with_all_others_and_no_output_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    """Three shuffles, state in two levels, two processes, one of which dies between batches; all
    along, tasks run ahead of what is committed.
    """
    trace = tmp_path / "trace"
    monkeypatch.setenv(tracing.VARIABLE, str(trace))
    run, case = prepared(tmp_path, monkeypatch, rounds=500)
    run.start()
    eventually(lambda: run.status().batches >= 1, "a batch")
    killed = ProcessJob.all[0].processes[1].pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)

    assert run.wait(400)

    assert run.exception is None
    assert run.status().state == "finished"
    check(case, tmp_path)
    assert len(ProcessJob.all) == 2
    assert CheckpointReader(tmp_path / "state").at().commit.batch >= 1
    assert trace.read_text().count("\ttask.ahead\n") > run.status().batches / 2


def clicks(count: int) -> list[str]:
    """Clicks in event time, out of order, some of them late."""
    chance = random.Random(7)
    lag_s = 4 * windowed.LATE_S
    return [
        f"{chance.choice('abcd')} {at // 20 + chance.randrange(lag_s) + 10} {at:080d}"
        for at in range(count)
    ]


def test_windows_and_late_events_are_the_same_if_level_0_runs_ahead_of_watermarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    """Through a killed task; compared with one batch in one process."""
    trace = tmp_path / "trace"
    monkeypatch.setenv(tracing.VARIABLE, str(trace))
    lines = clicks(6_000)
    payloads = [line.encode() for line in lines]
    whole = run_local(windowed.sliding(tmp_path, tmp_path), {"in": payloads}, tasks=1)
    assert sum(reasons.get("late", 0) for reasons in whole.dropped.values()) > 100
    expected = [output.decode() for output in whole.outputs]
    check_all = in_any_order(*expected)
    case = Case("sliding", windowed.sliding, {"in": lines}, check_all)
    run, _ = of_case(case, tmp_path, monkeypatch, SMALL)
    run.start()
    eventually(lambda: run.status().batches >= 20, "batches")
    ProcessJob.all[0].processes[0].kill()

    assert run.wait(400)

    assert run.exception is None
    check(case, tmp_path)
    assert len(ProcessJob.all) == 2
    assert trace.read_text().count("\ttask.ahead\n") > run.status().batches / 2


def staged(folder: Path) -> set[str]:
    """The names of files of staged output."""
    return {path.name for path in (folder / "state" / "outbox").rglob("*.out")}


def test_output_that_is_staged_ahead_leaves_once_through_a_killed_task_and_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    """Without a shuffle; nothing of what was staged ahead remains after the stop."""
    trace = tmp_path / "trace"
    monkeypatch.setenv(tracing.VARIABLE, str(trace))
    lines = [f"{number:0100d}" for number in range(20_000)]
    case = Case("copies", copied, {"in": lines}, exactly(*lines))
    run, _ = of_case(case, tmp_path, monkeypatch, STAGED)
    run.start()
    eventually(lambda: run.status().batches >= 20, "batches")
    ProcessJob.all[0].processes[1].kill()
    eventually(lambda: len(ProcessJob.all) == 2, "other tasks")
    done = run.status().batches
    eventually(lambda: run.status().batches >= done + 20, "batches")
    run.stop()
    assert run.wait(400)
    assert run.exception is None
    committed = CheckpointReader(tmp_path / "state").at().commit
    assert trace.read_text().count("\ttask.ahead\n") > run.status().batches / 2
    orphans = {name for name in staged(tmp_path) if int(name.split("-")[0]) > committed.batch}
    assert orphans == set()

    again, _ = of_case(case, tmp_path, monkeypatch, Tuning())
    again.start()
    assert again.wait(400)
    assert again.exception is None
    check(case, tmp_path)


def many_files(inputs: Path, outputs: Path) -> Application:
    files = FilesSourceConfig("in", str(inputs / "many" / "*.txt"))
    return build("many", wallaroo.source("in", files).to(pass_on).to_sink(sink(outputs, "out")))


def test_short_lines_of_many_files_are_processed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan estimates their number, a commit counts them: more than were planned."""
    trace = tmp_path / "trace"
    monkeypatch.setenv(tracing.VARIABLE, str(trace))
    lines = [f"{number:019d}" for number in range(150_000)]
    (tmp_path / "many").mkdir()
    for file in range(4):
        text = "".join(f"{line}\n" for line in lines[file::4])
        (tmp_path / "many" / f"{file}.txt").write_text(text)
    case = Case("many", many_files, {"in": []}, in_any_order(*lines))
    of_two_pieces = Pace(
        events_first=1_400, events_min=1_400, events_max=1_400, resident_task_s=1e-6
    )
    run, _ = of_case(case, tmp_path, monkeypatch, Tuning(of_two_pieces))
    run.start()

    assert run.wait(400)

    assert run.exception is None
    check(case, tmp_path)
    traced = trace.read_text()
    assert traced.count("\ttask.ahead\n") > run.status().batches / 2
    warm_up = 2
    assert traced.count("\tlevel0.begins\n") <= 2 * run.status().batches + warm_up


def reporters(trace: Path) -> list[str]:
    """The process of each report in a trace."""
    lines = [line.split("\t") for line in trace.read_text().splitlines()]
    return [words[3] for words in lines if words[-1] == "task.reported"]


@wallaroo.computation("end once")
def end_once(event: str) -> str:
    """End this process at the first event that names a folder, once the other task has reported."""
    folder = Path(event)
    note = folder / "staged by the other"
    if folder.is_absolute() and not note.exists():
        own = str(os.getpid())
        while 2 * (reported := reporters(folder / "trace")).count(own) >= len(reported):
            time.sleep(0.01)
        note.write_text(min(staged(folder)))  # not what is staged ahead
        os.kill(os.getpid(), signal.SIGKILL)
    return event


def ending_once(inputs: Path, outputs: Path) -> Application:
    return build("ending", source(inputs, "in").to(end_once).to_sink(sink(outputs, "out")))


def test_output_of_an_attempt_that_lost_another_task_does_not_stay_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(tracing.VARIABLE, str(tmp_path / "trace"))
    lines = [str(tmp_path), *(f"{number:0100d}" for number in range(100))]
    case = Case("ending", ending_once, {"in": lines}, exactly(*lines))
    run, _ = of_case(case, tmp_path, monkeypatch, replace(STAGED, mark_bytes=50))
    run.start()

    assert run.wait(400)

    assert run.exception is None
    check(case, tmp_path)
    assert (tmp_path / "staged by the other").read_text() not in staged(tmp_path)


class Starting(ProcessJob):
    """Tasks that never connect."""

    is_over = False

    def __init__(self, *arguments: Any):
        self.processes = []
        self.all.append(self)


def test_a_stop_while_tasks_begin_again_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    """The batch under way is not committed, and the next run begins with it."""
    run, case = prepared(tmp_path, monkeypatch, rounds=500)
    run.start()
    eventually(lambda: run.status().batches >= 1, "a batch")
    monkeypatch.setattr(generations, "ResidentJob", Starting)
    ProcessJob.all[0].processes[1].kill()
    eventually(lambda: len(ProcessJob.all) == 2, "a new start of tasks")
    run.stop()
    assert run.wait(400)
    assert (run.exception, run.status().state) == (None, "stopped")

    again, _ = prepared(tmp_path, monkeypatch, rounds=500)
    again.start()
    assert again.wait(400)
    assert again.exception is None
    check(case, tmp_path)


@pytest.mark.parametrize("dies", [False, True], ids=["in order", "with a task"])
def test_where_hosts_come_and_go_tasks_begin_again_and_no_output_differs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., Any],
    dies: bool,
) -> None:
    """Three tasks where there were two, then one; an epoch whose task died is cut again."""
    monkeypatch.setattr(spark_host, "Cluster", Hosts)
    run, case = prepared(tmp_path, monkeypatch, rounds=2500)
    run.start()
    for number, cores in enumerate((3, 1)):
        done = run.status().batches
        eventually(lambda done=done: run.status().batches > done, "a batch")
        Hosts.newest.members = (Member("one", "one", cores),)
        if dies:
            ProcessJob.all[-1].processes[0].kill()
        eventually(lambda number=number: len(ProcessJob.all) >= number + 2, "other tasks")

    assert run.wait(400)

    assert run.exception is None
    check(case, tmp_path)
    assert [len(job.processes) for job in ProcessJob.all] == [2, 3, 1]
