"""The rights that docs/kafka-production.md lists: a user who has these, and no others, reads and
writes exactly once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import wallaroo
from tests.connectors.kafka.broker import Broker, running_broker
from tests.connectors.kafka.fixtures import committed_records
from tests.connectors.kafka.secured import USER
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

pytestmark = [pytest.mark.kafka, pytest.mark.java]
PAGE = Path(__file__).parents[3] / "docs" / "kafka-production.md"
NAMES = {"topic": "in", "group": "wallaroo-words"}


def rights() -> Iterator[tuple[str, str, str, str]]:
    """Return resource, name, pattern and operation of each line of the page's table."""
    table = re.search(r"^## Rights$.*?^(\| for .*?)\n\n", PAGE.read_text(), re.M | re.S)
    assert table
    for line in table[1].splitlines()[2:]:
        who, resource, pattern, operations = line.strip("| ").split(" | ")
        kind = re.match(r"topic|group|transactional id", resource)
        assert kind
        named = re.search(r"`(wallaroo-sink-|wallaroo-unused)`", resource)
        name = named[1] if named else NAMES[kind[0]]
        if who.startswith("the sink") and kind[0] == "topic":
            name = "out"
        for operation in operations.split(", "):
            yield kind[0].replace(" ", "_").upper(), name, pattern.upper(), operation.upper()


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that refuses what was not allowed; its open listener may do everything."""
    with running_broker(
        tmp_path_factory.mktemp("strict"),
        is_secured=True,
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
    ) as started:
        for topic in ("in", "out"):
            started.create(topic)
        yield started


@pytest.fixture
def guarded(strict: Broker) -> Broker:
    """The same, with empty topics and no rights."""
    strict.admin.forbid(USER)
    for topic in ("in", "out"):
        strict.create_again(topic)
    return strict


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True)
def text(value: bytes) -> str:
    return value.decode()


def allow(broker: Broker, *lacking: str) -> None:
    """Give the user all rights of the page but one: a resource, its name and the operation."""
    for right in rights():
        # who may write or read may describe, too
        if right[:2] != lacking[:2] or lacking[2] not in ("DESCRIBE", right[3]):
            broker.admin.allow(USER, *right)


def copy(
    broker: Broker, folder: Path, host: InProcessHost | None = None, topic: str = "out"
) -> Run:
    assert broker.secured is not None
    brokers, options = broker.secured.address, broker.secured.options
    words = wallaroo.KafkaSourceConfig(
        "words", "in", brokers, text, until_now=True, options=options
    )
    out = wallaroo.KafkaSinkConfig(topic, brokers, options=options, name="out")
    application = wallaroo.build_application(
        "copy", wallaroo.source("words", words).map(str.upper).to_sink(out)
    )
    options_of_run = RunOptions(checkpoint=folder, status_address=None)
    run = Run(application, options_of_run, host or InProcessHost(2))
    run.begin()
    return run


def produce(broker: Broker, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for value in values:
        producer.produce("in", value)
    assert producer.flush(30) == 0


def values(broker: Broker) -> list[bytes]:
    return [record.value() for record in committed_records(broker, "out")]  # type: ignore[attr-defined]


def test_the_rights_of_the_page_are_enough(guarded: Broker, tmp_path: Path) -> None:
    allow(guarded)

    for some in (["a", "b"], ["c"]):  # the second run continues the transactions of the first
        produce(guarded, *some)
        run = copy(guarded, tmp_path / "state")
        assert run.wait(400)
        assert run.exception is None

    assert values(guarded) == [b"A", b"B", b"C"]


class UnopenedHost(InProcessHost):
    """A host that must not be opened."""

    def open(self, *_: object) -> None:
        raise AssertionError("the host was opened before the sink was checked")


LACKING = [
    ("TOPIC", "out", "WRITE", "no right Write on topic 'out'"),
    ("TOPIC", "out", "READ", "no right Read on topic 'out'"),
    ("TOPIC", "out", "DESCRIBE", "give the user the right Describe on it"),
    ("TRANSACTIONAL_ID", "wallaroo-sink-", "WRITE", "no right Write on transactional ids"),
    ("GROUP", "wallaroo-sink-", "READ", "no right Read on groups"),
]


@pytest.mark.parametrize(("resource", "name", "operation", "message"), LACKING)
def test_a_right_of_a_sink_that_is_missing_ends_the_run_before_the_host_is_opened(
    guarded: Broker, tmp_path: Path, resource: str, name: str, operation: str, message: str
) -> None:
    allow(guarded, resource, name, operation)
    produce(guarded, "a")
    host = InProcessHost if resource == "GROUP" else UnopenedHost  # found by the first transaction

    run = copy(guarded, tmp_path / "state", host(2))
    assert run.wait(400)

    assert message in str(run.exception)
    assert values(guarded) == []


SOURCE_LACKING = [
    ("TOPIC", "in", "READ", "topic 'in'"),
    ("TOPIC", "in", "DESCRIBE", "topic 'in'"),
]


@pytest.mark.parametrize(("resource", "name", "operation", "message"), SOURCE_LACKING)
def test_a_right_of_a_source_that_is_missing_ends_the_run(
    guarded: Broker, tmp_path: Path, resource: str, name: str, operation: str, message: str
) -> None:
    allow(guarded, resource, name, operation)
    produce(guarded, "a")

    run = copy(guarded, tmp_path / "state")
    assert run.wait(400)

    assert message in str(run.exception)
    assert "Read" in str(run.exception) or "Describe" in str(run.exception)


def test_a_topic_of_a_sink_that_is_missing_ends_the_run_before_the_host_is_opened(
    guarded: Broker, tmp_path: Path
) -> None:
    allow(guarded)

    run = copy(guarded, tmp_path / "state", UnopenedHost(2), topic="ou")
    assert run.wait(400)

    assert "has no topic 'ou'. Did you mean 'out'?" in str(run.exception)
