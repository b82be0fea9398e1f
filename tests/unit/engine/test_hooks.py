"""Operators that hold events back: the watermark and the batch's end reach them, in the order of
the stage, also without input.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.conformance.apps.shapes import Count
from tests.conformance.apps.steps import by_first_word, by_itself, source, text
from wallaroo.engine.blocks.blocks import Block, Marker, pack_times
from wallaroo.engine.blocks.packing import (
    PICKLED,
    Kind,
    ValueColumn,
    pack,
)
from wallaroo.engine.levels.level import Level
from wallaroo.engine.levels.side_outputs import NOTHING_COMMITTED
from wallaroo.engine.levels.stages import LevelStages
from wallaroo.engine.operators.interface import Operator, Site
from wallaroo.engine.operators.table import OPERATORS
from wallaroo.engine.time.watermarks import NO_TIME, Watermarks
from wallaroo.steps.kinds import Computation, StateComputation
from wallaroo.testing.local_runner.runner import LocalRunner


class Held(StateComputation[str, Count, str]):
    """A step kind of its own: counts now, emits the counts when the watermark moves."""

    kind = "held"
    uses_time = True


class Buffered(Computation[str, str]):
    """A step kind of its own: emits everything when the batch has no more input."""

    kind = "buffered"


def hold(step: Held, site: Site) -> Operator:
    state = site.state_of(step)

    def process(key: Any, event: Any) -> None:
        step.function(event, state.load(key) if key not in state.live else state.live[key])

    def advance(watermark_ns: int) -> None:
        for key in ("a", "b"):
            own = state.live.get(key) or state.load(key)
            if own.count and watermark_ns:
                site.emit(key, f"{key} {own.count} at {watermark_ns} {site.time.watermark_ns}")

    return Operator(process, advance)


def buffer(step: Buffered, site: Site) -> Operator:
    waiting: list[tuple[Any, Any]] = []

    def flush() -> None:
        for key, event in waiting:
            site.emit(key, step.function(event))

    return Operator(lambda key, event: waiting.append((key, event)), None, flush)


@pytest.fixture(autouse=True)
def _operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(OPERATORS, Held, hold)
    monkeypatch.setitem(OPERATORS, Buffered, buffer)
    return


def add_one(event: str, own: Count) -> None:
    own.count += 1


def show(event: str) -> str:
    return f"{event}!"


@wallaroo.state_computation(name="add up", state=Count)
def add_up(event: str, own: Count) -> str:
    own.count += 1
    return f"{event} {own.count}"


held = Held(add_one, "held", Count)
held_again = Held(add_one, "held again", Count)
buffered = Buffered(show, "buffered")
again = Buffered(show, "buffered again")


def runner_of(pipeline: Any) -> LocalRunner:
    return LocalRunner(
        wallaroo.build_application("app", pipeline.to_sink(wallaroo.StdoutSinkConfig(text))).plan
    )


def test_time_moves_without_input() -> None:
    runner = runner_of(source(Path()).key_by(by_itself).to(held))  # type: ignore[arg-type]  # any kind
    frames = [(0, runner.frames(0, word), 0) for word in (b"a", b"b", b"a")]

    first = runner.run_batch([frames], 1)
    runner.commit(first)
    idle = runner.run_batch([], 1, watermark_ns=70)

    assert first.outputs[0] == []
    assert sorted(idle.outputs[0]) == [b"a 2 at 70 70", b"b 1 at 70 70"]


def test_what_is_emitted_for_the_watermark_goes_through_the_shuffles_that_follow() -> None:
    pipeline = source(Path()).key_by(by_itself).to(held).key_by(by_first_word).to(held_again)
    runner = runner_of(pipeline)

    done = runner.run_batch([[(0, runner.frames(0, b"a"), 0)]], 2, watermark_ns=5)

    assert done.outputs[0] == [b"a 1 at 5 5"]


def test_a_batch_ends_with_what_its_operators_hold_in_the_order_of_the_stage() -> None:
    runner = runner_of(source(Path()).to(buffered).to(again))  # type: ignore[arg-type]  # any kind

    done = runner.run_batch([[(0, runner.frames(0, b"a"), 1), (0, runner.frames(0, b"b"), 1)]], 1)

    assert done.outputs[0] == [b"a!!", b"b!!"]


def test_a_block_with_times_gives_each_event_its_own() -> None:
    seen: list[tuple[Any, Any]] = []

    def note(step: Any, site: Site) -> Operator:
        return Operator(lambda key, event: seen.append((event, site.time.event_ns)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OPERATORS, Held, note)
        plan = wallaroo.build_application(
            "app",
            source(Path()).key_by(by_itself).to(held).to_sink(wallaroo.StdoutSinkConfig(text)),  # type: ignore[call-overload]
        ).plan
        level = Level(plan, 1, 0, 1)
    column = ValueColumn()
    for event in "ab":
        column.atoms.append(event)
    packed = pack(["a", "b"], column)

    level.feed_block(
        Block(1, 0, 0, 0, 0, 2, packed, Kind.VALUES, pack_times([10, 20]), pack_times([0, 0]))
    )

    assert seen == [("a", 10), ("b", 20)]
    assert Marker(0, 0, "x", ()).observed == {}
    assert PICKLED.unpack(packed) == (["a", "b"], ["a", "b"])


def test_without_time_none_is_carried_or_kept() -> None:
    runner = runner_of(source(Path()).key_by(by_itself).to(add_up))
    level = Level(runner.plan, 0, 0, 2)
    level.feed_payloads(0, [b"a", b"b"] * 10, 1)

    blocks = [block for _, block in level.finish()]

    assert sum(block.events for block in blocks) == 20
    assert {(block.times, block.watermarks, block.partitions) for block in blocks} == {
        (None, b"", ())
    }
    assert level.observed == {}
    done = runner.run_batch([[(0, runner.frames(0, b"a"), 1)]], 1, clock_ns=wallaroo.seconds(1))
    runner.commit(done)
    assert runner.time == Watermarks()


def test_what_measures_a_stage_is_put_around_each_operator_and_the_output() -> None:
    plan = wallaroo.build_application(
        "app",
        source(Path()).to(buffered).to(upper).to_sink(wallaroo.StdoutSinkConfig(text)),  # type: ignore[arg-type]
    ).plan
    seen: list[tuple[int, Any]] = []

    def around(emit: Any, place: int) -> Any:
        def noting(key: Any, event: Any) -> None:
            seen.append((place, event))
            emit(key, event)

        return noting

    stages = LevelStages(plan, 0, 0, 1, NOTHING_COMMITTED, -1, NO_TIME, 1, is_sampled=True)
    builder = stages.builders[0]
    built = builder.build((), is_sampled=True)
    measured = builder.instrumented(built, (), around)
    measured.emit(None, "a")
    assert seen == [(0, "a")]
    measured.operators[0].flush()

    assert seen == [(0, "a"), (1, "a!"), (2, "A!")]


@wallaroo.computation("upper")
def upper(event: str) -> str:
    return event.upper()
