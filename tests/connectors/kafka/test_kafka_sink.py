"""The Kafka sink against a real broker: exactly once through kills, broker failures and zombies."""

from __future__ import annotations

import itertools
import json
import re
import signal
from array import array
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.connectors.kafka.broker import Broker, running_broker
from tests.connectors.kafka.child import (
    DRAIN_SECONDS,
    TASKS,
    changes_of,
    outputs_of,
    stage,
)
from tests.connectors.kafka.fixtures import committed_records
from tests.forks import Forks
from tests.sampling import sampled
from tests.unit.sinks import killed_driver
from tests.unit.sinks.identities import CHECKPOINT, commit_of, history_to
from wallaroo.connectors.kafka.client import Inquiry
from wallaroo.connectors.kafka.committer import KafkaSystem
from wallaroo.connectors.kafka.output import KafkaOutput, pack
from wallaroo.connectors.kafka.sink import KafkaSinkConfig
from wallaroo.errors import CheckpointError, PeerError, WallarooParameterError
from wallaroo.sinks.changes import Delete
from wallaroo.sinks.interface import SinkCommitter
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import CommitContext
from wallaroo.sinks.staging import Staged

pytestmark = pytest.mark.kafka
Eventually = Callable[..., None]
ROOT = Path(__file__).resolve().parents[3]
BATCHES = 5
FAULTS = [
    "kafka.handed:2",
    "kafka.begin:2",
    "kafka.produced:2",
    "kafka.ledger:2",
    "kafka.committed:1",
    "kafka.committed:2",
    "kafka.left:2",
    "outbox.pending.write:2",
    "outbox.pending.remove:2",
    "outbox.remove:1",
    "commit.before:3",
    "commit.after:3",
]


@dataclass
class Place:
    """A topic and an outbox."""

    broker: Broker
    topic: str
    folder: Path
    delivery: str = "exactly-once"
    child: Forks | None = None

    @property
    def config(self) -> KafkaSinkConfig:
        return KafkaSinkConfig(self.topic, self.broker.address, delivery=self.delivery)

    @property
    def staging(self) -> Path:
        return self.folder / "staging"

    def opened(self, batch: int = -1, tokens: list[Any] | None = None) -> SinkCommitter:
        committer = self.config.committer("s", self.staging, True)
        committer.recover(history_to(batch), tokens or [])
        return committer

    def staged(self, batch: int) -> list[Any]:
        return stage(self.config, self.staging, batch)

    def values(self, isolation: str = "read_committed") -> list[str]:
        records: list[Any] = committed_records(self.broker, self.topic, isolation)
        return [record.value().decode() for record in records]

    def run_child(self, fault: str = "", together: int = 1, *key: str) -> int:
        arguments = (self.broker.address, self.topic, self.delivery, self.folder, BATCHES, together)
        assert self.child is not None
        return self.child.run(*arguments, *key, WALLAROO_FAULT=fault)[0]


@pytest.fixture
def place(broker: Broker, topic: str, tmp_path: Path, child_of: Callable[..., Forks]) -> Place:
    return Place(broker, topic, tmp_path, child=child_of("tests.connectors.kafka.child"))


def expected(batches: int) -> list[str]:
    return [
        value
        for batch in range(batches)
        for task in range(TASKS)
        for value, _, _ in outputs_of(batch, task)
    ]


def test_batches_arrive_in_order_and_the_outbox_is_empty_afterwards(place: Place) -> None:
    committer = place.opened()
    for batch in range(BATCHES):
        committer.commit(commit_of(batch), place.staged(batch))
    committer.commit(commit_of(BATCHES), [None, None])
    committer.close(DRAIN_SECONDS)

    status = committer.status()
    assert place.values() == expected(BATCHES)
    assert (status.committed_batch, status.outputs) == (BATCHES, len(expected(BATCHES)))
    assert status.pending_bytes == 0
    files = sorted(path.name for path in place.staging.rglob("*") if path.is_file())
    assert files == ["left.json", "target.json"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_driver_killed_at_any_point_and_started_again_sends_every_record_once_and_in_order(
    place: Place, fault: str
) -> None:
    assert place.run_child(fault) == -signal.SIGKILL, "the fault point was never passed"
    assert place.run_child() == 0
    assert place.values() == expected(BATCHES)


def test_batches_that_wait_go_into_one_transaction(broker: Broker, tmp_path: Path) -> None:
    name = f"together-{tmp_path.name}"
    broker.create(name)
    place = Place(broker, name, tmp_path)
    broker.pause()
    try:
        committer = place.opened()
        for batch in range(BATCHES):
            committer.commit(commit_of(batch), place.staged(batch))
    finally:
        broker.resume()
    committer.close(DRAIN_SECONDS)
    assert place.values() == expected(BATCHES)
    assert committer.status().outputs == len(expected(BATCHES))
    with closing(Consumer({"bootstrap.servers": broker.address, "group.id": "tests"})) as consumer:
        _, end = consumer.get_watermark_offsets(TopicPartition(name, 0), 30)
    markers = end - len(expected(BATCHES))  # each transaction ends with one
    assert markers < BATCHES


def test_output_goes_over_tls_with_a_password(place: Place) -> None:
    secured = place.broker.secured
    assert secured is not None
    config = KafkaSinkConfig(place.topic, secured.address, options=secured.options)
    committer = config.committer("s", place.staging, True)
    committer.recover(history_to(-1), [])
    committer.commit(commit_of(0), place.staged(0))
    committer.close(DRAIN_SECONDS)
    assert place.values() == expected(1)
    assert secured.password not in repr(config)


def test_a_driver_killed_after_a_transaction_of_several_batches_sends_none_again(
    place: Place,
) -> None:
    assert place.run_child("kafka.committed:1", together=100) == -signal.SIGKILL
    assert place.run_child(together=100) == 0
    assert place.values() == expected(BATCHES)


def test_at_least_once_repeats_at_most_what_was_in_flight(place: Place) -> None:
    place.delivery = "at-least-once"

    assert place.run_child("kafka.sent:2") == -signal.SIGKILL
    assert place.run_child() == 0

    values = place.values()
    assert list(dict.fromkeys(values)) == expected(BATCHES)
    repeated = len(values) - len(expected(BATCHES))
    assert repeated == len(outputs_of(1, 0)) * TASKS  # the batch that was sent and not recorded


def test_output_waits_for_a_broker_that_is_killed_or_hangs_and_arrives_once(
    tmp_path: Path, eventually: Eventually
) -> None:
    with running_broker(tmp_path / "broker") as broker:
        broker.create("t", 1)
        place = Place(broker, "t", tmp_path / "sink")
        committer = place.opened()
        committer.commit(commit_of(0), place.staged(0))
        eventually(lambda: committer.backlog() == 0, "the first batch has left")

        broker.kill()
        committer.commit(commit_of(1), place.staged(1))
        eventually(
            lambda: "Kafka at 127.0.0.1" in committer.status().waiting_for,
            "the status says what it waits for",
        )
        broker.start()
        eventually(lambda: committer.backlog() == 0, "the second batch has left")
        broker.pause()
        committer.commit(commit_of(2), place.staged(2))
        committer.close(0.5)  # ends although the broker hangs
        broker.resume()
        again = place.opened(2, [])  # the outbox still has the batch
        again.close(DRAIN_SECONDS)

        assert place.values() == expected(3)


def test_an_older_process_is_fenced_by_the_one_that_took_over(
    place: Place, eventually: Eventually
) -> None:
    zombie = place.opened()
    zombie.commit(commit_of(0), place.staged(0))
    eventually(lambda: zombie.backlog() == 0, "the first batch has left")
    copied = Place(place.broker, place.topic, place.folder / "copy")
    successor = copied.opened()
    successor.commit(commit_of(0), copied.staged(0))
    successor.commit(commit_of(1), copied.staged(1))
    eventually(lambda: successor.backlog() == 0, "the successor has sent")

    zombie.commit(commit_of(1), place.staged(1))

    with pytest.raises(PeerError, match="another process has taken over"):
        zombie.close(DRAIN_SECONDS)
    successor.close(DRAIN_SECONDS)
    assert place.values() == expected(2)


def test_an_older_copy_that_is_refused_does_not_end_the_original(
    place: Place, eventually: Eventually
) -> None:
    original = place.opened()
    for batch in (0, 1):
        original.commit(commit_of(batch), place.staged(batch))
    eventually(lambda: original.backlog() == 0, "the original has sent")
    copied = Place(place.broker, place.topic, place.folder / "copy")

    copy = copied.opened(0)
    with pytest.raises(CheckpointError, match="rolled back or is an older copy"):
        copy.check(DRAIN_SECONDS)
    original.commit(commit_of(2), place.staged(2))
    original.close(DRAIN_SECONDS)

    assert place.values() == expected(3)


def test_a_session_that_others_have_overtaken_before_its_first_transaction_is_opened_again(
    place: Place, tmp_path: Path
) -> None:
    committer = place.opened()
    committer.commit(commit_of(0), place.staged(0))
    committer.close(DRAIN_SECONDS)
    system = KafkaSystem(place.config, CommitContext("s", tmp_path, True))
    session = system.connect(CHECKPOINT)
    later = place.opened(0)
    later.commit(commit_of(1), place.staged(1))
    later.close(DRAIN_SECONDS)
    batch: Any = PendingBatch.of(commit_of(2), 0, place.staged(2))

    with pytest.raises(KafkaException) as failed:
        session.write(batch, iter([]))
    session.close()

    assert session.last() == commit_of(0)
    assert "an earlier session has written" in system.waiting_for(failed.value)
    assert place.values() == expected(2)


class GivenUp:
    """A client that has failed its transaction, as one whose machine slept while it produced."""

    def __init__(self, cause: int):
        self.cause = KafkaError(cause, "3 message(s) timed out", txn_requires_abort=True)

    def init_transactions(self, _: float) -> None:
        pass

    def begin_transaction(self) -> None:
        pass

    def produce(self, *_: Any, **__: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._STATE, "Erroneous state"))

    def commit_transaction(self, _: float) -> None:
        raise KafkaException(self.cause)

    def abort_transaction(self, _: float) -> None:
        pass

    def purge(self) -> None:
        pass


@pytest.mark.parametrize(
    ("cause", "words"),
    [(KafkaError._TIMED_OUT, "3 message(s) timed out"), (KafkaError.MSG_SIZE_TOO_LARGE, "")],
)
def test_a_transaction_that_the_client_has_given_up_is_sent_again_if_its_cause_passes(
    place: Place, cause: int, words: str
) -> None:
    system = KafkaSystem(place.config, CommitContext("s", place.folder, True))
    session: Any = system.connect(CHECKPOINT)
    session._producer = GivenUp(cause)
    output = Staged(memoryview(pack(b"value")), array("I", [len(pack(b"value"))]))
    batch: Any = PendingBatch.of(commit_of(0), 0, place.staged(0))

    with pytest.raises(KafkaException) as failed:
        session.write(batch, iter([output]))
    session.close()

    waiting = system.waiting_for(failed.value)
    assert words in waiting
    assert bool(waiting) is bool(words)


def test_a_transaction_timeout_of_the_options_is_the_one_that_brokers_are_asked_for(
    place: Place,
) -> None:
    most = {"transaction.timeout.ms": "1000000"}  # brokers allow 15 minutes
    config = KafkaSinkConfig(place.topic, place.broker.address, options=most)
    committer = config.committer("s", place.staging, True)
    committer.recover(history_to(-1), [])

    words = "Set transaction.timeout.ms in the sink's options to at most transaction.max.timeout.ms"
    with pytest.raises(PeerError, match=words):
        committer.check(DRAIN_SECONDS)


def test_how_large_a_record_may_be_is_decided_by_the_topic(broker: Broker, tmp_path: Path) -> None:
    name = f"wide-{tmp_path.name}"
    broker.create(name, **{"max.message.bytes": "3000000"})
    place = Place(broker, name, tmp_path)
    committer = place.opened()
    large = [b"x" * 2_500_000]
    committer.commit(
        commit_of(0), killed_driver.stage(place.config, place.staging, 0, 1, lambda *_: large)
    )
    committer.close(DRAIN_SECONDS)
    assert [len(value) for value in place.values()] == [2_500_000]


def test_another_commit_under_a_number_that_was_sent_is_refused(place: Place) -> None:
    committer = place.opened()
    committer.commit(commit_of(0), place.staged(0))
    committer.close(DRAIN_SECONDS)
    rolled_back = Place(place.broker, place.topic, place.folder / "rolled back")

    other = rolled_back.config.committer("s", rolled_back.staging, True)
    other.recover(history_to(-1), [])
    other.commit(commit_of(0, line="b"), rolled_back.staged(0))

    with pytest.raises(CheckpointError, match="rolled back"):
        other.close(DRAIN_SECONDS)
    assert place.values() == expected(1)


def test_keys_partitions_headers_and_tombstones_arrive_as_they_were_returned(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    from wallaroo.connectors.kafka.output import KafkaOutput
    from wallaroo.sinks.interface import WriteContext

    config = KafkaSinkConfig(topic, [("127.0.0.1", broker.port)])
    assert config.encoder is not None
    outputs = [
        "text",
        (b"one", "k"),
        ("two", 7, 2),
        KafkaOutput(None, "gone", 1),
        KafkaOutput("rich", "k", None, (("h", b"1"), ("none", None))),
    ]
    committer = config.committer("s", tmp_path / "staging", True)
    committer.recover(history_to(-1), [])
    writer = config.writer(WriteContext("s", 0, 0, "a", tmp_path / "staging", True))
    writer.write([config.encoder.function(output) for output in outputs])
    committer.commit(commit_of(0), [writer.prepare()])
    committer.close(DRAIN_SECONDS)

    records: list[Any] = committed_records(broker, topic)
    found = {(r.value(), r.key(), tuple(r.headers() or ())) for r in records}
    partition_of = {r.value(): r.partition() for r in records}
    assert found == {
        (b"text", None, ()),
        (b"one", b"k", ()),
        (b"two", b"7", ()),
        (None, b"gone", ()),
        (b"rich", b"k", (("h", b"1"), ("none", None))),
    }
    assert (partition_of[b"two"], partition_of[None]) == (2, 1)
    assert partition_of[b"one"] == partition_of[b"rich"]


def test_a_missing_topic_ends_the_run_with_what_to_do(broker: Broker, tmp_path: Path) -> None:
    place = Place(broker, "no-such-topic", tmp_path)
    committer = place.opened()
    committer.commit(commit_of(0), place.staged(0))

    with pytest.raises(PeerError, match=r"has no topic 'no-such-topic'. Create it"):
        committer.close(DRAIN_SECONDS)


def test_a_refused_record_leaves_no_transaction_that_readers_wait_for(
    broker: Broker, tmp_path: Path
) -> None:
    name = f"narrow-{tmp_path.name}"
    broker.create(name, **{"max.message.bytes": "2000"})
    config = KafkaSinkConfig(name, broker.address, options={"linger.ms": "0", "batch.size": "1"})
    place = Place(broker, name, tmp_path)
    committer = config.committer("s", place.staging, True)
    committer.recover(history_to(-1), [])
    assert config.encoder is not None
    packed = [config.encoder.function(value) for value in (b"small", b"x" * 3000)]
    tokens = killed_driver.stage(config, place.staging, 0, 1, lambda batch, task: packed)
    committer.commit(commit_of(0), tokens)
    words = (
        "refuses batch 0 for topic .* too large.* Raise max.message.bytes of the topic, then run"
    )
    with pytest.raises(PeerError, match=words):
        committer.close(DRAIN_SECONDS)

    other = Producer({"bootstrap.servers": broker.address})
    other.produce(name, b"another program's")
    assert other.flush(DRAIN_SECONDS) == 0
    assert place.values() == ["another program's"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"topic": ""}, "topic='' is not a name"),
        ({"delivery": "twice"}, "delivery='twice' is unknown. Write 'exactly-once' or"),
        ({"brokers": 7}, "brokers=7 cannot be read"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_at_once(
    change: dict[str, Any], what: str
) -> None:
    with pytest.raises(WallarooParameterError, match=what):
        KafkaSinkConfig(**{"topic": "t", "brokers": "b", **change})


@pytest.mark.parametrize(
    ("output", "what"),
    [
        ((None,), "a record without a value needs a key"),
        (7, "must return bytes or str as the value, this one returned int"),
        (("v", 1.5), "must return bytes or str as the key, this one returned float"),
        ((), "this one returned a tuple of 0"),
    ],
)
def test_an_encoder_that_returns_something_else_gets_an_error_that_says_what_to_return(
    output: Any, what: str
) -> None:
    encoder = KafkaSinkConfig("t", "b").encoder
    assert encoder is not None

    with pytest.raises(TypeError, match=what):
        encoder.function(output)


def test_rows_and_tombstones_are_written_under_their_keys(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    config = KafkaSinkConfig(topic, broker.address, key="id")
    outputs = [
        {"id": 1, "item": "tea"},
        Delete(1),
        {"id": "a", "item": None},
        Delete({"id": "a", "item": "x"}),
        KafkaOutput(b"raw", "a", headers=(("h", b"1"),)),
    ]
    committer = config.committer("s", tmp_path, True)
    committer.recover(history_to(-1), [])
    tokens = killed_driver.stage(config, tmp_path, 0, 1, lambda *_: outputs)
    committer.commit(commit_of(0), tokens)
    committer.close(DRAIN_SECONDS)
    records: list[Any] = committed_records(broker, topic)
    found = [(record.key(), record.value()) for record in records]
    assert [value for key, value in found if key == b"1"] == [b'{"id":1,"item":"tea"}', None]
    assert [value for key, value in found if key == b"a"] == [
        b'{"id":"a","item":null}',
        None,
        b"raw",
    ]
    assert len(found) == 5


@pytest.mark.parametrize(
    "fault", sampled(["kafka.committed:2"], ["kafka.produced:2", "commit.after:3"])
)
def test_rows_and_tombstones_of_a_compacted_topic_come_once_though_driver_and_broker_are_killed(
    tmp_path: Path, child_of: Callable[..., Forks], fault: str
) -> None:
    """A reader of the topic's present state finds the rows that were not deleted."""
    with running_broker(tmp_path / "broker") as broker:
        broker.create("rows", 3, cleanup_policy="compact")
        folder = tmp_path / "outbox"
        folder.mkdir()
        place = Place(broker, "rows", folder, child=child_of("tests.connectors.kafka.child"))
        assert place.run_child(fault, 1, "id") == -signal.SIGKILL, "the point was never passed"
        broker.kill()
        broker.start()
        assert place.run_child("", 1, "id") == 0
        records: list[Any] = committed_records(broker, "rows")
    came: dict[bytes, list[Any]] = {}
    for record in records:
        came.setdefault(record.key(), []).append(record.value())
    due: dict[bytes, list[Any]] = {}
    for batch, task in itertools.product(range(BATCHES), range(TASKS)):
        for change in changes_of(batch, task):
            row = change.key if isinstance(change, Delete) else change
            value = None if change is not row else json.dumps(row, separators=(",", ":")).encode()
            due.setdefault(row["id"].encode(), []).append(value)
    assert came == due
    assert {values[-1] is None for values in came.values()} == {True, False}


@pytest.mark.parametrize(
    ("key", "output", "words"),
    [
        ((), Delete("a"), "a Delete needs a sink with key="),
        ("id", {"item": 1}, "the row has no 'id', which is of the key"),
        ("id", b"raw", "a row must be a dict"),
        ("id", KafkaOutput(b"raw"), "a record of a sink with key= needs a key"),
        (("id", "part"), Delete(1), r"is not a key of \(id, part\)"),
        ("id", Delete(None), "key column 'id' is None"),
        ("id", {"id": float("nan")}, "key column 'id' is nan"),
        ("id", {"id": 1, "price": float("inf")}, "not JSON compliant"),
        ((), KafkaOutput(b"v", headers=("id",)), "headers are .* not 'id'"),
        ((), KafkaOutput(b"v", headers=((b"id", b""),)), "headers are .* not .b'id', b''"),
        ((), KafkaOutput(b"v", headers={"id": 1}), "as the value of a header"),
        ((), (b"v", b"k", "0"), "partition '0' is not a number of a partition"),
    ],
)
def test_an_output_that_is_no_change_is_an_error_of_the_encoder(
    key: Any, output: Any, words: str
) -> None:
    config = KafkaSinkConfig("t", "b:1", key=key)
    assert config.encoder is not None
    with pytest.raises((TypeError, ValueError), match=words):
        config.encoder.function(output)


def test_a_partition_that_is_missing_is_waited_for_and_its_topic_is_named(tmp_path: Path) -> None:
    system = KafkaSystem(KafkaSinkConfig("t", "b:1"), CommitContext("s", tmp_path, True))
    waiting = system.waiting_for(KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION)))
    assert "topic 't' has no partition that an output names" in waiting


def test_a_broker_whose_name_is_unknown_is_waited_for_and_named(tmp_path: Path) -> None:
    brokers = "no-such-host.invalid:9092"
    system = KafkaSystem(KafkaSinkConfig("t", brokers), CommitContext("s", tmp_path, True))
    with closing(Inquiry(brokers, {}, request_s=0.5)) as inquiry:
        with pytest.raises(KafkaException) as raised:
            inquiry.topics()
    words = rf"Kafka at {brokers} \(.*: Failed to resolve '{brokers}': [^()]*\)"
    assert re.fullmatch(words, system.waiting_for(raised.value))


def test_headers_may_be_a_dict_as_those_of_the_client_library() -> None:
    config = KafkaSinkConfig("t", "b:1")
    assert config.encoder is not None
    packed: Any = config.encoder.function(KafkaOutput(b"v", headers={"id": b"x", "a": None}))
    assert config.decoded(packed).headers == (("id", b"x"), ("a", None))


def test_a_key_of_several_fields_is_an_object() -> None:
    config = KafkaSinkConfig("t", "b:1", key=("id", "part"))
    assert config.encoder is not None
    packed: Any = config.encoder.function({"part": "x", "id": 1, "n": 2})
    assert config.decoded(packed)[:2] == (b'{"part":"x","id":1,"n":2}', b'{"id":1,"part":"x"}')
