"""Several Kafka sinks on one broker that is killed: each resumes by itself, exactly once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.connectors.file.files import staged
from tests.connectors.kafka.broker import Broker, running_broker
from tests.connectors.kafka.fixtures import committed_records
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.connectors.kafka import committer as kafka_sink
from wallaroo.connectors.kafka.committer import KafkaSystem, KafkaTimeouts
from wallaroo.connectors.kafka.output import pack
from wallaroo.connectors.kafka.sink import KafkaSinkConfig
from wallaroo.errors import PeerError
from wallaroo.sinks.queued.queued_committer import QueuedCommitter
from wallaroo.sinks.queued.system import CommitContext

pytestmark = pytest.mark.kafka
Eventually = Callable[..., None]
DRAIN_S = 400.0


class ImpatientSystem(KafkaSystem):
    """A topic whose calls end soon."""

    timeouts = KafkaTimeouts(answer_s=2.0, stalled_s=6.0, transaction_ms=4000)


class Sink:
    """A topic, its outbox, and what was committed to it."""

    def __init__(self, broker: Broker, name: str, folder: Path):
        broker.create(name, 2)
        self.name = name
        self._staging = folder / name
        self.config: Any = KafkaSinkConfig(name, broker.address)
        self._staging.mkdir()
        self.context = CommitContext(name, self._staging, is_durable=False)
        system = ImpatientSystem(self.config, self.context)
        self.committer = QueuedCommitter(system, self.context, points="kafka")
        self.committer.recover(history_to(-1), [])
        self.batches = 0

    def commit(self) -> None:
        output = [pack(value) for value in self._values(self.batches)]
        self.committer.commit(
            commit_of(self.batches), staged(self.config, self._staging, self.batches, output)
        )
        self.batches += 1

    def _values(self, batch: int) -> list[str]:
        return [f"{batch}.{number}" for number in range(20)]

    @property
    def expected(self) -> Counter[str]:
        return Counter(value for batch in range(self.batches) for value in self._values(batch))

    def arrived(self, broker: Broker) -> Counter[str]:
        records: list[Any] = committed_records(broker, self.name)
        return Counter(record.value().decode() for record in records)


class Fault:
    """Does something when a session passes a point for the first time after it was armed."""

    def __init__(self) -> None:
        self._point = ""
        self._act: Callable[[], object] = list
        self._lock = threading.Lock()
        self.was_passed = threading.Event()

    def arm(self, point: str, act: Callable[[], object]) -> None:
        self._act = act
        self._point = point

    def pass_point(self, point: str) -> None:
        with self._lock:
            if point != self._point:
                return
            self._point = ""
            try:
                self._act()
            finally:
                self.was_passed.set()


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Fault:
    made = Fault()
    monkeypatch.setattr(kafka_sink, "fault_point", lambda point: made.pass_point(point))
    return made


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that looks often for transactions that are too old."""
    cleanup = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "200"}
    with running_broker(tmp_path / "broker", **cleanup) as started:
        yield started


def is_sent(sink: Sink) -> bool:
    sink.committer.poll()
    return sink.committer.backlog() == 0


def test_three_sinks_resume_after_their_broker_was_killed_within_a_transaction(
    broker: Broker, fault: Fault, tmp_path: Path, eventually: Eventually
) -> None:
    sinks = [Sink(broker, f"t{number}", tmp_path) for number in range(3)]
    for sink in sinks:
        sink.commit()
    eventually(lambda: all(map(is_sent, sinks)), "the first batches have left")

    fault.arm("kafka.produced", broker.kill)
    for _ in range(5):
        for sink in sinks:
            sink.commit()
    assert fault.was_passed.wait(400)

    def is_named(sink: Sink) -> bool:
        sink.committer.poll()
        return "Kafka at 127.0.0.1" in sink.committer.status().waiting_for

    eventually(lambda: all(map(is_named, sinks)), "each sink names what it waits for")
    broker.start()
    for sink in sinks:
        sink.commit()
    eventually(lambda: all(map(is_sent, sinks)), "everything has left")
    for sink in sinks:
        sink.committer.close(DRAIN_S)
        assert sink.arrived(broker) == sink.expected


def test_a_transaction_that_the_broker_has_ended_for_its_age_is_sent_again(
    broker: Broker, fault: Fault, tmp_path: Path, eventually: Eventually
) -> None:
    sink = Sink(broker, "t", tmp_path)
    sink.commit()
    eventually(lambda: is_sent(sink), "the first batch has left")

    def wait_for_the_end() -> None:
        eventually(lambda: has_no_open_transaction(broker, "t"), "the transaction's end")

    fault.arm("kafka.ledger", wait_for_the_end)
    sink.commit()
    assert fault.was_passed.wait(400)
    sink.commit()
    eventually(lambda: is_sent(sink), "everything has left")
    sink.committer.close(DRAIN_S)
    assert sink.arrived(broker) == sink.expected


def test_a_session_whose_call_never_returns_is_replaced_and_its_batch_leaves_once(
    broker: Broker, fault: Fault, tmp_path: Path, eventually: Eventually
) -> None:
    """As in librdkafka, ignoring its timeout; it returns when the next session has begun."""
    sink = Sink(broker, "t", tmp_path)
    returned = threading.Event()
    hanging = [returned]

    def hang(point: str) -> None:
        if point == "kafka.ledger" and hanging:
            hanging.pop().wait()

    fault.pass_point = hang  # type: ignore[method-assign]
    sink.commit()
    eventually(lambda: is_sent(sink), "the next session has sent the batch")
    returned.set()
    sink.commit()

    eventually(lambda: is_sent(sink), "everything has left")
    sink.committer.close(DRAIN_S)
    assert sink.arrived(broker) == sink.expected


def fence(broker: Broker, sink: Sink) -> None:
    """Do what a late request of a session does: begin a session of the same id."""
    group = ImpatientSystem(sink.config, sink.context).group(commit_of(0).checkpoint)
    late = Producer({"bootstrap.servers": broker.address, "transactional.id": group})
    late.init_transactions(60)


def give_up() -> None:
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def with_a_session_given_up(
    broker: Broker, fault: Fault, folder: Path, eventually: Eventually
) -> Sink:
    """Return a sink that gave up a session, and has sent its batch in the next one."""
    sink = Sink(broker, "t", folder)
    fault.arm("kafka.produced", give_up)
    sink.commit()
    assert fault.was_passed.wait(400)
    eventually(lambda: is_sent(sink), "the next session has sent the batch")
    return sink


def test_a_late_request_of_a_session_that_was_given_up_does_not_end_the_run(
    broker: Broker, fault: Fault, tmp_path: Path, eventually: Eventually
) -> None:
    sink = with_a_session_given_up(broker, fault, tmp_path, eventually)

    fence(broker, sink)
    sink.commit()

    eventually(lambda: is_sent(sink), "everything has left")
    sink.committer.close(DRAIN_S)
    assert sink.arrived(broker) == sink.expected


def test_another_process_ends_a_run_that_has_given_up_a_session_too(
    broker: Broker, fault: Fault, tmp_path: Path, eventually: Eventually
) -> None:
    sink = with_a_session_given_up(broker, fault, tmp_path, eventually)

    fault.pass_point = lambda point: fence(broker, sink) if point == "kafka.begin" else None  # type: ignore[method-assign]
    sink.commit()

    with pytest.raises(PeerError, match="another process has taken over"):
        sink.committer.close(DRAIN_S)


def has_no_open_transaction(broker: Broker, topic: str) -> bool:
    """Whether committed records end where records end."""
    ends = []
    for isolation in ("read_committed", "read_uncommitted"):
        options = {"bootstrap.servers": broker.address, "isolation.level": isolation}
        with closing(Consumer({**options, "group.id": "tests"})) as consumer:
            ends.append(
                [
                    consumer.get_watermark_offsets(TopicPartition(topic, number), 10)[1]
                    for number in range(2)
                ]
            )
    return bool(ends[0] == ends[1])
