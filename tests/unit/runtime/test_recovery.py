"""What a run begins with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import wallaroo
from wallaroo.checkpoints.inspection.compatibility import check_compatibility
from wallaroo.dataflow.plan.model import Plan
from wallaroo.errors import CheckpointError
from wallaroo.runtime.recovery import describe, step_table
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.log.commits import Commit


class Count:
    pass


class Other:
    pass


def plan(step: str = "count", state: type = Count) -> Plan:
    @wallaroo.key_extractor
    def same(event: str) -> str:
        return event

    @wallaroo.state_computation(step, state=state)
    def counted(event: str, state: Count) -> str:
        return event

    lines = wallaroo.source("lines", wallaroo.FileSourceConfig("lines", "in.txt"))
    pipeline = lines.key_by(same).to(counted).to_sink(wallaroo.StdoutSinkConfig())
    return wallaroo.build_application("judged", pipeline).plan


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[Checkpoint]:
    """A checkpoint with one commit of the application with step 'count'."""
    first = open_checkpoint(tmp_path / "state", is_durable=False)
    check_compatibility(first, plan(), allow_incompatible=False)
    first.commits.publish(
        Commit(0, {"lines": [10, 2]}, steps=("count",), time_ms=1_000, checkpoint=first.id, id="a")
    )
    first.release()
    again = open_checkpoint(tmp_path / "state", is_durable=False)
    yield again
    again.release()


def test_the_same_application_goes_on_without_a_word(checkpoint: Checkpoint) -> None:
    assert check_compatibility(checkpoint, plan(), allow_incompatible=False).notes == ()


def test_a_renamed_state_step_is_refused_before_anything_is_touched(checkpoint: Checkpoint) -> None:
    before = (checkpoint.root / "plan.json").read_text()
    with pytest.raises(
        CheckpointError,
        match=(
            r"State step 'count' is gone or renamed(.|\n)*Nothing was "
            r"touched.*--allow-incompatible"
        ),
    ):
        check_compatibility(checkpoint, plan("total"), allow_incompatible=False)
    assert (checkpoint.root / "plan.json").read_text() == before


def test_what_is_dropped_is_named_when_it_is_allowed(checkpoint: Checkpoint) -> None:
    compatibility = check_compatibility(checkpoint, plan(state=Other), allow_incompatible=True)
    assert compatibility.dropped == {"count"}
    assert "dropped as asked: The state of step 'count' is of class" in compatibility.notes[0]


def test_dropped_state_keeps_its_number_and_loses_its_name() -> None:
    last = Commit(7, {}, steps=("a", "b"))
    table = step_table(last, ["a", "b"], frozenset({"b"}))
    assert table == ("a", "b (dropped after batch 7)", "b")


def test_a_new_state_step_gets_a_number_of_its_own() -> None:
    assert step_table(Commit(7, {}, steps=("a",)), ["new", "a"], frozenset()) == ("a", "new")


def test_key_groups_cannot_change_even_if_dropping_is_allowed(checkpoint: Checkpoint) -> None:
    with pytest.raises(CheckpointError, match="number of key groups cannot change"):
        check_compatibility(checkpoint, replace(plan(), key_groups=64), allow_incompatible=True)


def test_a_start_says_what_it_continues_from() -> None:
    assert describe(None, (), ()) == "nothing committed yet: state begins empty"
    text = describe(Commit(7, {"lines": [10, 2]}, time_ms=1_000), (), ())
    assert text.startswith(
        "continuing from commit 7 of 1970-01-01 00:00:01 UTC: 2 events are in the state"
    )
