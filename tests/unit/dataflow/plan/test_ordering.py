"""Where a plan puts events in the order of time: in front of steps that act in event time, where
their events have no single order.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.conformance.apps.shapes import Count, build, count_one
from tests.conformance.apps.steps import by_first_word, by_itself, sink, source
from wallaroo.aggregations import Collect, Last, combine_of
from wallaroo.aggregations import Count as Counted
from wallaroo.dataflow.plan.explain import text
from wallaroo.dataflow.plan.json import Verdict, compare, describe, dumps
from wallaroo.dataflow.plan.ordering import with_orders_kept
from wallaroo.steps.joins.step import InOrder
from wallaroo.testing.local_runner.runner import Input, LocalRunner

NOWHERE = Path("/nowhere")
IN_ORDER = "in order for acts"


def time_of(event: str) -> float:
    return float(len(event))


@wallaroo.decoder
def decode(payload: bytes) -> str:
    return payload.decode()


@wallaroo.computation("as text")
def as_text(number: int) -> str:
    return str(number)


def acting(**options: Any) -> Any:
    @wallaroo.state_computation("acts", state=Count, **options)
    def acts(event: str, own: Count, context: wallaroo.Context) -> None:
        own.count += 1

    return acts


def timers() -> Any:
    step = acting()

    @step.on_timer
    def due(own: Count, context: wallaroo.Context, name: str) -> None:
        own.count += 1

    return step


def expiring() -> Any:
    return acting(ttl=wallaroo.seconds(1), ttl_time="event")


def lines(name: str = "in") -> Any:
    return source(NOWHERE, name).with_event_time(time_of, allow_before_1980=True)


def kafka(name: str = "in") -> Any:
    config = wallaroo.KafkaSourceConfig(name, "topic", "127.0.0.1:9092", decode)
    return wallaroo.source("kafka" if name == "in" else name, config).with_event_time(
        time_of, allow_before_1980=True
    )


def steps(pipeline: Any) -> list[str]:
    plan = build("ordering", pipeline.to_sink(sink(NOWHERE))).plan
    return [step.step_name for stage in plan.stages for step in stage.steps]


def ten_seconds() -> Any:
    return wallaroo.range_windows(wallaroo.seconds(10)).over(Counted())


NEEDED = {
    "behind a second shuffle": lambda: (
        lines().key_by(by_itself).to(count_one).key_by(by_first_word).to(timers())
    ),
    "state that expires": lambda: (
        lines().key_by(by_itself).to(count_one).key_by(by_first_word).to(expiring())
    ),
    "sources meet": lambda: lines().merge(lines("in2")).key_by(by_itself).to(timers()),
    "partitions meet": lambda: kafka().key_by(by_itself).to(timers()),
    "behind windows": lambda: lines().key_by(by_itself).to(ten_seconds()).to(as_text).to(timers()),
    "a source goes two ways": lambda: (
        lines().key_by(by_itself).merge(lines("in2").key_by(by_first_word)).to(timers())
    ),
}
NOT_NEEDED = {
    "one source": lambda: lines().key_by(by_itself).to(timers()),
    "no event time": lambda: (
        source(NOWHERE).key_by(by_itself).to(count_one).key_by(by_first_word).to(timers())
    ),
    "no step in event time": lambda: (
        lines().key_by(by_itself).to(count_one).key_by(by_first_word).to(acting())
    ),
    "state expires by the clock": lambda: (
        kafka().key_by(by_itself).to(acting(ttl=wallaroo.seconds(1)))
    ),
    "lists": lambda: kafka().key_by(by_itself).batch(5, within=wallaroo.seconds(1)).map(str),
    "in order already": lambda: kafka().key_by(by_itself).in_order().to(timers()),
}


@pytest.mark.parametrize("pipeline", NEEDED.values(), ids=NEEDED)
def test_events_are_put_in_order_where_nothing_else_does(pipeline: Any) -> None:
    found = steps(pipeline())

    assert found.index(IN_ORDER) == found.index("acts") - 1


@pytest.mark.parametrize("pipeline", NOT_NEEDED.values(), ids=NOT_NEEDED)
def test_events_are_not_held_where_they_have_an_order_or_need_none(pipeline: Any) -> None:
    assert IN_ORDER not in steps(pipeline())


def test_the_second_of_two_steps_finds_events_in_order() -> None:
    second = wallaroo.state_computation(
        "second", state=Count, ttl=wallaroo.nanoseconds(5), ttl_time="event"
    )
    both = kafka().key_by(by_itself).to(timers()).to(second(lambda event, own: event))

    assert [name for name in steps(both) if name.startswith("in order")] == [IN_ORDER]


def test_explain_says_that_results_wait_for_the_watermark() -> None:
    pipeline = kafka().key_by(by_itself).to(timers()).to_sink(sink(NOWHERE))

    (note,) = [note for note in build("ordering", pipeline).plan.notes if "'acts'" in note]
    assert "in order of time, so its results wait for the watermark" in note


@pytest.mark.parametrize(
    ("over", "is_warned_of"),
    [
        (Last(len), True),
        (combine_of(n=Counted(), all=Collect(len).where(len)), True),
        (Counted(), False),
    ],
    ids=lambda value: value.name() if hasattr(value, "name") else "",
)
@pytest.mark.parametrize("is_ordered", [True, False])
def test_an_aggregation_by_arrival_over_the_right_events_of_a_join_is_warned_of(
    over: Any, is_warned_of: bool, is_ordered: bool
) -> None:
    left, right = (kafka(name).key_by(by_itself) for name in ("left", "right"))
    right = right.in_order() if is_ordered else right
    joined = left.join(right, name="join", until=time_of, over=over)
    plan = build("ordering", joined.to_sink(sink(NOWHERE))).plan
    said = [
        line
        for line in text(plan).splitlines()
        if line.startswith("warning: the result of 'join' (")
    ]
    assert len(said) == len(plan.warnings) == (is_warned_of and not is_ordered)
    assert all("Put in_order() behind the key_by of the right side." in line for line in said)


@pytest.mark.parametrize("step", [timers, expiring])
def test_events_stay_in_order_before_a_step_that_loses_its_times(step: Any) -> None:
    """They may wait there in a checkpoint."""
    before = build("ordering", kafka().key_by(by_itself).to(step()).to_sink(sink(NOWHERE))).plan
    plain = build("ordering", kafka().key_by(by_itself).to(acting()).to_sink(sink(NOWHERE))).plan

    plan = with_orders_kept(plain, describe(before)["states"])

    assert plan.state_steps == before.state_steps
    assert compare(dumps(before), dumps(plan)).verdict is Verdict.CHANGED
    assert with_orders_kept(plan, describe(before)["states"]) == plan
    assert with_orders_kept(plain, ["acts"]) == plain


def test_a_renamed_step_is_refused_with_where_its_events_wait() -> None:
    before = build("ordering", kafka().key_by(by_itself).to(timers()).to_sink(sink(NOWHERE))).plan
    other = kafka().key_by(by_itself).to(count_one).to_sink(sink(NOWHERE))

    comparison = compare(dumps(before), dumps(build("ordering", other).plan))

    assert comparison.verdict is Verdict.INCOMPATIBLE
    assert (
        "State step 'acts' is gone or renamed, and events that wait in order of time for it would "
        "be lost. If it was renamed, rename where they wait, too: `wallaroo state rename "
        "CHECKPOINT 'in order for acts' 'in order for NEW'`."
    ) in comparison.reasons


def test_a_checkpoint_from_before_events_were_put_in_order_goes_on() -> None:
    @wallaroo.state_computation("sets", state=Count)
    def sets(event: str, own: Count, context: wallaroo.Context) -> None:
        own.count += 1
        context.set_timer("due", context.event_time + wallaroo.seconds(5))

    @sets.on_timer
    def due(own: Count, context: wallaroo.Context, name: str) -> str:
        return f"{context.key} {name} {own.count}"

    ordered = lines().key_by(by_itself).to(count_one).key_by(by_first_word).to(sets)
    plan = build("ordering", ordered.to_sink(sink(NOWHERE))).plan
    before = replace(
        plan,
        stages=tuple(
            replace(
                stage, steps=tuple(each for each in stage.steps if not isinstance(each, InOrder))
            )
            for stage in plan.stages
        ),
    )
    assert compare(dumps(before), dumps(plan)).verdict is Verdict.CHANGED
    running = LocalRunner(before)
    at_3 = Input(0, running.frames(0, b"a x"), 0)
    running.commit(running.run_batch([[at_3]], 2))

    running.plan = plan
    at_20 = Input(0, running.frames(0, b"b".ljust(20)), 0)
    result = running.run_batch([[at_20]], 2)

    assert [output.strip() for output in result.outputs[0]] == [b"a due 1"]
