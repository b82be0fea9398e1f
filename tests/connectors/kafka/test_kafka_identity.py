"""Kafka topics that are deleted, made again, cut short or grown, against a real broker."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.test_kafka_log import (
    everything,
    numbers,
    produce,
    subscription,
)
from wallaroo.connectors.kafka.log import KafkaLog
from wallaroo.connectors.kafka.reader import READERS, Partition, PartitionReader
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.sources.log import SKIPPED, Position

pytestmark = pytest.mark.kafka
Eventually = Callable[..., None]
_names = count()


@pytest.fixture(autouse=True)
def own_readers() -> Iterator[None]:
    yield
    READERS.close()


@pytest.fixture
def name(broker: Broker) -> str:
    """A new topic with one partition."""
    name = f"identity-{next(_names)}"
    broker.create(name)
    return name


def opened(broker: Broker, *topics: str, **changes: object) -> KafkaLog:
    """A log that soon believes what the one broker states."""
    quick = {"metadata_s": 0.1, "confirm_s": 0.5}
    return KafkaLog(subscription(broker, *topics, **{**quick, **changes}))


def stored(position: Position) -> Position:
    """A position as the next run finds it in a commit."""
    return Position.from_json(json.loads(json.dumps(position.to_json())))


def processed(kafka: KafkaLog) -> Position:
    """The position after everything that is there."""
    return stored(kafka.advance(kafka.beginning(), 1_000_000))


def without_ids(position: Position) -> Position:
    """The position in the format of versions that did not ask for ids."""
    place = {
        topic: {partition: offset for partition, offset in own.items() if partition.isdigit()}
        for topic, own in position.place.items()
    }
    return Position(place, position.events)


def corrected(kafka: KafkaLog, position: Position, eventually: Eventually) -> Position:
    """What a run continues from, once it continues from something else."""
    found = [position]

    def is_corrected() -> bool:
        found.append(kafka.reconcile(position))
        return found[-1] != position

    eventually(is_corrected, "it is noticed")
    return stored(found[-1])


@pytest.mark.parametrize("later", [3, 15])
def test_a_topic_made_again_is_refused_at_the_start_whatever_it_holds(
    broker: Broker, name: str, later: int
) -> None:
    produce(broker, name, numbers(0, 10))
    position = processed(opened(broker, name))
    broker.create_again(name)
    produce(broker, name, numbers(100, 100 + later))

    with pytest.raises(CheckpointError) as refused:
        opened(broker, name).require(position)

    assert str(refused.value) == (
        f"source 'in': Kafka topic '{name}' was deleted and created again: 10 offsets of "
        "the earlier one were processed. To begin the new topic at its beginning, configure the "
        "source with on_data_loss='skip', or give this application a checkpoint of its own."
    )


@pytest.mark.parametrize("later", [3, 15])
def test_a_topic_made_again_is_refused_while_a_run_goes_on(
    broker: Broker, name: str, later: int, eventually: Eventually
) -> None:
    produce(broker, name, numbers(0, 10))
    kafka = opened(broker, name)
    position = processed(kafka)
    assert kafka.reconcile(position) is position
    broker.create_again(name)
    produce(broker, name, numbers(100, 100 + later))

    with pytest.raises(
        CheckpointError, match="deleted and created again: 10 offsets of the earlier"
    ):
        corrected(kafka, position, eventually)


@pytest.mark.parametrize("later", [3, 15])
def test_a_new_topic_is_read_from_its_beginning_if_losses_are_skipped(
    broker: Broker, name: str, later: int, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    produce(broker, name, numbers(0, 10))
    kafka = opened(broker, name)
    position = stored(kafka.advance(kafka.beginning(), 6))
    broker.create_again(name)
    produce(broker, name, numbers(100, 100 + later))
    again = opened(broker, name, on_data_loss="skip")

    with caplog.at_level(logging.WARNING, "wallaroo.run"):
        again.require(position)
        begun = stored(again.reconcile(position))

    assert again.split(position, begun, 2) == []
    assert begun.events == position.events
    assert again.backlog(begun) == later
    end = again.advance(begun, 1_000_000)
    assert everything(again, begun, end) == numbers(100, 100 + later)
    assert end.events == 6 + later
    assert again.reconcile(stored(end)) == end
    [line] = caplog.messages
    assert "the last 4 offsets of the earlier one were not" in line
    assert line.endswith("4 offsets are skipped; the new topic is read from its beginning")
    eventually(lambda: again.head().counts == {SKIPPED: 4}, "the head counts them")


def test_a_position_of_the_earlier_format_adopts_the_id_of_the_topic_once(
    broker: Broker, name: str
) -> None:
    produce(broker, name, numbers(0, 10))
    position = processed(opened(broker, name))
    earlier = without_ids(position)

    kafka = opened(broker, name)
    kafka.require(earlier)
    adopted = stored(kafka.reconcile(earlier))

    assert adopted == position
    assert kafka.reconcile(adopted) is adopted
    produce(broker, name, numbers(10, 12))
    later = opened(broker, name)
    assert everything(later, adopted, later.advance(adopted, 100)) == numbers(10, 12)
    broker.create_again(name)
    with pytest.raises(CheckpointError, match="created again"):
        opened(broker, name).require(adopted)


def test_a_topic_that_ends_before_the_position_is_refused_or_continued_at_its_end(
    broker: Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers without ids, or that lost records."""
    produce(broker, name, numbers(0, 10))
    position = Position({name: {"0": 50}}, 50)

    with pytest.raises(CheckpointError) as refused:
        opened(broker, name).require(position)
    skipping = opened(broker, name, on_data_loss="skip")
    skipping.require(position)
    corrected = stored(skipping.reconcile(position))
    produce(broker, name, numbers(10, 13))

    assert "ends at offset 10 now, and this application continues at offset 50" in str(
        refused.value
    )
    assert "configure the source with on_data_loss='skip'" in str(refused.value)
    later = opened(broker, name, on_data_loss="skip")
    assert everything(later, corrected, later.advance(corrected, 100)) == numbers(10, 13)
    assert "before offset 10 (10 offsets) counts as processed" in caplog.text


@pytest.mark.parametrize(
    ("offset", "problem"),
    [
        (50, r"ends at offset 10 now, and this application continues at offset 50"),
        (2, r"begins at offset 4 now; the 2 offsets from 2 on were not processed"),
    ],
)
def test_offsets_that_a_group_has_stored_for_other_records_are_refused_at_the_first_start(
    broker: Broker, name: str, eventually: Eventually, offset: int, problem: str
) -> None:
    """As of a group that was copied from another cluster; a bounded run would skip all records."""
    produce(broker, name, numbers(0, 10))
    broker.admin.delete_records(name, 0, 4)
    publishing = opened(broker, name, group=name)
    publishing.committed(Position({name: {"0": offset}}, offset), None)
    bounded = {"start": "stored", "group": name, "is_bounded": True}
    skipping = opened(broker, name, on_data_loss="skip", **bounded)

    eventually(lambda: skipping.beginning().events == offset, "the offsets are published")
    with pytest.raises(CheckpointError, match=problem) as refused:
        opened(broker, name, **bounded).beginning()

    assert f"The offsets are those that group '{name}' has stored" in str(refused.value)


def test_an_end_that_is_behind_for_a_moment_only_is_waited_for(
    broker: Broker, name: str, eventually: Eventually
) -> None:
    """As of a broker that has just taken over; skipping must not process anything twice."""
    produce(broker, name, numbers(0, 10))
    kafka = opened(broker, name, on_data_loss="skip", confirm_s=3600.0)
    position = Position({name: {"0": 12, "id": kafka.head().position.place[name]["id"]}}, 12)

    assert kafka.reconcile(position) is position
    assert kafka.backlog(position) == 0
    produce(broker, name, numbers(10, 13))

    eventually(lambda: kafka.backlog(position) == 1, "the end is as far again")
    assert kafka.reconcile(position) is position
    assert everything(kafka, position, kafka.advance(position, 100)) == numbers(12, 13)


def test_a_processed_topic_of_a_pattern_that_is_deleted_stalls_nothing_and_is_dropped(
    broker: Broker, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    mark = next(_names)
    kept, gone = f"kept-{mark}", f"gone-{mark}"
    broker.create(kept)
    broker.create(gone)
    produce(broker, gone, numbers(0, 50))
    kafka = opened(broker, rf"^(kept|gone)-{mark}$")
    position = processed(kafka)
    broker.admin.delete_topic(gone)
    produce(broker, kept, numbers(0, 3))

    eventually(lambda: kafka.backlog(position) == 3, "the other topic continues")
    end = stored(kafka.advance(position, 100))
    assert everything(kafka, position, end) == numbers(0, 3)
    dropped = corrected(kafka, end, eventually)

    assert list(dropped.place) == [kept]
    assert dropped.events == 53
    assert kafka.split(end, dropped, 1) == []
    assert f"Kafka topic '{gone}' is not there any more: 50 offsets of it" in caplog.text
    opened(broker, rf"^(kept|gone)-{mark}$").require(end)  # the next start is possible
    broker.create(gone)
    produce(broker, gone, numbers(200, 202))
    later = opened(broker, rf"^(kept|gone)-{mark}$")
    assert everything(later, dropped, later.advance(dropped, 100)) == numbers(200, 202)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_topic_of_a_pattern_that_is_deleted_with_unread_records_is_refused_or_skipped(
    broker: Broker, is_stopped: bool, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    mark = next(_names)
    kept, gone = f"kept-{mark}", f"gone-{mark}"
    broker.create(kept)
    broker.create(gone)
    produce(broker, gone, numbers(0, 50))
    pattern = rf"^(kept|gone)-{mark}$"
    kafka = opened(broker, pattern)
    skipping = opened(broker, pattern, on_data_loss="skip")
    position = stored(kafka.advance(kafka.beginning(), 20))
    skipping.head()
    broker.admin.delete_topic(gone)
    if is_stopped:
        kafka = opened(broker, pattern)
        skipping = opened(broker, pattern, on_data_loss="skip")

    with pytest.raises(CheckpointError) as refused:
        corrected(kafka, position, eventually)
    continued = corrected(skipping, position, eventually)

    assert "20 offsets of it were processed, and 30 more were not. Restore it; or" in str(
        refused.value
    )
    assert "configure the source with on_data_loss='skip'" in str(refused.value)
    assert list(continued.place) == [kept]
    assert "30 offsets are skipped; the source continues without the topic" in caplog.text


@pytest.fixture
def left(broker: Broker, name: str, eventually: Eventually) -> tuple[str, Position]:
    """A topic that a run has read beside another one and then not any more, and the position."""
    broker.create(f"{name}-left")
    produce(broker, name, numbers(0, 3))
    produce(broker, f"{name}-left", numbers(100, 110))
    both = opened(broker, name, f"{name}-left")
    place = processed(both).place
    position = Position({**place, f"{name}-left": {**place[f"{name}-left"], "0": 3}}, 6)
    one = opened(broker, name, confirm_s=0.0)
    one.require(position)
    assert one.reconcile(position) is position
    assert one.partitions(position) == {f"{name}-0"}
    assert one.backlog(position) == 0
    produce(broker, name, numbers(3, 5))
    eventually(lambda: one.backlog(position) == 2, "new records are seen")
    later = stored(one.advance(position, 100))
    assert everything(one, position, later) == numbers(3, 5)
    return f"{name}-left", later


def test_a_topic_that_is_put_back_resumes_where_it_was(
    broker: Broker, name: str, left: tuple[str, Position], caplog: pytest.LogCaptureFixture
) -> None:
    other, position = left
    produce(broker, other, numbers(110, 112))

    both = opened(broker, name, other)
    both.require(position)

    assert both.reconcile(position) is position
    end = both.advance(position, 100)
    assert everything(both, position, end) == numbers(103, 112)
    assert end.events == 5 + 12
    assert caplog.messages == []


def test_a_topic_that_is_put_back_is_compared(
    broker: Broker, name: str, left: tuple[str, Position]
) -> None:
    other, position = left
    broker.admin.delete_records(other, 0, 5)
    with pytest.raises(CheckpointError, match="the 2 offsets from 3 on were not processed"):
        opened(broker, name, other).require(position)
    broker.create_again(other)

    opened(broker, name).require(position)
    with pytest.raises(CheckpointError, match="created again: 3 offsets of the earlier"):
        opened(broker, name, other).require(position)


def test_a_topic_that_is_added_begins_at_the_first_record_that_it_has(
    broker: Broker, name: str
) -> None:
    produce(broker, name, numbers(0, 10))
    position = processed(opened(broker, name))
    broker.create(f"{name}-added", 2)
    produce(broker, f"{name}-added", numbers(20, 30))
    broker.admin.delete_records(f"{name}-added", 0, 6)

    both = opened(broker, name, f"{name}-added")
    both.require(position)
    begun = stored(both.reconcile(position))

    assert both.split(position, begun, 2) == []
    assert both.reconcile(begun) is begun
    assert everything(both, begun, both.advance(begun, 100)) == numbers(26, 30)


def test_a_named_topic_that_is_deleted_is_reported_and_asked_for_again(
    broker: Broker, name: str, eventually: Eventually
) -> None:
    kafka = opened(broker, name)
    position = processed(kafka)
    broker.admin.delete_topic(name)

    eventually(lambda: f"has no topic '{name}'" in kafka.head().error, "it is named")
    assert kafka.reconcile(position) is position
    with pytest.raises(PeerError, match=f"has no topic '{name}'"):
        opened(broker, name).require(position)


def test_what_retention_removes_is_skipped_with_its_number(
    broker: Broker, name: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    produce(broker, name, numbers(0, 10))
    kafka = opened(broker, name, on_data_loss="skip")
    start = stored(kafka.beginning())
    kafka.head()
    broker.admin.delete_records(name, 0, 6)

    continued = corrected(kafka, start, eventually)

    assert kafka.split(start, continued, 2) == []
    assert everything(kafka, continued, kafka.advance(continued, 100)) == numbers(6, 10)
    assert "begins at offset 6 now; the 6 offsets from 0 on were not processed" in caplog.text
    assert "6 offsets are skipped" in caplog.text
    eventually(lambda: kafka.head().counts == {SKIPPED: 6}, "the head counts them")


def test_a_topic_made_again_is_noticed_by_its_shorter_end_before_anything_of_it_is_read(
    broker: Broker, name: str, eventually: Eventually
) -> None:
    produce(broker, name, numbers(0, 10))
    kafka = opened(broker, name, metadata_s=3600.0)
    position = stored(kafka.advance(kafka.beginning(), 6))
    broker.create_again(name)
    produce(broker, name, numbers(100, 108))

    eventually(lambda: kafka.head().position.events == 8, "the new topic is seen")

    assert kafka.split(position, kafka.advance(position, 100), 1) == []
    with pytest.raises(CheckpointError, match="the last 4 offsets of the earlier one were not"):
        corrected(kafka, position, eventually)


def read_by(broker: Broker, name: str, start: int, end: int) -> list[bytes | None]:
    """What a worker reads of a range if losses are skipped."""
    reader = PartitionReader(Partition(broker.address, name, 0, "read_committed", True, ()))
    try:
        return [message.value() for some in reader.read(start, end) for message in some]
    finally:
        reader.close()


def test_a_worker_reports_how_many_records_are_gone_from_what_it_reads(
    broker: Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    produce(broker, name, numbers(0, 10))
    broker.admin.delete_records(name, 0, 6)

    values = read_by(broker, name, 2, 10)

    assert values == numbers(6, 10)
    assert "begins at offset 6 now: 4 offsets are skipped" in caplog.text
    assert read_by(broker, name, 2, 5) == []


def test_a_worker_does_not_read_a_shorter_topic_in_place_of_another(
    broker: Broker, name: str
) -> None:
    produce(broker, name, numbers(0, 3))

    with pytest.raises(CheckpointError, match="ends before offset 8 now: was the topic recreated"):
        read_by(broker, name, 8, 10)
