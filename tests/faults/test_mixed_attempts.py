"""A batch in which Spark mixed two attempts of one task is refused and run again: vital for code
that is not deterministic.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.verification.applications import word_count
from wallaroo.dataflow.plan.model import Plan
from wallaroo.durable.commit_id import CommitHistory, CommitId
from wallaroo.engine.report import TaskReport, attempts_digest
from wallaroo.errors import InternalError, UserCodeError
from wallaroo.runtime.batch.commit_protocol import ATTEMPTS, BatchProtocol
from wallaroo.runtime.batch.housekeeping import Housekeeping
from wallaroo.sinks.interface import SinkCommitter, SinkStatus
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint


@dataclass
class Recorder(SinkCommitter):
    """Remembers what it was given."""

    committed: list[list[Any]] = field(default_factory=list)
    aborted: list[list[Any]] = field(default_factory=list)

    def recover(self, history: CommitHistory, tokens: Sequence[Any]) -> None:
        pass

    def commit(self, commit: CommitId, tokens: Sequence[Any]) -> None:
        self.committed.append(list(tokens))

    def abort(self, batch: int, tokens: Sequence[Any]) -> None:
        self.aborted.append(list(tokens))

    def status(self) -> SinkStatus:
        return SinkStatus()

    def close(self, drain_s: float) -> None:
        pass


@dataclass
class Scene:
    """A protocol with a recording sink."""

    protocol: BatchProtocol
    recorder: Recorder
    checkpoint: Checkpoint


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    plan: Plan = word_count.application_setup(
        ["--in", "Lines@127.0.0.1:1", "--out", "127.0.0.1:2"]
    ).plan  # type: ignore[attr-defined]
    checkpoint = open_checkpoint(tmp_path, is_durable=False)
    recorder = Recorder()
    committers = {sink.name: recorder for sink in plan.sinks}
    return Scene(
        BatchProtocol(plan, checkpoint, committers, Housekeeping(checkpoint, 8, 4), {}, ()),
        recorder,
        checkpoint,
    )


def consumer(task: int, read: dict[int, str], token: Any) -> TaskReport:
    """A consumer that read these attempts of producers."""
    return TaskReport(1, task, f"c{task}", attempts_digest(read), tokens={0: token})


def reports(made: str, read: dict[int, str], token: str = "t") -> list[TaskReport]:
    """Two producers and two consumers; producer 0 ran as ``made`` last, consumer n read attempt
    ``read[n]`` of it.
    """
    producers = [TaskReport(0, 0, made), TaskReport(0, 1, "other")]
    return producers + [
        consumer(task, {0: read[task], 1: "other"}, f"{token}{task}") for task in (0, 1)
    ]


def test_a_batch_that_mixes_two_attempts_is_dropped_and_run_again(scene: Scene) -> None:
    """Consumer 0 read the first attempt of a producer whose second attempt consumer 1 read."""
    attempts = iter(
        [reports("b", {0: "a", 1: "b"}, "first"), reports("d", {0: "d", 1: "d"}, "second")]
    )

    accepted = scene.protocol.accepted(0, (2, 2), lambda: next(attempts))
    commit = scene.protocol.commit(0, {}, accepted)

    assert scene.recorder.aborted == [["first0", "first1"]]
    assert scene.recorder.committed == [["second0", "second1"]]
    assert next(iter(commit.sinks.values())) == ["second0", "second1"]


def test_a_report_of_an_attempt_that_was_never_read_is_refused_as_well(scene: Scene) -> None:
    """Both consumers agree, but the producer's report that counts is another attempt's: its events
    would be miscounted.
    """
    attempts = iter([reports("b", {0: "a", 1: "a"}), reports("d", {0: "d", 1: "d"})])
    assert scene.protocol.accepted(0, (2, 2), lambda: next(attempts))[0].attempt == "d"


def test_attempts_that_stay_mixed_end_the_run_without_a_commit(scene: Scene) -> None:
    """Better no result than a wrong one."""
    with pytest.raises(InternalError, match="was run 3 times and is not whole"):
        scene.protocol.accepted(0, (2, 2), lambda: reports("b", {0: "a", 1: "b"}))
    assert len(scene.recorder.aborted) == ATTEMPTS
    assert scene.recorder.committed == []
    assert scene.checkpoint.commits.batches() == []


@pytest.mark.parametrize("arrived", [[], [0], [1, 2, 3], [0, 1, 2, 2]], ids=str)
def test_reports_that_do_not_arrive_or_arrive_twice_are_not_taken_for_the_batch(
    scene: Scene, arrived: list[int]
) -> None:
    whole = reports("a", {0: "a", 1: "a"}, "all")
    attempts = iter([[whole[number] for number in arrived], whole])

    accepted = scene.protocol.accepted(0, (2, 2), lambda: next(attempts))

    assert accepted == whole
    assert len(scene.recorder.aborted) == 1


def test_a_task_error_drops_what_the_others_staged_and_is_raised(scene: Scene) -> None:
    """The error is the user's to see; the batch does not commit."""
    failed = [
        *reports("a", {0: "a", 1: "a"}),
        TaskReport(
            1,
            2,
            "c2",
            attempts_digest({0: "a", 1: "other"}),
            error=UserCodeError("count", "x.py:1", "'w'", "boom", ""),
        ),
    ]
    with pytest.raises(UserCodeError, match="boom"):
        scene.protocol.accepted(0, (2, 3), lambda: failed)
    assert scene.recorder.aborted == [["t0", "t1"]]
    assert scene.checkpoint.commits.batches() == []


def test_code_that_is_not_deterministic_never_shows_halves_of_two_attempts(scene: Scene) -> None:
    """A producer deals each event to a task at random, so two attempts deal differently: a mix
    would lose or double events.
    """
    events, chance = range(50), random.Random(1)

    def deal() -> list[list[int]]:
        dealt: list[list[int]] = [[], []]
        for event in events:
            dealt[chance.randrange(2)].append(event)
        return dealt

    def attempt() -> list[TaskReport]:
        attempts = {name: deal() for name in ("a", "b")}
        # the second attempt ran because consumer 1 found the first one's output gone
        read = {0: chance.choice("ab"), 1: "b"}
        made = [TaskReport(0, 0, "b")]
        return made + [
            consumer(task, {0: read[task]}, attempts[read[task]][task]) for task in (0, 1)
        ]

    for batch in range(20):
        try:
            scene.protocol.commit(batch, {}, scene.protocol.accepted(batch, (1, 2), attempt))
        except InternalError:
            continue  # mixed three times: refused
    assert len(scene.recorder.committed) > 10
    assert len(scene.recorder.aborted) > 3
    for halves in scene.recorder.committed:
        assert sorted(event for half in halves for event in half) == list(events)


def test_commits_keep_the_position_of_a_source_that_was_dropped(scene: Scene) -> None:
    """A source that returns later continues where it was, not from its first event."""
    scene.protocol.commit(0, {"A": [90, 9], "B": [50, 5]}, [])
    scene.protocol.commit(1, {"A": [100, 10]}, [])
    stored = scene.checkpoint.commits.read(1)
    assert stored.offsets == {"A": [100, 10], "B": [50, 5]}
