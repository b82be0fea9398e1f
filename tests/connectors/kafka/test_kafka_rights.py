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


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Broker]:
    """A broker that refuses what was not allowed; its open listener may do everything."""
    with running_broker(
        tmp_path / "broker",
        is_secured=True,
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
    ) as started:
        started.create("in")
        started.create("out")
        yield started


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True)
def text(value: bytes) -> str:
    return value.decode()


def copy(broker: Broker, folder: Path) -> Run:
    assert broker.secured is not None
    brokers, options = broker.secured.address, broker.secured.options
    words = wallaroo.KafkaSourceConfig(
        "words", "in", brokers, text, until_now=True, options=options
    )
    out = wallaroo.KafkaSinkConfig("out", brokers, options=options, name="out")
    application = wallaroo.build_application(
        "copy", wallaroo.source("words", words).map(str.upper).to_sink(out)
    )
    run = Run(application, RunOptions(checkpoint=folder, status_address=None), InProcessHost(2))
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
    for right in rights():
        guarded.admin.allow(USER, *right)

    for some in (["a", "b"], ["c"]):  # the second run continues the transactions of the first
        produce(guarded, *some)
        run = copy(guarded, tmp_path / "state")
        assert run.wait(180)
        assert run.exception is None

    assert values(guarded) == [b"A", b"B", b"C"]


@pytest.mark.parametrize("lacking", [("TOPIC", "out"), ("TRANSACTIONAL_ID", "wallaroo-sink-")])
def test_a_right_that_is_missing_ends_the_run_and_is_named(
    guarded: Broker,
    tmp_path: Path,
    lacking: tuple[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for resource, name, pattern, operation in rights():
        if (resource, name) != lacking or operation != "WRITE":
            guarded.admin.allow(USER, resource, name, pattern, operation)
    produce(guarded, "a")

    run = copy(guarded, tmp_path / "state")
    assert run.wait(180)

    assert run.exception is not None
    assert "uthorization failed" in caplog.text + str(run.exception)
    assert values(guarded) == []
