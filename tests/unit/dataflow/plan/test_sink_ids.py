"""Which sink of a changed application is which sink of its checkpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest

import wallaroo
from tests.unit.dataflow.check.checked_steps import SINK, encode, tcp
from wallaroo import sinks
from wallaroo.dataflow.plan.json import dumps, with_old_ids
from wallaroo.dataflow.plan.model import Plan
from wallaroo.errors import WallarooParameterError
from wallaroo.experimental import SinkConnectorConfig


def plan(*configs: Any) -> Plan:
    """Return the plan of an application with a pipeline for each sink."""
    ends = [tcp(f"in{number}").to_sink(config) for number, config in enumerate(configs)]
    return wallaroo.build_application("app", *ends).plan


def ids(made: Plan) -> list[str]:
    return [sink.name for sink in made.sinks]


def continued(old: Plan, new: Plan) -> list[str]:
    return ids(with_old_ids(new, dumps(old)).plan)


def receiver(port: int, **options: Any) -> wallaroo.TCPSinkConfig:
    return wallaroo.TCPSinkConfig("127.0.0.1", port, encode, **options)


def own_function(outputs: list[bytes]) -> None:
    pass


def other_function(outputs: list[bytes]) -> None:
    pass


def both(kind: Any, first: tuple[Any, ...], second: tuple[Any, ...], **options: Any) -> Any:
    return pytest.param(
        kind(*first, encoder=encode, **options), kind(*second, encoder=encode, **options)
    )


PAIRS = [
    both(wallaroo.TCPSinkConfig, ("h", 1), ("h", 2)),
    both(wallaroo.FileSinkConfig, ("a.txt",), ("b.txt",)),
    both(wallaroo.FileSinkConfig, ("a/out.txt",), ("b/out.txt",)),
    both(wallaroo.KafkaSinkConfig, ("t", "a:9092"), ("u", "a:9092")),
    both(wallaroo.KafkaSinkConfig, ("t", "a:9092"), ("t", "b:9092")),
    both(sinks.PostgresSinkConfig, ("host=a password=x", "t", ["c"]), ("host=b", "t", ["c"])),
    both(sinks.SQLiteSinkConfig, ("a.db", "t", ["c"]), ("b.db", "t", ["c"])),
    both(sinks.RedisSinkConfig, ("redis://:pw@a/0",), ("redis://:pw@a/1",), stream="s"),
    both(sinks.NATSSinkConfig, ("nats://me:pw@a", "s"), ("nats://me:pw@b", "s")),
    both(sinks.RabbitMQSinkConfig, ("amqp://me:pw@a/v",), ("amqp://me:pw@a/w",), exchange="e"),
    both(sinks.MQTTSinkConfig, ("a", "t"), ("b", "t")),
    both(sinks.HTTPSinkConfig, ("http://a/in",), ("http://b/in",)),
    both(sinks.HTTPSinkConfig, ("http://a/in?key=pw1",), ("http://a/in?key=pw2",)),
    both(sinks.WebSocketSinkConfig, ("ws://me:pw@a/in",), ("ws://me:pw@b/in",)),
    both(sinks.UDPSinkConfig, ("h", 1), ("h", 2)),
    both(sinks.RollingSinkConfig, ("a",), ("b",)),
    both(sinks.FunctionSinkConfig, (own_function,), (other_function,)),
    pytest.param(
        SinkConnectorConfig("one", encode, None, 7001, "cookie"),
        SinkConnectorConfig("two", encode, None, 7001, "cookie"),
    ),
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_sinks_of_every_kind_keep_their_ids_in_another_order(first: Any, second: Any) -> None:
    old = plan(first, second)
    one, other = ids(old)
    assert one != other
    assert continued(old, plan(second, first)) == [other, one]
    assert continued(old, plan(SINK, second, first)) == ["stdout", other, one]
    assert continued(plan(first), plan(second, first))[1] == ids(plan(first))[0]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_checkpoint_notes_no_secret_of_a_sink(first: Any, second: Any) -> None:
    text = dumps(plan(first, second))
    assert "pw" not in text
    assert "password" not in text


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_an_id_is_a_name_of_a_folder(first: Any, second: Any) -> None:
    for each in ids(plan(first, second)):
        assert set(each) <= {*"-._", *map(chr, range(48, 58)), *map(chr, range(65, 123))}
        assert not each.startswith(".")


def test_an_id_of_targets_does_not_depend_on_the_order() -> None:
    assert ids(plan(receiver(1), receiver(2))) == ids(plan(receiver(2), receiver(1)))[::-1]


def test_sinks_without_a_difference_are_numbered() -> None:
    assert ids(plan(SINK, SINK)) == ["stdout", "stdout-2"]
    topic = wallaroo.KafkaSinkConfig("t", "a:9092", encode)
    old = plan(topic, topic)
    assert continued(old, plan(topic, SINK, topic)) == [ids(old)[0], "stdout", ids(old)[1]]


def test_a_name_is_the_id_wherever_the_sink_writes() -> None:
    old = plan(receiver(1, name="orders"), receiver(2))
    assert ids(old) == ["orders", "tcp"]
    assert continued(old, plan(receiver(2), receiver(3, name="orders"))) == ["tcp", "orders"]


def test_a_sink_that_is_given_a_name_keeps_the_id_that_its_output_has() -> None:
    old = plan(receiver(1), receiver(2))
    new = plan(receiver(2), receiver(1, name="orders"))
    assert continued(old, new) == ["tcp-127.0.0.1-7002".replace("7002", "2"), "tcp-127.0.0.1-1"]
    old_ids = with_old_ids(new, dumps(old)).plan
    moved = with_old_ids(plan(receiver(3, name="orders")), dumps(old_ids))
    assert ids(moved.plan) == ["tcp-127.0.0.1-1"]


def test_a_name_that_is_another_ones_id_does_not_take_its_output() -> None:
    old = plan(receiver(1))
    new = plan(receiver(1), receiver(2, name="tcp"))
    assert continued(old, new) == ["tcp", "tcp-2"]


def test_a_sink_that_is_gone_leaves_its_id_to_no_other_and_may_come_back() -> None:
    old = plan(receiver(1))
    without = with_old_ids(plan(receiver(2)), dumps(old))
    assert ids(without.plan) == ["tcp-2"]
    noted = dumps(without.plan, without.gone)
    assert ids(with_old_ids(plan(receiver(3), receiver(2)), noted).plan)[0] not in ("tcp", "tcp-2")
    again = with_old_ids(plan(receiver(2), receiver(1)), noted)
    assert (ids(again.plan), again.gone) == (["tcp-2", "tcp"], {})


def test_an_id_without_any_output_is_free() -> None:
    """A checkpoint in which nothing is committed belongs to the application that comes."""
    own = with_old_ids(plan(receiver(2)), dumps(plan(receiver(1))), has_commits=False)
    assert (ids(own.plan), own.gone) == (["tcp"], {})


def test_a_topic_at_other_brokers_is_the_same_sink_if_it_is_the_only_one() -> None:
    old = plan(wallaroo.KafkaSinkConfig("t", "a:9092", encode))
    assert continued(old, plan(SINK, wallaroo.KafkaSinkConfig("t", "b:9092", encode)))[1] == "kafka"


def earlier(*kinds: str, like: Plan) -> str:
    """Return a plan.json as versions without names of sinks wrote it."""
    described = json.loads(dumps(like))
    described["sinks"] = {}
    for kind in kinds:
        number = sum(name.partition("-")[0] == kind for name in described["sinks"]) + 1
        described["sinks"][kind if number == 1 else f"{kind}-{number}"] = {"kind": kind}
    return json.dumps(described)


def test_sinks_of_an_earlier_version_keep_their_places_once() -> None:
    new = plan(receiver(1), SINK, receiver(2))
    own = with_old_ids(new, earlier("tcp", "stdout", "tcp", like=new))
    assert (ids(own.plan), own.unclear) == (["tcp", "stdout", "tcp-2"], ())
    assert ids(with_old_ids(plan(receiver(2), receiver(1)), dumps(own.plan)).plan) == [
        "tcp-2",
        "tcp",
    ]


def test_targets_of_an_earlier_version_are_known() -> None:
    """File sinks noted their paths, Kafka's their topics."""
    paths = [wallaroo.FileSinkConfig(path, encode) for path in ("a.txt", "b.txt")]
    described = json.loads(dumps(plan(*paths)))
    described["sinks"] = {
        "file": {"kind": "file", "target": "a.txt"},
        "file-2": {"kind": "file", "target": "b.txt"},
    }
    assert ids(with_old_ids(plan(*reversed(paths)), json.dumps(described)).plan) == [
        "file-2",
        "file",
    ]


def test_sinks_of_an_earlier_version_whose_number_changed_are_unclear() -> None:
    old = earlier("tcp", "tcp", like=plan(receiver(1), receiver(2)))
    own = with_old_ids(plan(receiver(1), receiver(2), receiver(3)), old)
    assert own.unclear == (
        "An earlier version noted no addresses, so which tcp sink is which of 'tcp', 'tcp-2' is "
        "unclear. Run the application once as it was, with this version, and change it then.",
    )


def test_two_sinks_cannot_have_one_name() -> None:
    with pytest.raises(
        WallarooParameterError,
        match=r"(?s)sink 'tcp h:2'.*Its name 'orders' is that of sink 'tcp h:1' \(.*test_sink_ids"
        r".*name='\.\.\.'",
    ):
        plan(
            wallaroo.TCPSinkConfig("h", 1, encode, name="orders"),
            wallaroo.TCPSinkConfig("h", 2, encode, name="orders"),
        )


@pytest.mark.parametrize("name", [7, " ", "a\nb"])
def test_a_name_of_a_sink_is_readable(name: Any) -> None:
    with pytest.raises(WallarooParameterError, match="Its name"):
        plan(receiver(1, name=name))
