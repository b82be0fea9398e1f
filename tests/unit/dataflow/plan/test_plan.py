"""Where the planner cuts, what it leaves out, and the invariants that every plan keeps."""

from __future__ import annotations

from typing import Any

import pytest

import wallaroo
from tests.unit.dataflow.check.checked_steps import (
    SINK,
    count,
    count_again,
    decode_once,
    encode,
    first_letter,
    last_letter,
    shout,
    tcp,
    whisper,
)
from wallaroo.dataflow.plan.model import (
    ExchangeEntry,
    Plan,
    SourceEntry,
    ToBranches,
    ToExchange,
    ToSinks,
)


def plan(*pipelines: Any) -> Plan:
    return wallaroo.build_application("app", *pipelines).plan


def shape(*pipelines: Any) -> list[str]:
    """One line a stage: level, steps, exit."""
    made = plan(*pipelines)
    return [
        f"{stage.level} {'+'.join(step.step_name for step in stage.steps) or '-'} "
        f"{leave(stage.exit)}"
        for stage in made.stages
    ]


def leave(exit_: ToExchange | ToSinks | ToBranches) -> str:
    if isinstance(exit_, ToSinks):
        return f"sinks {','.join(map(str, exit_.sinks))}"
    if isinstance(exit_, ToBranches):
        by = f" by {exit_.split.step_name}" if exit_.split else ""
        return f"branches {','.join(map(str, exit_.stages))}{by}"
    how = (
        "same key"
        if exit_.keeps_key
        else exit_.extractor.step_name
        if exit_.extractor
        else "collect"
    )
    return f"> {exit_.stage} by {how}{' raw' if exit_.is_raw else ''}"


def test_a_pipeline_without_a_key_is_one_stage() -> None:
    assert shape(tcp("in").to(shout).to(whisper).to_sink(SINK)) == ["0 shout+whisper sinks 0"]


def test_word_count_cuts_at_its_key_and_ships_events_because_a_step_comes_before() -> None:
    assert shape(tcp("in").to(shout).key_by(first_letter).to(count).to_sink(SINK)) == [
        "0 shout > 1 by first_letter",
        "1 count sinks 0",
    ]


def test_market_spread_ships_the_raw_frames_of_both_sources_into_one_stage() -> None:
    merged = tcp("orders").merge(tcp("market data")).key_by(first_letter).to(count)
    assert shape(merged.to_sink(SINK)) == [
        "0 - > 2 by first_letter raw",
        "0 - > 2 by first_letter raw",
        "1 count sinks 0",
    ]


def test_a_decoder_that_is_not_declared_pure_ships_its_events() -> None:
    once = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", 7010, decode_once))
    closed = once.key_by(first_letter).to(count).to_sink(SINK)

    assert shape(closed) == ["0 - > 1 by first_letter", "1 count sinks 0"]
    (note,) = plan(closed).notes
    assert note.startswith("decoder 'decode_once' runs once for an event")
    assert "declare it pure" in note


def test_a_key_by_after_a_step_says_nothing_about_its_decoder() -> None:
    once = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", 7010, decode_once))

    assert plan(once.to(shout).key_by(first_letter).to(count).to_sink(SINK)).notes == ()


def test_sides_merged_behind_their_own_key_by_meet_in_one_stage() -> None:
    merged = tcp("a").key_by(first_letter).merge(tcp("b").to(shout).key_by(last_letter))
    assert shape(merged.to(count).to_sink(SINK)) == [
        "0 - > 2 by first_letter raw",
        "0 shout > 2 by last_letter",
        "1 count sinks 0",
    ]


def test_steps_behind_a_key_by_run_behind_the_shuffle() -> None:
    assert (
        shape(tcp("in").key_by(first_letter).to(shout).to(count).to_sink(SINK))[1]
        == "1 shout+count sinks 0"
    )


def test_state_steps_of_one_key_are_fused() -> None:
    assert (
        shape(tcp("in").key_by(first_letter).to(count).to(count_again).to_sink(SINK))[1]
        == "1 count+count again sinks 0"
    )


def test_a_second_key_by_with_state_behind_it_is_a_second_shuffle() -> None:
    several = tcp("in").key_by(first_letter).to(count).key_by(last_letter).to(count_again)
    assert shape(several.to_sink(SINK)) == [
        "0 - > 1 by first_letter raw",
        "1 count > 2 by last_letter",
        "2 count again sinks 0",
    ]


def test_a_key_by_that_another_follows_before_any_state_is_left_out_and_said_so() -> None:
    again = tcp("in").key_by(first_letter).to(shout).key_by(last_letter).to(count).to_sink(SINK)
    assert shape(again) == ["0 shout > 1 by last_letter", "1 count sinks 0"]
    assert plan(again).notes == (
        "key_by 'first_letter' shuffles nothing: key_by 'last_letter' follows before any state "
        "step.",
    )


def test_a_key_by_in_front_of_a_collect_is_left_out() -> None:
    assert shape(tcp("in").key_by(first_letter).collect().to(count).to_sink(SINK)) == [
        "0 - > 1 by collect",
        "1 count sinks 0",
    ]


def test_a_key_by_without_state_behind_it_is_left_out_on_both_sides_of_a_merge() -> None:
    merged = (
        tcp("a").key_by(first_letter).merge(tcp("b").key_by(last_letter)).to(shout).to_sink(SINK)
    )
    assert shape(merged) == ["0 shout sinks 0", "0 shout sinks 0"]
    assert len(plan(merged).notes) == 2


def test_a_collect_is_never_left_out() -> None:
    assert shape(tcp("in").collect().to_sink(SINK)) == ["0 - > 1 by collect", "1 - sinks 0"]
    assert shape(tcp("in").collect().to(shout).key_by(first_letter).to(count).to_sink(SINK)) == [
        "0 - > 1 by collect",
        "1 shout > 2 by first_letter",
        "2 count sinks 0",
    ]


def test_steps_behind_a_merge_without_a_key_are_copied_into_both_stages() -> None:
    assert shape(tcp("a").to(shout).merge(tcp("b")).to(whisper).to_sink(SINK)) == [
        "0 shout+whisper sinks 0",
        "0 whisper sinks 0",
    ]


def test_keyed_streams_merged_behind_their_steps_meet_by_the_key_they_have() -> None:
    merged = (
        tcp("a")
        .key_by(first_letter)
        .to(shout)
        .merge(tcp("b").key_by(last_letter).to(whisper))
        .to(count)
    )
    assert shape(merged.to_sink(SINK)) == [
        "0 - > 1 by first_letter raw",
        "1 shout > 4 by same key",
        "0 - > 3 by last_letter raw",
        "1 whisper > 4 by same key",
        "2 count sinks 0",
    ]


def test_merges_of_merges_with_unequal_depth_meet_behind_the_deepest() -> None:
    deep = tcp("a").key_by(first_letter).to(count).merge(tcp("b"))
    every = deep.merge(tcp("c").to(shout)).key_by(last_letter).to(count_again)
    assert shape_of_unlike(every) == [
        "0 - > 1 by first_letter raw",
        "1 count > 4 by last_letter",
        "0 - > 4 by last_letter raw",
        "0 shout > 4 by last_letter",
        "2 count again sinks 0",
    ]


def shape_of_unlike(pipeline: Any) -> list[str]:
    return shape(pipeline.to_sink(SINK))


def test_a_kept_collect_merged_with_an_idle_key_by_settles_alone() -> None:
    merged = tcp("a").collect().merge(tcp("b").key_by(first_letter)).to(shout).to_sink(SINK)
    assert shape(merged) == ["0 - > 2 by collect", "0 shout sinks 0", "1 shout sinks 0"]


def test_sinks_are_named_by_kind_and_target_and_all_get_everything() -> None:
    receivers = [wallaroo.TCPSinkConfig("127.0.0.1", port, encode) for port in (7002, 7003)]
    made = plan(tcp("in").to_sinks([*receivers, SINK]))
    names = [sink.name for sink in made.sinks]
    assert names == ["tcp-127.0.0.1-7002", "tcp-127.0.0.1-7003", "stdout"]
    assert made.stages[0].exit == ToSinks((0, 1, 2))


def test_sources_keep_their_label_and_decoder() -> None:
    config = wallaroo.FileSourceConfig("lines", "in.txt")
    made = plan(wallaroo.source("label", config).to_sink(SINK))
    source = made.sources[0]
    assert (source.pipeline, source.config) == ("label", config)
    assert source.decoder.function is config.decoder.function


def test_a_pipeline_of_thousands_of_steps_is_planned() -> None:
    pipeline: Any = tcp("in")
    for _ in range(3000):
        pipeline = pipeline.to(shout)
    assert len(plan(pipeline.to_sink(SINK)).stages[0].steps) == 3000


MANY: dict[str, Any] = {
    "unkeyed": tcp("a").to(shout).to_sink(SINK),
    "collect": tcp("a").collect().to(count).to_sink(SINK),
    "several keys": tcp("a")
    .key_by(first_letter)
    .to(count)
    .key_by(last_letter)
    .to(count_again)
    .to_sink(SINK),
    "merge of merges": tcp("a")
    .merge(tcp("b"))
    .merge(tcp("c").key_by(first_letter).to(shout).merge(tcp("d").to(whisper)))
    .key_by(last_letter)
    .to(count)
    .to_sink(SINK),
}


@pytest.mark.parametrize("pipeline", MANY.values(), ids=MANY.keys())
def test_plans_keep_the_invariants_of_the_model(pipeline: Any) -> None:
    made = plan(pipeline)
    assert [stage.id for stage in made.stages] == list(range(len(made.stages)))
    for stage in made.stages:
        assert stage.why.endswith(".")
        producers = [
            other
            for other in made.stages
            if isinstance(other.exit, ToExchange) and other.exit.stage == stage.id
        ]
        if isinstance(stage.entry, SourceEntry):
            assert (stage.level, producers) == (0, [])
            assert not any(step.is_stateful for step in stage.steps)
        else:
            assert stage.entry == ExchangeEntry()
            assert stage.level == 1 + max(producer.level for producer in producers)
    assert sorted(
        stage.entry.source for stage in made.stages if isinstance(stage.entry, SourceEntry)
    ) == list(range(len(made.sources)))


def is_short(event: str) -> bool:
    return len(event) < 3


def test_a_branch_is_two_stages_of_the_same_level() -> None:
    short, long = tcp("in").to(shout).branch(is_short)

    assert shape(short.to(whisper).to_sink(SINK), long.to_sink(SINK)) == [
        "0 shout branches 1,2 by is_short",
        "0 whisper sinks 0",
        "0 - sinks 1",
    ]


def test_a_pipeline_that_goes_on_twice_after_its_key_by_is_shuffled_once() -> None:
    keyed = tcp("in").key_by(first_letter)

    assert shape(keyed.to(count).to_sink(SINK), keyed.to(count_again).to_sink(SINK)) == [
        "0 - > 1 by first_letter raw",
        "1 - branches 2,3",
        "1 count sinks 0",
        "1 count again sinks 1",
    ]


def test_what_is_merged_right_after_its_key_by_meets_the_other_side_in_one_shuffle() -> None:
    keyed = tcp("a").key_by(first_letter)
    merged = keyed.merge(tcp("b").key_by(last_letter)).to(count)

    assert shape(merged.to_sink(SINK), keyed.to(count_again).to_sink(SINK)) == [
        "0 - branches 1,2",
        "0 - > 4 by first_letter",
        "0 - > 5 by first_letter",
        "0 - > 4 by last_letter raw",
        "1 count sinks 0",
        "1 count again sinks 1",
    ]


def test_sides_of_a_branch_that_meet_before_a_state_step_meet_where_they_are() -> None:
    short, long = tcp("in").key_by(first_letter).to(count).branch(is_short)

    assert shape(short.merge(long.to(shout)).to(count_again).to_sink(SINK)) == [
        "0 - > 1 by first_letter raw",
        "1 count branches 2,3 by is_short",
        "1 - branches 4",
        "1 shout branches 4",
        "1 count again sinks 0",
    ]


def test_sides_of_a_branch_that_meet_before_a_key_by_leave_through_one_exit() -> None:
    short, long = tcp("in").branch(is_short)

    assert shape(short.merge(long.to(shout)).key_by(first_letter).to(count).to_sink(SINK)) == [
        "0 - branches 1,2 by is_short",
        "0 - branches 3",
        "0 shout branches 3",
        "0 - > 4 by first_letter",
        "1 count sinks 0",
    ]


def test_a_branch_that_meets_another_source_goes_through_the_shuffle_by_its_key() -> None:
    short, long = tcp("in").key_by(first_letter).to(count).branch(is_short)
    other = tcp("other").key_by(first_letter).to(whisper)

    assert shape(short.merge(other).to(count_again).to_sink(SINK), long.to_sink(SINK)) == [
        "0 - > 1 by first_letter raw",
        "1 count branches 2,3 by is_short",
        "1 - > 6 by same key",
        "1 - sinks 1",
        "0 - > 5 by first_letter raw",
        "1 whisper > 6 by same key",
        "2 count again sinks 0",
    ]


def test_steps_after_a_merge_of_both_sides_run_in_each() -> None:
    short, long = tcp("in").branch(is_short)

    assert shape(short.merge(long).to(shout).to_sink(SINK)) == [
        "0 - branches 1,2 by is_short",
        "0 shout sinks 0",
        "0 shout sinks 0",
    ]


def test_a_key_by_is_left_out_only_if_no_way_on_needs_it() -> None:
    keyed = tcp("in").key_by(first_letter)

    assert plan(keyed.to(shout).to_sink(SINK), keyed.to(whisper).to_sink(SINK)).levels == 1
    assert plan(keyed.to(shout).to_sink(SINK), keyed.to(count).to_sink(SINK)).levels == 2


def test_pipelines_that_share_nothing_are_one_application() -> None:
    first = tcp("a").to(shout).to_sink(SINK)
    second = tcp("b").key_by(first_letter).to(count).to_sink(SINK)

    assert shape(first, second) == [
        "0 shout sinks 0",
        "0 - > 2 by first_letter raw",
        "1 count sinks 1",
    ]


def test_the_predicate_is_a_step_of_the_plan() -> None:
    short, long = tcp("in").branch(is_short, name="short ones", on_error="skip")

    made = plan(short.to_sink(SINK), long.to_sink(SINK))

    assert [step.step_name for step in made.steps] == ["decode", "short ones", "encode"]
