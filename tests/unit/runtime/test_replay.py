"""``speed``: recorded input is read at the pace of its event times, with the same results."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.conformance.apps import sessions
from tests.conformance.cases import per_key
from wallaroo.dataflow.plan.model import SourceTime
from wallaroo.engine.time.watermarks import SourceMark, Watermarks
from wallaroo.options import RunOptions
from wallaroo.runtime.batch.admission import Admission, AdmissionControl
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.runtime.tasks.replay import STEP_S, Replay
from wallaroo.spark.jvm.preflight import check_before_spark

SECOND = 10**9


@dataclass
class Recorded:
    """Sources with recorded event times in seconds, read batch by batch, 0.1 s each, as a replay
    says; ``read_at`` says when each event was read.
    """

    times: dict[str, list[float]]
    speed: float
    now_s: float = 1000.0
    read_at: dict[str, list[float]] = field(default_factory=dict)

    def run(self, done: dict[str, int] | None = None) -> dict[str, list[float]]:
        sources = tuple((name, SourceTime(2 * SECOND, None, False)) for name in self.times)
        done = done or {}
        replay = Replay(self.speed, sources, done, lambda: self.now_s)
        at = {name: done.get(name, 0) for name in self.times}
        self.read_at = {name: [] for name in self.times}
        began_s = self.now_s
        while any(at[name] < len(times) for name, times in self.times.items()):
            limits = replay.limits()
            for name, times in self.times.items():
                taken = min(limits[name], len(times) - at[name])
                at[name] += taken
                self.read_at[name] += [self.now_s - began_s] * taken
            self.now_s += 0.1
            replay.batch_done(self.commit(at), {})
            assert self.now_s - began_s < 10_000, at
        return self.read_at

    def commit(self, at: dict[str, int]) -> Any:
        marks = {
            name: SourceMark(int((max(times[: at[name]]) - 2) * SECOND))
            for name, times in self.times.items()
            if at[name]
        }

        class Committed:
            offsets = {name: [0, count] for name, count in at.items()}
            watermarks = Watermarks(sources=marks).to_json()

        return Committed()


def assert_in_time(times: list[float], read_at: list[float], speed: float, first: float) -> None:
    """Events are read when they are due, but for a batch."""
    for event_s, read_s in zip(times, read_at, strict=True):
        due_s = (event_s - first) / speed
        assert due_s - 2 * STEP_S <= read_s <= due_s + 1.0, (event_s, read_s)


@pytest.mark.parametrize("speed", [0.5, 1.0, 10.0])
def test_events_are_read_when_their_times_come(speed: float) -> None:
    times = [100 + number / 50 for number in range(3_000)]
    assert_in_time(times, Recorded({"in": times}, speed).run()["in"], speed, 100)


def test_a_source_that_begins_later_waits_for_its_time() -> None:
    early = [float(number) for number in range(200)]
    late = [150 + number / 10 for number in range(400)]
    read_at = Recorded({"early": early, "late": late}, 10.0).run()
    assert_in_time(early, read_at["early"], 10.0, 0)
    assert_in_time(late[1:], read_at["late"][1:], 10.0, 0)


def test_a_pause_in_the_recording_is_a_pause_in_the_replay() -> None:
    times = [number / 100 for number in range(500)] + [60 + number / 100 for number in range(500)]
    read_at = Recorded({"in": times}, 10.0).run()["in"]
    assert max(read_at[:500]) < 2.0
    # what was read ahead of its time, before the pause was known, is a batch
    assert sum(read_s < 5.0 for read_s in read_at[500:]) <= 120
    assert max(read_at) >= 6.0


def test_a_run_that_goes_on_begins_where_it_was() -> None:
    times = [number / 50 for number in range(3_000)]
    read_at = Recorded({"in": times}, 10.0).run({"in": 2_500})["in"]
    assert_in_time(times[2_500:], read_at, 10.0, 50)


def test_limits_change_as_time_passes() -> None:
    now = {"in": 1}
    seen: list[Admission] = []
    intake = AdmissionControl(seen.append, 100, lambda: dict(now))
    intake.publish()
    intake.hold(False)
    now["in"] = 5
    intake.hold(False)
    intake.hold(False)
    assert seen == [
        Admission(100, True, {"in": 1}),
        Admission(100, False, {"in": 1}),
        Admission(100, False, {"in": 5}),
    ]


def test_a_replay_takes_its_time_and_gives_the_same_results(tmp_path: Path) -> None:
    lines = [f"{'abc'[number % 3]} {number // 10} {number}" for number in range(100)]
    (tmp_path / "in.txt").write_text("".join(line + "\n" for line in lines))
    options = RunOptions(status_address=None, speed=10.0, checkpoint=tmp_path / "state")
    run = Run(sessions.one_step(tmp_path, tmp_path), options, InProcessHost(2))
    began = time.monotonic()
    run.start()
    assert run.wait(400)
    assert (run.exception, run.status().state) == (None, "finished")
    assert time.monotonic() - began >= 0.7  # 9 s of event time
    assert per_key((tmp_path / "out.txt").read_text().splitlines()) == sessions.expected(lines)


@pytest.mark.parametrize("speed", [0.0, -1.0, float("inf")])
def test_a_speed_is_a_number_above_zero(speed: float, tmp_path: Path) -> None:
    plan = sessions.one_step(tmp_path, tmp_path).plan
    with pytest.raises(wallaroo.PipelineError, match="is not a speed"):
        check_before_spark(plan, RunOptions(speed=speed), has_session=True)


def test_input_without_event_time_cannot_be_replayed(tmp_path: Path) -> None:
    config = wallaroo.FileSourceConfig("in", str(tmp_path / "in.txt"))
    source = wallaroo.source("in", config).to_sink(wallaroo.StdoutSinkConfig())
    plan = wallaroo.build_application("copy", source).plan
    with pytest.raises(wallaroo.PipelineError, match="source 'in' has none"):
        check_before_spark(plan, RunOptions(speed=10.0), has_session=True)
