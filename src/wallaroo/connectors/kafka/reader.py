"""Reading ranges of partitions with consumers that stay open.

Where it runs: workers.

The next range of a partition continues where the last one ended.  A worker that reads more
partitions than `KEPT_MAX` has a few consumers more, which turn from one partition to the next: a
new one would connect and query first, which takes several times as long.

The invariant: `read` yields exactly the records of the partition with ``start <= offset < end``, in
order of offset.  A range ends by position, not by count: transaction markers, aborted records and
compaction leave offsets without a record.  The end is reached by a record at or after it, or by the
client's notice of the partition's end.  Records of a former partition that a reassigned consumer
still returns are dropped.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from wallaroo.connectors.kafka import client
from wallaroo.errors import CheckpointError, PeerError

MESSAGES_MAX = 8192  # taken from the client per call
POLL_S = 0.5  # the wait of one poll of an empty queue
SILENCE_S_MAX = 600.0  # without anything from the brokers; after that the task fails
AGAIN_S = 10.0  # without anything; the client then reports again what it may not repeat, an end
KEPT_MAX = 8  # partitions with a consumer of their own, in a worker
UNUSED_S = 10.0  # then a partition's consumer is closed if another partition needs one
# Consumers for all other partitions.  One is read, the next one fetches; an empty fetch of the
# others may be under way, for which the next partition would have to wait.
TURNING_MAX = 4
# They fetch for one range at a time: records after it are dropped.
TURNING = {"fetch.wait.max.ms": 5, "queued.max.messages.kbytes": 4 * 1024}


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition as a reader sees it.

    ``options`` are sorted pairs, so that it can be a key.
    """

    brokers: str
    topic: str
    number: int
    isolation: str
    skips_lost: bool
    options: tuple[tuple[str, str], ...]
    # the topic's id: a client that has read a topic does not read one that was created again
    topic_id: str = ""

    def __str__(self) -> str:
        return f"partition {self.number} of Kafka topic '{self.topic}'"


class PartitionReader:
    """One partition's consumer, which continues where the last range ended.

    ``_continues`` are the offsets at which the next range may begin without a seek: from the last
    range's end up to the first record that the client will return.
    """

    def __init__(
        self,
        partition: Partition,
        poll_s: float = POLL_S,
        *,
        turns: bool = False,
        again_s: float = AGAIN_S,
    ):
        """Open a consumer; one that ``turns`` stops fetching at the end of each range."""
        self.partition = partition
        self.used_at = time.monotonic()
        self._poll_s = poll_s
        self._again_s = again_s
        self._consumer: Consumer = client.open_consumer(
            partition.brokers,
            dict(partition.options),
            isolation=partition.isolation,
            tuning=TURNING if turns else {},
        )
        self._turns = turns
        self._has_turned = False  # and nothing of the new partition has come yet
        self._ids = {partition.topic: partition.topic_id}  # topics that the client has read
        self._continues: tuple[int, int] | None = None
        self._ahead: list[Message] = []  # taken from the client, and after the last range

    def may_turn_to(self, partition: Partition) -> bool:
        """Return whether the consumer can read another partition."""
        known = self._ids.get(partition.topic, partition.topic_id)
        return known == partition.topic_id and partition == replace(
            self.partition,
            topic=partition.topic,
            number=partition.number,
            topic_id=partition.topic_id,
        )

    def turn_to(self, partition: Partition) -> None:
        """Read another partition from now on."""
        self.partition = partition
        self._ids[partition.topic] = partition.topic_id
        self._continues = None
        self._has_turned = True

    def prepare(self, start: int) -> tuple[int, int]:
        """Make the client fetch from ``start``, unless it already does.

        Return ``_continues``: before its second offset there are no records, and the client does
        not report again that it has passed them.
        """
        if self._continues is None or not self._continues[0] <= start <= self._continues[1]:
            self._continues = None
            self._seek(start)
            self._continues = (start, start)
        return self._continues

    def read(self, start: int, end: int) -> Iterator[list[Message]]:
        """Yield the records of a range in order.

        Raises CheckpointError if they are gone, PeerError if the brokers stay silent for
        SILENCE_S_MAX.
        """
        _, position = self.prepare(start)
        self._continues = None  # None until this range has been read to its end
        received_at = sought_at = time.monotonic()
        while position < end:
            messages = self._take()
            now = time.monotonic()
            if messages:
                received_at = sought_at = now
            elif now - received_at > SILENCE_S_MAX:
                raise self._silent(position)
            elif now - sought_at > self._again_s:
                self._seek(position)
                sought_at = now
            records, position = self._sorted_out(messages, position)
            inside = bisect_left(records, end, key=offset_of)
            self._ahead = records[inside:]
            if inside:
                yield records[:inside]
        first = offset_of(self._ahead[0]) if self._ahead else position
        self._continues = (end, first)
        if self._turns:
            self._ahead.clear()
            self._continues = None
            self._consumer.unassign()

    def close(self) -> None:
        self._ahead.clear()
        self._consumer.close()

    def _seek(self, start: int) -> None:
        self._ahead.clear()
        partition = self.partition
        self._consumer.assign([client.topic_partition(partition.topic, partition.number, start)])

    def _take(self) -> list[Message]:
        if self._ahead:
            ahead = self._ahead
            self._ahead = []
            return ahead
        try:
            messages: list[Message] = self._consumer.consume(MESSAGES_MAX, 0)
            if not messages:
                # a call waits until it has as many as requested: request one
                messages = self._consumer.consume(1, self._poll_s)
        except KafkaException as error:
            raise self._failed(client.error_of(error)) from error
        return self._own(messages) if self._has_turned else messages

    def _own(self, messages: list[Message]) -> list[Message]:
        """Drop what was fetched of the former partition, which comes first."""
        place = self.partition.topic, self.partition.number
        here = [each for each in messages if (each.topic(), each.partition()) == place]
        self._has_turned = not here
        return here or [each for each in messages if each.topic() is None]

    def _sorted_out(self, messages: list[Message], position: int) -> tuple[list[Message], int]:
        """Return the records without notices, and the offset before which everything was seen."""
        records = [message for message in messages if message.error() is None]
        if len(records) < len(messages):
            position = self._position_after(messages, position)
        elif records:
            position = offset_of(records[-1]) + 1
        return records, position

    def _position_after(self, messages: list[Message], position: int) -> int:
        """Return the offset before which everything was seen, if there are notices."""
        for message in messages:
            error = message.error()
            if error is None:
                position = offset_of(message) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                position = max(position, offset_of(message))
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                position = self._after_lost(position)
            elif not client.is_transient(error):
                raise self._failed(error)
        return position

    def _after_lost(self, position: int) -> int:
        """Continue at the first available offset, and report how many are missing.

        Raises CheckpointError if the source may not skip them.
        """
        partition = self.partition
        if not partition.skips_lost:
            raise self._lost(position)
        place = client.topic_partition(partition.topic, partition.number)
        first, _ = self._consumer.get_watermark_offsets(place, client.REQUEST_S_MAX)
        if first <= position:
            raise CheckpointError(
                f"{partition} ends before offset {position} now: was the topic recreated while it "
                "was read? Run again: the source then skips what is lost."
            )
        client.LOGGER.warning(
            "%s begins at offset %s now: %s offsets are skipped",
            partition,
            f"{first:,}",
            f"{first - position:,}",
        )
        self._seek(first)
        return first

    def _lost(self, position: int) -> CheckpointError:
        return CheckpointError(
            f"{self.partition} no longer holds offset {position}: the topic's retention removed "
            "records that were not processed yet. To continue without them, configure the source "
            "with on_data_loss='skip'; how many are missing is reported then."
        )

    def _silent(self, position: int) -> PeerError:
        return PeerError(
            f"{self.partition} cannot be read from offset {position}: no broker of "
            f"{self.partition.brokers} has answered for {SILENCE_S_MAX:.0f} s. Nothing is lost: "
            "run again when they are there."
        )

    def _failed(self, error: KafkaError) -> PeerError:
        way_out = "."
        if error.code() in client.UNAUTHORIZED:
            way_out = f": give the user the right Read on topic '{self.partition.topic}'."
        return PeerError(f"{self.partition} cannot be read: {client.sentence(error)}{way_out}")


def offset_of(message: Message) -> int:
    """Return a record's offset; a record from a broker has one."""
    return cast(int, message.offset())


class Readers(threading.local):
    """The readers of each thread.

    Two runs in one process may read the same partition, and a reader has one position in it.
    """

    def __init__(
        self, kept_max: int = KEPT_MAX, turning_max: int = TURNING_MAX, unused_s: float = UNUSED_S
    ) -> None:
        self._kept_max = kept_max
        self._turning_max = turning_max
        self._unused_s = unused_s
        # both: least recently used first
        self._kept: OrderedDict[Partition, PartitionReader] = OrderedDict()
        self._turning: list[PartitionReader] = []

    def of(self, partition: Partition) -> PartitionReader:
        """Return this thread's reader of a partition: its own, or one that turns to it."""
        kept = self._kept
        reader = kept.pop(partition, None)
        now = time.monotonic()
        if reader is None and len(kept) >= self._kept_max:
            oldest = next(iter(kept.values()), None)
            if oldest is None or now - oldest.used_at < self._unused_s:
                return self._turned_to(partition)
            del kept[oldest.partition]
            oldest.close()
        reader = reader or PartitionReader(partition)
        reader.used_at = now
        kept[partition] = reader
        return reader

    def _turned_to(self, partition: Partition) -> PartitionReader:
        turning = self._turning
        reader = next((each for each in turning if each.partition == partition), None)
        if reader is None and len(turning) >= self._turning_max:
            reader = next((each for each in turning if each.may_turn_to(partition)), None)
            if reader is None:
                turning.pop(0).close()
            else:
                reader.turn_to(partition)
        if reader is None:
            reader = PartitionReader(partition, turns=True)
        else:
            turning.remove(reader)
        turning.append(reader)
        return reader

    def drop(self, partition: Partition) -> None:
        """Close this thread's readers of a partition, whose client failed in an unknown state."""
        kept = self._kept.pop(partition, None)
        turning = [each for each in self._turning if each.partition == partition]
        self._turning = [each for each in self._turning if each not in turning]
        for reader in (*turning, *([kept] if kept else [])):
            reader.close()

    def close(self) -> None:
        """Close all readers of this thread (tests)."""
        for reader in (*self._kept.values(), *self._turning):
            reader.close()
        self._kept.clear()
        self._turning.clear()


READERS = Readers()


def newest_ms(messages: list[Message]) -> int:
    """Return the time of the last record, in milliseconds; 0 if the topic has none."""
    kind_and_time: tuple[int, int] = messages[-1].timestamp()
    return max(0, kind_and_time[1])


def times_ns(messages: list[Message]) -> list[int]:
    """Return the records' times in nanoseconds; 0 if the topic has none."""
    return [max(0, message.timestamp()[1]) * 1_000_000 for message in messages]


def values(messages: list[Message]) -> list[Any]:
    """Return the records' values; a tombstone's is None."""
    return [message.value() for message in messages]
