"""The Kafka source log against a real broker: positions, ranges, gaps, retention, growth."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise, zip_longest
from pathlib import Path
from queue import Queue
from threading import Event, Thread

import pytest
from confluent_kafka import Message, Producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.connectors.kafka.broker import Broker, running_broker
from wallaroo.connectors.kafka.brokers import TopicsQuery
from wallaroo.connectors.kafka.log import KafkaLog
from wallaroo.connectors.kafka.reader import (
    READERS,
    Partition,
    PartitionReader,
    Readers,
)
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.sources.log import Position, Range

pytestmark = pytest.mark.kafka
Eventually = Callable[..., None]
RESTARTS = 2


@pytest.fixture(autouse=True)
def own_readers() -> Iterator[None]:
    yield
    READERS.close()


def subscription(broker: Broker, *topics: str, **changes: object) -> TopicsQuery:
    fields = {
        "source": "in",
        "brokers": broker.address,
        "topics": topics,
        "start": "earliest",
        "group": "",
        "isolation": "read_committed",
        "on_data_loss": "stop",
        "is_bounded": False,
        "with_metadata": False,
    }
    return TopicsQuery(**{**fields, **changes})  # type: ignore[arg-type]


def produce(broker: Broker, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def everything(log: KafkaLog, start: Position, end: Position, pieces: int = 1) -> list[bytes]:
    ranges = [part for piece in log.split(start, end, pieces) for part in piece]
    return [value for part in ranges for records in log.read(part) for value in records.payloads]


def numbers(low: int, high: int) -> list[bytes]:
    return [b"%d" % number for number in range(low, high)]


def test_all_records_between_two_positions_are_read_once_and_in_order(
    broker: Broker, topic: str
) -> None:
    log = KafkaLog(subscription(broker, topic))
    produce(broker, topic, numbers(0, 1000), 0)
    produce(broker, topic, numbers(5000, 5500), 2)

    start, end = log.beginning(), log.head().position
    read = everything(log, start, end, pieces=4)

    assert (start.events, end.events) == (0, 1500)
    assert read == numbers(0, 1000) + numbers(5000, 5500)


def test_a_range_is_read_as_soon_as_its_records_are_there(broker: Broker, topic: str) -> None:
    produce(broker, topic, numbers(0, 10))
    options = subscription(broker, topic).options
    partition = Partition(broker.address, topic, 0, "read_committed", False, options)
    opened = PartitionReader(partition, poll_s=3600.0)
    found: Queue[list[bytes | None]] = Queue()

    def read() -> None:
        for start in (0, 10):
            taken = [message for some in opened.read(start, start + 10) for message in some]
            found.put([message.value() for message in taken])
        opened.close()

    Thread(target=read, daemon=True).start()
    assert found.get(timeout=400) == numbers(0, 10)
    produce(broker, topic, numbers(10, 20))
    assert found.get(timeout=400) == numbers(10, 20)


def test_a_position_means_the_same_after_json_and_pickle(broker: Broker, topic: str) -> None:
    log = KafkaLog(subscription(broker, topic))
    produce(broker, topic, numbers(0, 10), 1)
    end = log.head().position

    copied = pickle.loads(pickle.dumps(log))
    stored = Position.from_json(end.to_json())

    assert stored == end
    assert everything(copied, log.beginning(), stored) == numbers(0, 10)


def test_a_step_takes_at_most_what_is_allowed_and_steps_reach_the_head(
    broker: Broker, topic: str
) -> None:
    log = KafkaLog(subscription(broker, topic))
    produce(broker, topic, numbers(0, 100), 0)
    produce(broker, topic, numbers(100, 130), 1)
    positions = [log.beginning()]

    while positions[-1] != log.head().position:
        positions.append(log.advance(positions[-1], 40))

    assert all(later.events - earlier.events <= 40 for earlier, later in pairwise(positions))
    read = [value for low, high in pairwise(positions) for value in everything(log, low, high)]
    assert sorted(read, key=int) == numbers(0, 130)


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(cuts=st.lists(st.integers(0, 300), max_size=6), again=st.booleans())
def test_any_cuts_read_the_same_records(
    broker: Broker, filled_topic: str, cuts: list[int], again: bool
) -> None:
    log = KafkaLog(subscription(broker, filled_topic))
    edges = sorted({0, 300, *cuts})

    parts = [
        Range(f"{filled_topic}-0", [filled_topic, 0, low], high, high - low)
        for low, high in pairwise(edges)
    ]
    if again:  # as after an attempt that failed: a range that was read is read once more
        parts.insert(1, parts[0])
    read = [value for part in parts for records in log.read(part) for value in records.payloads]

    expected = numbers(0, 300)
    assert read == (numbers(0, edges[1]) + expected if again else expected)


@pytest.fixture(scope="module")
def filled_topic(broker: Broker) -> str:
    broker.create("filled")
    produce(broker, "filled", numbers(0, 300))
    return "filled"


@pytest.fixture(scope="module")
def filled_partitions(broker: Broker) -> str:
    """A topic whose records name their partition, and in which transactions were aborted."""
    broker.create("many", 5)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "many"})
    producer.init_transactions(30)
    for first in range(0, 40, 10):
        producer.begin_transaction()
        for partition in range(5):
            for number in range(first, first + 10):
                producer.produce("many", b"%d %d" % (partition, number), partition=partition)
        producer.flush(30)
        if first == 10:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    return "many"


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    steps=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 44)), min_size=4, max_size=20),
    kept=st.sampled_from([0, 2]),
    prefetches=st.booleans(),
)
def test_more_partitions_than_consumers_are_read_once_and_in_order(
    broker: Broker,
    filled_partitions: str,
    steps: list[tuple[int, int]],
    kept: int,
    prefetches: bool,
) -> None:
    readers = Readers(kept, 2)
    at = dict.fromkeys(range(5), 0)
    parts = []
    for number, size in [*steps, *((number, 44) for number in range(5))]:
        low = at[number]
        at[number] = min(44, low + size)
        key = Partition(broker.address, filled_partitions, number, "read_committed", False, ())
        parts.append((key, low, at[number]))
    found: dict[int, list[bytes | None]] = {number: [] for number in at}

    for (key, low, high), following in zip_longest(parts, parts[1:]):
        if prefetches and following:
            readers.of(following[0]).prepare(following[1])
        for messages in readers.of(key).read(low, high):
            found[key.number] += [message.value() for message in messages]
    readers.close()

    committed = [*range(10), *range(20, 40)]
    assert found == {number: [b"%d %d" % (number, n) for n in committed] for number in at}


def test_partitions_without_a_consumer_of_their_own_share_a_few(broker: Broker, topic: str) -> None:
    readers = Readers(1, 1)
    first, second, third = (
        Partition(broker.address, topic, number, "read_committed", False, (), "an id")
        for number in range(3)
    )

    kept = readers.of(first)
    turning = readers.of(second)

    assert turning is not kept
    assert readers.of(third) is turning
    assert readers.of(first) is kept
    assert readers.of(replace(second, topic_id="another id")) is not turning, "of another topic"
    readers.close()


def test_a_partition_gets_the_consumer_of_one_that_is_no_longer_read(
    broker: Broker, topic: str
) -> None:
    readers = Readers(1, 1, unused_s=0.0)
    first, second = (
        Partition(broker.address, topic, number, "read_committed", False, ()) for number in range(2)
    )

    readers.of(first)
    own = readers.of(second)

    assert readers.of(second) is own
    assert not own.may_turn_to(replace(second, isolation="read_uncommitted"))
    readers.close()


def test_aborted_and_marker_offsets_end_a_range_without_records(broker: Broker, topic: str) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.address, "transactional.id": f"{topic}-transactions"}
    )
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    log = KafkaLog(subscription(broker, topic))

    end = log.head().position

    assert end.events == 12  # a record and a marker for each transaction
    assert everything(log, log.beginning(), end) == [b"0", b"2", b"4"]


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("size", [7, 20, 64])
def test_ranges_end_inside_an_aborted_transaction_at_the_end(
    broker: Broker, topic: str, kept: int, size: int
) -> None:
    """The client passes all aborted records at once, and reports a partition's end only once."""
    produce(broker, topic, numbers(0, 20), 0)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(50):
        producer.produce(topic, b"aborted %d" % number, partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    end = 20 + 50 + 1  # with the transaction's marker
    readers = Readers(kept)
    partition = Partition(broker.address, topic, 0, "read_committed", False, ())

    found = [
        message.value()
        for start in range(0, end, size)
        for messages in readers.of(partition).read(start, min(start + size, end))
        for message in messages
    ]

    readers.close()
    assert found == numbers(0, 20)


class Forgetful(PartitionReader):
    """A reader whose client does not report an end the first time."""

    has_forgotten = False

    def _take(self) -> list[Message]:
        messages = super()._take()
        records = [message for message in messages if message.error() is None]
        if self.has_forgotten or len(records) == len(messages):
            return messages
        self.has_forgotten = True
        return records


def test_an_end_that_the_client_does_not_report_is_asked_for_again(
    broker: Broker, filled_partitions: str
) -> None:
    partition = Partition(broker.address, filled_partitions, 0, "read_committed", False, ())
    reader = Forgetful(partition, again_s=0.5)
    found = [message.value() for messages in reader.read(0, 44) for message in messages]
    reader.close()
    assert reader.has_forgotten
    assert found == [b"0 %d" % n for n in (*range(10), *range(20, 40))]


def test_an_open_transaction_is_not_part_of_the_head(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": f"{topic}-open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"later", partition=0)
    producer.flush(30)
    log = KafkaLog(subscription(broker, topic))

    before = log.head().position
    producer.commit_transaction(30)
    log = KafkaLog(subscription(broker, topic))

    assert before.events == 0
    assert everything(log, before, log.head().position) == [b"later"]


def test_a_new_partition_is_read_from_its_beginning(
    broker: Broker, topic: str, eventually: Eventually
) -> None:
    log = KafkaLog(subscription(broker, topic))
    before = log.head().position
    broker.admin.grow(topic, 4)
    produce(broker, topic, [b"new"], 3)

    def looked_again() -> KafkaLog:  # as a source does from time to time
        return KafkaLog(subscription(broker, topic))

    eventually(lambda: looked_again().head().position.events == 1, "the record is seen")
    log = looked_again()

    assert everything(log, before, log.advance(before, 100)) == [b"new"]


def test_several_topics_and_a_pattern(broker: Broker) -> None:
    for name in ("eu.orders", "us.orders", "us.returns"):
        broker.create(name)
        produce(broker, name, [name.encode()])

    log = KafkaLog(subscription(broker, r"^\w+\.orders$", "us.returns"))

    read = everything(log, log.beginning(), log.head().position)
    assert sorted(read) == [b"eu.orders", b"us.orders", b"us.returns"]


def test_latest_begins_behind_what_is_there_and_a_time_between(broker: Broker, topic: str) -> None:
    produce(broker, topic, [b"old"])
    time.sleep(0.01)  # times of records are milliseconds
    between = time.time_ns() // 1_000_000
    time.sleep(0.01)
    latest = KafkaLog(subscription(broker, topic, start="latest")).beginning()
    produce(broker, topic, [b"new"])
    log = KafkaLog(subscription(broker, topic, start=between))

    end = log.head().position

    assert everything(log, latest, end) == [b"new"]
    assert everything(log, log.beginning(), end) == [b"new"]


def test_published_offsets_can_be_a_start(
    broker: Broker, topic: str, eventually: Eventually
) -> None:
    produce(broker, topic, numbers(0, 10))
    log = KafkaLog(subscription(broker, topic, group="own-group"))
    done = log.advance(log.beginning(), 4)

    log.committed(done, None)

    stored = KafkaLog(subscription(broker, topic, group="own-group", start="stored"))
    eventually(lambda: stored.beginning().events == 4, "the offsets are published")
    assert everything(stored, stored.beginning(), stored.head().position) == numbers(4, 10)


def test_metadata_reach_the_decoder_and_tombstones_do_only_with_it(
    broker: Broker, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(
        topic, b"v", b"k", partition=0, headers=[("h", b"1")], timestamp=1_700_000_000_123
    )
    producer.produce(topic, None, b"gone", partition=0)
    assert producer.flush(30) == 0
    plain = KafkaLog(subscription(broker, topic))
    rich = KafkaLog(subscription(broker, topic, with_metadata=True))
    end = plain.head().position

    [first, second] = everything(rich, plain.beginning(), end)

    assert everything(plain, plain.beginning(), end) == [b"v"]
    assert first == (b"v", b"k", (("h", b"1"),), topic, 0, 0, 1_700_000_000_123)
    assert (second.value, second.key, second.offset) == (None, b"gone", 1)  # type: ignore[attr-defined]


def test_a_bounded_log_ends_where_the_topic_ended_when_it_was_first_asked(
    broker: Broker, topic: str
) -> None:
    produce(broker, topic, [b"in"])
    log = KafkaLog(subscription(broker, topic, is_bounded=True))
    head = log.head()
    produce(broker, topic, [b"too late"])

    copy = pickle.loads(pickle.dumps(log))

    assert (head.is_ended, head.position.events) == (True, 1)
    assert copy.head() == head


def test_what_retention_removed_is_refused_at_the_start_and_in_a_range(
    broker: Broker, topic: str
) -> None:
    produce(broker, topic, numbers(0, 10))
    log = KafkaLog(subscription(broker, topic))
    start, end = log.beginning(), log.head().position
    broker.admin.delete_records(topic, 0, 6)

    with pytest.raises(CheckpointError, match=r"begins at offset 6 now; the 6 offsets from 0"):
        log.require(start)
    with pytest.raises(CheckpointError, match=r"no longer holds offset 0: the topic's retention"):
        everything(log, start, end)
    skipping = KafkaLog(subscription(broker, topic, on_data_loss="skip"))
    skipping.require(start)
    assert everything(skipping, start, end) == numbers(6, 10)


def test_what_compaction_left_is_read_and_ends_where_it_should(
    broker: Broker, eventually: Eventually
) -> None:
    name = "compacted"
    broker.create(
        name, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01"
    )
    log = KafkaLog(subscription(broker, name))
    start = log.beginning()
    producer = Producer({"bootstrap.servers": broker.address})
    produced = 0

    def is_compacted() -> bool:
        nonlocal produced
        produced += 1
        producer.produce(name, b"%d" % produced, key=b"one key")  # rolls old segments, too
        assert producer.flush(30) == 0
        return len(everything(log, start, log.head().position)) < produced

    eventually(is_compacted, "compaction")
    head = log.head().position
    assert head.events == produced, "an upper bound"
    values = everything(log, start, head, pieces=3)
    assert values[-1] == b"%d" % produced
    assert values == sorted(set(values), key=int)


def test_a_broker_is_read_over_tls_with_a_password(broker: Broker, topic: str) -> None:
    assert broker.secured is not None
    options = tuple(sorted(broker.secured.options.items()))
    log = KafkaLog(subscription(broker, topic, brokers=broker.secured.address, options=options))
    start = log.beginning()
    produce(broker, topic, numbers(0, 100))
    assert everything(log, start, log.head().position) == numbers(0, 100)


def test_a_wrong_password_is_refused_and_not_shown(broker: Broker, topic: str) -> None:
    assert broker.secured is not None
    wrong = replace(broker.secured, password="a secret")
    options = tuple(sorted(wrong.options.items()))
    changes = {"brokers": wrong.address, "options": options, "request_s": 3.0}
    log = KafkaLog(subscription(broker, topic, **changes))
    with pytest.raises(PeerError, match="uthentication") as raised:
        log.beginning()
    assert "a secret" not in str(raised.value)


def test_a_broker_that_accepts_connections_and_does_not_answer_may_expect_tls(
    broker: Broker, topic: str
) -> None:
    assert broker.secured is not None
    changes = {"brokers": broker.secured.address, "request_s": 0.2, "patience_s": 0.1}
    log = KafkaLog(subscription(broker, topic, **changes))
    with pytest.raises(PeerError, match=r"It accepts connections: .* security.protocol in options"):
        log.beginning()


def test_a_missing_topic_is_named_with_the_nearest_one(broker: Broker, topic: str) -> None:
    log = KafkaLog(subscription(broker, f"{topic}x"))

    with pytest.raises(PeerError, match=f"no topic '{topic}x'. Did you mean 'topic-"):
        log.beginning()


def test_a_deleted_topic_is_refused(broker: Broker, topic: str) -> None:
    log = KafkaLog(subscription(broker, topic))

    with pytest.raises(CheckpointError, match="no partition 7 of topic"):
        log.require(Position({topic: {"0": 0, "7": 3}}, 3))


def test_a_broker_that_restarts_is_waited_for_whatever_it_is_asked(tmp_path: Path) -> None:
    """A client meets a listener that closes, none, one that knows no topics yet, then leaders."""
    is_over = Event()
    with running_broker(tmp_path / "broker") as broker, ThreadPoolExecutor(3) as threads:
        broker.create("restarts", 3)
        produce(broker, "restarts", numbers(0, 10))
        asked = subscription(broker, "restarts", request_s=1.0)

        def begin() -> list[int]:
            found = []
            while not is_over.is_set():
                found.append(KafkaLog(asked).beginning().events)
            return found

        def look() -> list[str]:
            log = KafkaLog(asked)
            found = []
            while not is_over.is_set():
                head = log.head()
                found.append(head.error)
                time.sleep(0.02)
            return found

        asking = [threads.submit(begin), threads.submit(begin), threads.submit(look)]
        try:
            for _ in range(RESTARTS):
                broker.kill()
                broker.start()
                time.sleep(0.5)
        finally:
            is_over.set()
        *begun, errors = [each.result() for each in asking]

    assert {0} == set(begun[0]) == set(begun[1])
    reported = set(filter(None, errors))
    assert reported
    assert all(" is unavailable (" in error for error in reported)


def test_without_a_broker_the_head_says_so_and_keeps_what_was_known() -> None:
    nowhere = TopicsQuery(
        "in", "127.0.0.1:1", ("t",), "earliest", "", "read_committed", "stop", False, False,
        request_s=0.2,
    )  # fmt: skip
    log = KafkaLog(nowhere)

    head = log.head()

    assert head.position.events == 0
    assert "source 'in': Kafka at 127.0.0.1:1" in head.error
    assert not head.answers


def test_the_partitions_that_are_not_read_to_their_end_are_known(
    broker: Broker, topic: str
) -> None:
    log = KafkaLog(subscription(broker, topic))
    start = log.beginning()
    produce(broker, topic, numbers(0, 3), partition=1)
    head = log.head()

    assert head.answers
    lags = log.lags(start, head.position)
    assert [name for name, lag in lags.items() if lag] == [f"{topic}-1"]
    assert not any(log.lags(head.position, head.position).values())
