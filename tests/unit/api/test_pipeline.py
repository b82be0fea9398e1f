"""Pipelines are values; applications know their place, their hooks and their plan."""

from __future__ import annotations

import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.unit.dataflow.check.checked_steps import (
    SINK,
    count,
    first_letter,
    shout,
    tcp,
    whisper,
)
from wallaroo.dataflow.graph.nodes import KeyByNode, SinkNode, StepNode
from wallaroo.errors import WallarooParameterError
from wallaroo.testing import run_local


def test_a_builder_call_leaves_its_pipeline_as_it_was() -> None:
    start = tcp("in")
    before = start.node
    start.to(shout)
    assert start.node is before


def test_key_by_and_collect_give_keyed_pipelines_and_merges_of_them_are_keyed() -> None:
    keyed = tcp("a").key_by(first_letter)
    assert isinstance(keyed.to(shout), wallaroo.KeyedPipeline)
    assert isinstance(keyed.merge(tcp("b").collect()), wallaroo.KeyedPipeline)
    assert not isinstance(keyed.merge(tcp("b")), wallaroo.KeyedPipeline)


def test_a_merge_with_something_else_is_refused() -> None:
    other: Any = "x"
    with pytest.raises(WallarooParameterError, match=r"'x' is not a pipeline") as caught:
        tcp("a").merge(other)
    assert caught.value.problems[0].place.startswith(__file__)


def test_nodes_know_the_line_of_the_users_call() -> None:
    pipeline = tcp("in").to(shout)
    line = test_nodes_know_the_line_of_the_users_call.__code__.co_firstlineno + 1
    assert isinstance(pipeline.node, StepNode)
    assert pipeline.node.place == f"{__file__}:{line}"


def test_to_and_to_of_a_called_step_are_the_same() -> None:
    node = tcp("in").to(shout()).node
    assert isinstance(node, StepNode)
    assert node.step is shout


def test_a_clone_is_equal_and_of_its_own() -> None:
    pipeline = tcp("in").key_by(first_letter)
    clone = pipeline.clone()
    assert clone is not pipeline
    assert (clone.node, type(clone)) == (pipeline.node, wallaroo.KeyedPipeline)


def test_to_sinks_takes_lists_tuples_and_one_alone() -> None:
    alone: Any = SINK
    for sinks in ([SINK], (SINK,), alone):
        node = tcp("in").to_sinks(sinks).node
        assert isinstance(node, SinkNode)
        assert node.sinks == (SINK,)


def test_an_application_carries_its_name_graph_and_a_plan_that_can_be_pickled() -> None:
    application = wallaroo.build_application(
        "votes", tcp("in").key_by(first_letter).to(count).to_sink(SINK)
    )
    again = pickle.loads(pickle.dumps(application.plan))
    assert application.name == again.application == "votes"
    assert [step.step_name for stage in again.stages for step in stage.steps] == ["count"]


def test_names_of_parameters_are_wallaroos() -> None:
    pipeline = wallaroo.source(name="in", source_config=tcp("in").node.config)  # type: ignore[union-attr]  # a SourceNode
    closed = pipeline.to(computation=whisper).to_sink(sink_config=SINK)
    assert wallaroo.build_application(application_name="a", pipeline=closed).serializer is None


def test_an_application_modules_own_serialize_and_deserialize_are_taken() -> None:
    module: dict[str, Any] = {"__name__": "an_app", "tcp": tcp, "SINK": SINK, "wallaroo": wallaroo}
    exec(
        "import pickle\n"
        "def serialize(value): return b'!' + pickle.dumps(value)\n"
        "def deserialize(packed): return pickle.loads(packed[1:])\n"
        "application = wallaroo.build_application('app', tcp('in').to_sink(SINK))\n",
        module,
    )
    application = module["application"]
    assert (
        application.plan.serializer
        == application.serializer
        == (module["serialize"], module["deserialize"])
    )


def test_one_hook_alone_or_wallaroos_own_are_not_hooks() -> None:
    application = wallaroo.build_application("app", tcp("in").to_sink(SINK))
    assert application.with_hooks_of({"serialize": pickle.dumps}) is application
    assert (
        application.with_hooks_of(
            {"serialize": wallaroo.serialize, "deserialize": wallaroo.deserialize}
        )
        is application
    )
    own = application.with_hooks_of({"serialize": pickle.dumps, "deserialize": pickle.loads})
    assert own.plan.serializer == (pickle.dumps, pickle.loads)


def test_the_default_serializer_is_pickle() -> None:
    assert wallaroo.deserialize(wallaroo.serialize({"a": [1, None]})) == {"a": [1, None]}


def trimmed(text: str) -> str:
    return text.strip()


def steps_of(pipeline: Any) -> list[Any]:
    built = wallaroo.build_application("app", pipeline.to_sink(SINK))
    return [step for stage in built.plan.stages for step in stage.steps]


def test_plain_functions_are_steps_named_after_themselves_lambdas_after_their_place() -> None:
    line = steps_of.__code__.co_firstlineno
    pipeline = tcp("in").map(trimmed).filter(lambda text: text).peek(print, name="shown")

    names = [(step.kind, step.step_name) for step in steps_of(pipeline)]

    assert names[0] == ("computation", "trimmed")
    assert names[1][0] == "filter"
    assert names[1][1].startswith(f"filter at {Path(__file__).name}:")
    assert int(names[1][1].rpartition(":")[2]) > line
    assert names[2] == ("peek", "shown")


def test_several_lambdas_on_one_line_have_names_of_their_own() -> None:
    pipeline = tcp("in").map(lambda text: text * 2).map(lambda text: text + "!")
    first, second = (step.step_name for step in steps_of(pipeline))

    assert first != second
    assert first.startswith("computation at test_pipeline.py:")
    wallaroo.build_application("app", pipeline.to_sink(wallaroo.StdoutSinkConfig()))


def test_a_plain_function_is_a_key_extractor() -> None:
    by_function = tcp("in").key_by(trimmed).node
    by_lambda = tcp("in").key_by(lambda text: (text, 1)).node

    assert isinstance(by_function, KeyByNode)
    assert by_function.extractor.step_name == "trimmed"
    assert isinstance(by_lambda, KeyByNode)
    assert by_lambda.extractor.step_name.startswith("key_by at test_pipeline.py:")
    assert pickle.loads(pickle.dumps(by_lambda.extractor)).extract_key("a") == ("a", 1)


def test_a_class_of_keys_is_a_key_extractor() -> None:
    """An event is converted; any other class is taken for a mistake."""
    pipeline = tcp("in").key_by(int).to(count).to_sink(SINK)
    application = wallaroo.build_application("numbers", pipeline)
    run = run_local(application, {"in": [b"1", b"01", b"2"]})
    assert set(run.state(count.step_name)) == {1, 2}
    unusable: Any = Decimal
    pipeline = tcp("in").key_by(unusable).to(count).to_sink(SINK)
    with pytest.raises(WallarooParameterError, match="given the class Decimal instead of a key"):
        wallaroo.build_application("no", pipeline)


def test_plain_functions_travel_by_name_and_lambdas_by_value() -> None:
    by_name, by_value = steps_of(tcp("in").map(trimmed, on_error="skip").map(lambda text: text * 2))

    arrived = pickle.loads(pickle.dumps(by_name))
    assert arrived.function is trimmed
    assert (type(arrived), arrived.on_error) == (wallaroo.Computation, "skip")
    assert pickle.loads(pickle.dumps(by_value)).function("a") == "aa"


def test_a_plain_function_may_be_used_twice_but_not_as_two_kinds_of_one_name() -> None:
    assert len(steps_of(tcp("in").map(trimmed).map(trimmed))) == 2
    with pytest.raises(wallaroo.PipelineError, match="Give each step a name of its own"):
        steps_of(tcp("in").map(trimmed).filter(trimmed))


@pytest.mark.parametrize("given", [7, shout, None])
def test_map_takes_functions_and_steps_of_its_own_kind(given: Any) -> None:
    if given is shout:
        assert steps_of(tcp("in").map(given)) == [shout]
        return
    with pytest.raises(wallaroo.PipelineError, match=r"to\(\) was given"):
        steps_of(tcp("in").map(given))


def test_a_policy_that_there_is_not_is_refused_at_once() -> None:
    with pytest.raises(wallaroo.PipelineError, match="on_error='stopp' is unknown"):
        tcp("in").map(trimmed, on_error="stopp")


def test_map_keeps_the_key() -> None:
    keyed = tcp("in").key_by(first_letter)
    for pipeline in (keyed.map(trimmed), keyed.flat_map(list), keyed.filter(bool), keyed.peek(id)):
        assert isinstance(pipeline, wallaroo.KeyedPipeline)
        steps_of(pipeline.to(count))
