"""The epoch that is planned while the one before it is under way, and what a task makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import wallaroo
from tests.conformance.apps import values, windowed
from wallaroo.dataflow.plan.model import Plan, SinkPlan
from wallaroo.engine.blocks.blocks import Marker
from wallaroo.engine.report import TaskReport
from wallaroo.engine.time.watermarks import BatchTime
from wallaroo.errors import PeerError
from wallaroo.runtime.batch.admission import Admission, AdmissionControl
from wallaroo.runtime.resident import worker
from wallaroo.runtime.resident.framing import Ahead, Epoch, Mesh
from wallaroo.runtime.resident.pipelining import Pipelining, may_run_ahead
from wallaroo.runtime.resident.worker import ResidentTask
from wallaroo.runtime.tasks import staging as staging_module
from wallaroo.runtime.tasks.job import BatchJob, Piece
from wallaroo.sinks.interface import SinkConfig
from wallaroo.sinks.staging import StagedToken
from wallaroo.sources.log import Position, Range

TIME = BatchTime(clock_ns=9, unordered=frozenset((0,)))
UNDER_WAY = Epoch(6, 5, (), False, BatchTime(clock_ns=9))
OPEN = Admission(events_max=10, is_held=False, events_most=10)


def at(events: int) -> Position:
    return Position(events, events)


def cut(start: Any, ends: Any) -> Any:
    return (("from", start["in"].events, "to", ends["in"].events),)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return values.state_survives(tmp_path, tmp_path).plan


def pipelining(plan: Plan, events: int) -> Pipelining:
    def waiting(start: Any) -> int:
        return events - int(start["in"].events)

    def take(start: Any, admitted: Admission) -> Any:
        return {"in": at(min(start["in"].events + admitted.events_max, events))}

    def time(ends: Any, under_way: BatchTime) -> BatchTime:
        return replace(TIME, clock_ns=under_way.clock_ns)

    return Pipelining(plan, waiting, take, cut, time)


def test_the_epoch_that_was_planned_ahead_is_the_next_one(plan: Plan) -> None:
    planning = pipelining(plan, 100)
    planning.begin({"in": at(10)})

    ahead = planning.ahead(UNDER_WAY, OPEN)

    assert ahead == Ahead(7, (("from", 10, "to", 20),), True, TIME)  # type: ignore[arg-type]
    assert planning.planned({"in": at(10)}) == {"in": at(20)}
    assert planning.planned({"in": at(10)}) is None


def test_the_epoch_that_was_planned_ahead_is_the_next_one_if_the_commit_counts_other_events(
    plan: Plan,
) -> None:
    """As of a source whose plans estimate them: tasks may have read its pieces already."""
    planning = pipelining(plan, 100)
    planning.begin({"in": at(10)})
    ahead = planning.ahead(UNDER_WAY, OPEN)
    assert ahead is not None

    ends = planning.planned({"in": Position(10, 70)})

    assert ends == {"in": Position(20, 80)}
    assert planning.begin(ends) == ahead.pieces
    assert planning.begin(ends) is None


def test_nothing_is_planned_ahead_where_less_than_an_epoch_waits(plan: Plan) -> None:
    """What comes until the commit would have to wait for one more epoch."""
    planning = pipelining(plan, 19)
    planning.begin({"in": at(10)})
    assert planning.ahead(UNDER_WAY, OPEN) is None


@pytest.mark.parametrize(
    "admission", [replace(OPEN, is_held=True), replace(OPEN, limits={"in": 50})]
)
def test_nothing_is_planned_ahead_while_input_is_held_or_replayed(
    plan: Plan, admission: Admission
) -> None:
    planning = pipelining(plan, 100)
    planning.begin({"in": at(10)})
    assert planning.ahead(UNDER_WAY, admission) is None


def raising(*_: Any) -> Any:
    raise PeerError("the topic is another one")


@pytest.mark.parametrize("step", ["_waiting", "_take", "_cut", "_time"])
def test_an_error_while_an_epoch_is_planned_ahead_leaves_the_one_under_way_alone(
    plan: Plan, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is raised again if the next one is planned in its turn, once the present one counts."""
    planning = pipelining(plan, 100)
    planning.begin({"in": at(10)})
    monkeypatch.setattr(planning, step, raising)

    assert planning.ahead(UNDER_WAY, OPEN) is None
    assert planning.planned({"in": at(10)}) is None


def test_nothing_is_planned_ahead_of_the_first_epoch(plan: Plan) -> None:
    """Its bound does not know yet what an event costs; the next one's does."""
    admitted: list[Admission] = []
    control = AdmissionControl(admitted.append, events_first=10)
    control.hold(False)
    planning = pipelining(plan, 100)
    planning.begin({"in": at(10)})
    assert planning.ahead(UNDER_WAY, admitted[-1]) is None

    control.allow(5, 5)

    assert planning.ahead(UNDER_WAY, admitted[-1]) is not None


def test_nothing_is_planned_ahead_of_no_epoch(plan: Plan) -> None:
    assert pipelining(plan, 100).ahead(UNDER_WAY, OPEN) is None


def test_an_epoch_that_begins_elsewhere_is_planned_again(plan: Plan) -> None:
    """As after a batch that failed."""
    planning = pipelining(plan, 100)
    planning.begin({"in": at(10)})
    planning.ahead(UNDER_WAY, OPEN)
    assert planning.planned({"in": at(0)}) is None


def test_only_a_level_0_that_depends_on_no_commit_is_run_ahead(plan: Plan, tmp_path: Path) -> None:
    """If it is the only level, its output is staged ahead, in a folder that the task sees."""
    windows = windowed.sliding(tmp_path, tmp_path).plan
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, text))
    sink = wallaroo.FileSinkConfig(tmp_path / "out", encoder=line)
    copy = wallaroo.build_application("copy", source.to_sink(sink)).plan

    assert may_run_ahead(plan)
    assert not may_run_ahead(replace(plan, dead_letters=0))
    assert may_run_ahead(windows)
    assert may_run_ahead(copy)
    timed: Any = SimpleNamespace(levels=1, has_time=True, has_end=False)
    assert not may_run_ahead(timed)
    assert not may_run_ahead(copy, is_outbox_here=False)
    own: Any = SimpleNamespace(has_staged_tokens=SinkConfig.has_staged_tokens, needs_time=False)
    assert not may_run_ahead(replace(copy, sinks=(*copy.sinks, SinkPlan("own", own, None))))


@wallaroo.decoder(header_length=4, length_fmt=">I")
def text(payload: bytes) -> str:
    return payload.decode()


@wallaroo.encoder
def line(event: str) -> bytes:
    return event.encode()


class Levels:
    """In place of ``run_level``: notes what is run, and gives that back."""

    def __init__(self) -> None:
        self.ran: list[tuple[int, int, Any]] = []

    def __call__(self, job: Any, level: int, index: int, records: Any, *_: Any) -> Any:
        if level:
            return iter(records)
        self.ran.append((job.batch, level, job.pieces))
        return iter([(0, job.pieces)])


NOTHING: Any = None
COMMON = BatchJob(NOTHING, 0, 1, ((),), -1, (), (), 2, -1, True)  # two levels without state


def piece(low: int) -> Piece:
    return Piece(0, Range("", low, low + 10, 10))


def epoch(batch: int, low: int) -> Epoch:
    return Epoch(batch, batch - 1, ((piece(low),),), False)


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> Levels:
    found = Levels()
    monkeypatch.setattr(worker, "run_level", found)
    monkeypatch.setattr(worker, "plan_of", lambda deployment: None)
    return found


def test_a_task_runs_level_0_once_where_the_epoch_is_the_one_that_was_planned(
    levels: Levels,
) -> None:
    task = ResidentTask(0, COMMON, Mesh({}))

    task.run(epoch(1, 0))
    task.run_ahead(Ahead(2, epoch(2, 10).pieces))
    reports = task.run(epoch(2, 10))
    task.run(epoch(3, 20))

    assert [batch for batch, _, _ in levels.ran] == [1, 2, 3]
    assert reports == ((0, epoch(2, 10).pieces),)


@pytest.mark.parametrize(
    "planned",
    [
        Ahead(2, epoch(2, 0).pieces),
        Ahead(1, epoch(2, 10).pieces),
        Ahead(2, epoch(2, 10).pieces, time=TIME),
    ],
)
def test_what_was_run_ahead_of_another_epoch_does_not_count(levels: Levels, planned: Ahead) -> None:
    task = ResidentTask(0, COMMON, Mesh({}))

    task.run_ahead(planned)
    reports = task.run(epoch(2, 10))

    assert [ran[0] for ran in levels.ran] == [planned.batch, 2]
    assert reports == ((0, epoch(2, 10).pieces),)


def token(file: Any) -> StagedToken:
    return StagedToken(file=file, inline="", bytes=1, outputs=1, crc=0)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "report",
    [
        TaskReport(0, 0, "ahead", error=PeerError("the system is away")),
        TaskReport(0, 0, "ahead", cut_short={0: {"": (5, 5)}}),
    ],
)
def test_what_ran_ahead_into_an_error_or_was_cut_short_is_run_again_in_its_turn(
    report: TaskReport, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cause may be over by then."""
    reports = iter([report, TaskReport(0, 0, "in turn")])

    def run_level(job: Any, level: int, index: int, records: Any, *_: Any) -> Any:
        if level:
            return iter(records[0][1].reports)
        newest = next(reports)
        return iter([newest] if count == 1 else [(0, Marker(0, 0, "", (newest,)))])

    monkeypatch.setattr(worker, "run_level", run_level)
    monkeypatch.setattr(worker, "plan_of", lambda deployment: None)
    task = ResidentTask(0, replace(COMMON, levels=count), Mesh({}))

    task.run_ahead(Ahead(2, epoch(2, 10).pieces))
    (found,) = task.run(epoch(2, 10))

    assert found.attempt == "in turn"


class Staging:
    """In place of ``run_level`` of the only level: stages a file, and reports its name."""

    def __init__(self, outbox: Path) -> None:
        self.folder = outbox / "file"
        self.folder.mkdir()
        self.of_another: Any = "of another"  # a token of a sink with a writer of its own

    def __call__(self, job: Any, level: int, index: int, records: Any, *_: Any) -> Any:
        name = f"{job.batch}.{len(self.staged)}.out"
        (self.folder / name).touch()
        tokens = {0: token(name), 1: self.of_another}
        return iter([TaskReport(level, index, name, tokens=tokens)])

    @property
    def staged(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def staging(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Staging:
    found = Staging(tmp_path)
    sinks = (replace(plan.sinks[0], name="file"), plan.sinks[0])
    of_two = replace(plan, sinks=sinks)
    monkeypatch.setattr(worker, "run_level", found)
    monkeypatch.setattr(worker, "plan_of", lambda deployment: of_two)
    monkeypatch.setattr(staging_module, "plan_of", lambda deployment: of_two)
    return found


def alone(tmp_path: Path) -> ResidentTask:
    """Return a task of a plan with one level."""
    deployment: Any = SimpleNamespace(outbox_root=str(tmp_path))
    return ResidentTask(0, replace(COMMON, levels=1, deployment=deployment), Mesh({}))


def test_the_only_level_is_run_once_if_the_epoch_is_the_one_that_was_planned(
    staging: Staging, tmp_path: Path
) -> None:
    task = alone(tmp_path)

    task.run_ahead(Ahead(2, epoch(2, 10).pieces))
    (report,) = task.run(epoch(2, 10))
    task.close()

    assert report.attempt == "2.0.out"
    assert staging.staged == ["2.0.out"]


@pytest.mark.parametrize("planned", [Ahead(2, epoch(2, 0).pieces), Ahead(1, epoch(2, 10).pieces)])
def test_output_that_was_staged_ahead_of_another_epoch_is_removed(
    staging: Staging, tmp_path: Path, planned: Ahead
) -> None:
    task = alone(tmp_path)

    task.run_ahead(planned)
    (report,) = task.run(epoch(2, 10))

    assert staging.staged == [report.attempt] == ["2.0.out"]


def test_output_that_was_staged_ahead_is_removed_at_the_end(
    staging: Staging, tmp_path: Path
) -> None:
    task = alone(tmp_path)

    task.run(epoch(1, 0))
    task.run_ahead(Ahead(2, epoch(2, 10).pieces))
    task.close()

    assert staging.staged == ["1.0.out"]


@pytest.mark.parametrize("form", [lambda path: {"file": path}, lambda path: {"file": 1}, token])
def test_what_tokens_of_another_form_name_is_left_alone(
    staging: Staging, tmp_path: Path, form: Callable[[str], Any]
) -> None:
    """As of a user's own writer, whose tokens name where committed output goes."""
    target = tmp_path / "target.txt"
    target.touch()
    staging.of_another = form(str(target))
    task = alone(tmp_path)

    task.run_ahead(Ahead(2, epoch(2, 10).pieces))
    task.close()

    assert target.exists()
    assert staging.staged == []
