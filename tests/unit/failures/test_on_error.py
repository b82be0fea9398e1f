"""``on_error`` from the decorator to the plan: what can be said, what is refused, where it
shows.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.conformance.apps.tolerant import Count, every_kind
from wallaroo.api.application import Application
from wallaroo.api.building import dead_letters_come_later
from wallaroo.dataflow.plan.explain import text
from wallaroo.dataflow.plan.json import (
    Verdict,
    compare,
    describe,
    dumps,
)
from wallaroo.errors import WallarooParameterError
from wallaroo.sinks import RedisSinkConfig, RollingSinkConfig, SQLiteSinkConfig
from wallaroo.testing import run_local

DECORATORS: dict[str, Callable[..., Any]] = {
    "computation": wallaroo.computation,
    "computation_multi": wallaroo.computation_multi,
    "state_computation": lambda **how: wallaroo.state_computation(state=Count, **how),
    "state_computation_multi": lambda **how: wallaroo.state_computation_multi(state=Count, **how),
    "key_extractor": wallaroo.key_extractor,
    "decoder": wallaroo.decoder,
    "encoder": wallaroo.encoder,
}


def application(policy: str, sink: Any = None) -> Application:
    @wallaroo.computation("parse", on_error=policy)
    def parse(event: bytes) -> int:
        return int(event)

    @wallaroo.decoder
    def decode(payload: bytes) -> bytes:
        return payload

    pipeline = wallaroo.source("in", wallaroo.FileSourceConfig("in", "in.txt", decode)).to(parse)
    return wallaroo.build_application(
        "parsing", pipeline.to_sink(wallaroo.StdoutSinkConfig()), dead_letters=sink
    )


@pytest.mark.parametrize("kind", DECORATORS)
@pytest.mark.parametrize("policy", ["stop", "skip", "dead-letter"])
def test_a_policy_travels_with_a_step_that_travels_by_value(kind: str, policy: str) -> None:
    step = DECORATORS[kind](on_error=policy)(lambda *given: None)

    assert step.on_error == pickle.loads(pickle.dumps(step)).on_error == policy


def test_a_step_stops_the_run_unless_configured_otherwise() -> None:
    assert wallaroo.computation(lambda event: event).on_error == "stop"


@pytest.mark.parametrize("kind", DECORATORS)
@pytest.mark.parametrize("given", ["ignore", None, 1, ["skip"]], ids=repr)
def test_an_unknown_policy_is_refused_with_the_known_ones(kind: str, given: Any) -> None:
    with pytest.raises(
        WallarooParameterError,
        match=r"on_error=.* is unknown\. Choose one of 'stop', 'skip', 'dead-letter'\.",
    ) as caught:
        DECORATORS[kind](on_error=given)

    assert __file__ in caught.value.problems[0].place


def test_a_dead_letter_without_a_sink_is_a_problem_of_its_step() -> None:
    with pytest.raises(WallarooParameterError, match="there is no dead-letter sink") as caught:
        application("dead-letter")

    assert [problem.step for problem in caught.value.problems] == ["step 'parse'"]
    assert "--dead-letters PATH" in caught.value.problems[0].fix


def test_where_the_run_may_bring_a_sink_the_same_is_said_when_it_starts() -> None:
    with dead_letters_come_later():
        built = application("dead-letter")

    with pytest.raises(WallarooParameterError) as at_start:
        wallaroo.run(built)
    with pytest.raises(WallarooParameterError) as at_build:
        application("dead-letter")
    assert str(at_start.value) == str(at_build.value)
    built.with_dead_letters(wallaroo.FileSinkConfig("dead.jsonl")).check_dead_letters()


def test_the_dead_letter_sink_is_the_last_one_and_can_be_replaced() -> None:
    built = application("dead-letter", wallaroo.FileSinkConfig("code.jsonl"))
    changed = built.with_dead_letters(wallaroo.FileSinkConfig("command-line.jsonl"))

    assert [sink.name for sink in changed.plan.sinks] == ["stdout", "dead-letters"]
    assert changed.plan.dead_letters == 1
    assert changed.plan.sinks[1].config.path == "command-line.jsonl"


def test_a_file_in_form_of_lines_gets_no_empty_lines() -> None:
    built = application("dead-letter", wallaroo.FileSinkConfig("dead.jsonl", form="lines"))

    assert built.plan.sinks[1].config.form == "raw"


@pytest.mark.parametrize(
    ("sink", "end"),
    [(RollingSinkConfig("dead"), b""), (wallaroo.FileSinkConfig("dead.jsonl"), b"\n")],
    ids=["the sink adds newlines", "the sink writes outputs as they are"],
)
def test_a_dead_letter_is_one_line_and_no_empty_one(sink: Any, end: bytes) -> None:
    ran = run_local(application("dead-letter", sink), {"in": [b"x", b"y"]}, tasks=1)

    letters = ran.by_sink["dead-letters"]
    assert [letter.partition(b"}")[2] for letter in letters] == [end, end]
    assert len(ran.dead_letters) == 2


def test_something_else_than_a_sink_is_refused() -> None:
    with pytest.raises(
        WallarooParameterError, match=r"dead_letters='dead\.jsonl' is not a sink configuration"
    ):
        application("dead-letter", "dead.jsonl")


def test_the_dead_letter_sink_is_checked_like_any_other() -> None:
    with pytest.raises(WallarooParameterError, match="encoder"):
        application("dead-letter", wallaroo.FileSinkConfig("dead.jsonl", encoder=repr))  # type: ignore[arg-type]  # the mistake


KEYED_SINKS: dict[str, Callable[[Any], Any]] = {
    "kafka": lambda encoder: wallaroo.KafkaSinkConfig("bad", "b:9092", encoder, key="batch"),
    "sqlite": lambda encoder: SQLiteSinkConfig("bad.db", "bad", ["batch"], encoder, key="batch"),
    "redis": lambda encoder: RedisSinkConfig("redis://b", encoder, key="bad:{batch}"),
}


@pytest.mark.parametrize("kind", KEYED_SINKS)
def test_a_sink_whose_letters_would_replace_each_other_is_refused(kind: str) -> None:
    keyed = KEYED_SINKS[kind](None)
    for build in (
        lambda: application("dead-letter", keyed),
        lambda: application("dead-letter", wallaroo.StdoutSinkConfig()).with_dead_letters(keyed),
    ):
        with pytest.raises(WallarooParameterError, match="would replace others") as refused:
            build()
        assert f"dead-letter sink '{keyed.label}': It has key=, and no encoder" in str(
            refused.value
        )


@pytest.mark.parametrize("kind", KEYED_SINKS)
def test_an_encoder_for_dead_letters_may_return_rows_with_a_key(kind: str) -> None:
    encoder = wallaroo.encoder(lambda letter: {"batch": letter["batch"]})
    application("dead-letter", KEYED_SINKS[kind](encoder))


def test_policies_stand_beside_the_checkpoint_and_may_change() -> None:
    before, after = application("stop").plan, application("skip").plan

    assert "on_error" not in describe(before)
    assert describe(after)["on_error"] == {"parse": "skip"}
    comparison = compare(dumps(before), dumps(after))
    assert comparison.verdict is Verdict.CHANGED
    assert comparison.reasons == ("Step 'parse' had on_error='stop' and has 'skip' now.",)
    assert json.loads(dumps(after)) == describe(after)


def test_explain_says_what_becomes_of_failed_events() -> None:
    letters = every_kind("dead-letter", Path("in"), Path("out"))

    assert "on error: 'parse' skips the event" in text(application("skip").plan)
    assert "'encode' writes a dead letter (file out/out2.txt)" in text(letters.plan)
    assert "on error" not in text(application("stop").plan)
