"""Pipelines are values; applications know their place, their hooks and their plan."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import wallaroo
from tests.unit.check.checked_steps import SINK, count, first_letter, shout, tcp, whisper
from wallaroo.graph.nodes import SinkNode, StepNode


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


@pytest.mark.parametrize(
    "call",
    [
        lambda: wallaroo.range_windows(wallaroo.seconds(1)),
        lambda: wallaroo.count_windows(3),
        lambda: wallaroo.ApplicationBuilder("old"),
        lambda: wallaroo.DefaultKafkaSourceCLIParser(None, name="kafka"),
        lambda: wallaroo.kafka_parse_sink_options([]),
        lambda: wallaroo.experimental.SourceConnectorConfig("a", port=7100),
    ],
)
def test_what_is_not_here_yet_says_so_in_one_sentence(call: Any) -> None:
    with pytest.raises(
        wallaroo.NotYetError, match=r"is not here yet: .* later version; until then .*\.$"
    ) as raised:
        call()
    assert "\n" not in str(raised.value)
