"""Reading ranges of a partition with a consumer that stays open.

Where it runs: workers.

The next range continues where the last one ended.

The invariant: `read` yields exactly the records of the partition with ``start <= offset < end``, in
order of offset.  A range ends by position, not by count: transaction markers, aborted records and
compaction take offsets for which no record comes.  The end is reached by a record at or after it,
or by the client's notice that it has come to the partition's end.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from wallaroo.connectors.kafka.client import (
    LOGGER,
    REQUEST_S_MAX,
    UNAUTHORIZED,
    error_of,
    is_transient,
    open_consumer,
    sentence,
    topic_partition,
)
from wallaroo.errors import CheckpointError, PeerError

MESSAGES_MAX = 8192  # taken from the client per call
POLL_S = 0.5  # the wait of one poll of an empty queue
SILENCE_S_MAX = 600.0  # without anything from the brokers; after that the task fails
OPEN_MAX = 8  # consumers that a worker keeps


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition as a reader sees it.  ``options`` are sorted pairs, so that it can be a key."""

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

    def __init__(self, partition: Partition, poll_s: float = POLL_S):
        self._partition = partition
        self._poll_s = poll_s
        self._consumer: Consumer = open_consumer(
            partition.brokers,
            dict(partition.options),
            isolation=partition.isolation,
        )
        self._continues: tuple[int, int] | None = None
        self._ahead: list[Message] = []  # taken from the client, and after the last range

    def prepare(self, start: int) -> None:
        """Let the client fetch from ``start`` on, unless it already does."""
        if self._continues is None or not self._continues[0] <= start <= self._continues[1]:
            self._continues = None
            self._seek(start)
            self._continues = (start, start)

    def read(self, start: int, end: int) -> Iterator[list[Message]]:
        """Yield the records of a range in order.

        Raises CheckpointError if they are gone, PeerError if the brokers stay silent for
        SILENCE_S_MAX.
        """
        self.prepare(start)
        self._continues = None  # None until this range has been read to its end
        received_at = time.monotonic()
        position = start
        while position < end:
            messages = self._take()
            if messages:
                received_at = time.monotonic()
            elif time.monotonic() - received_at > SILENCE_S_MAX:
                raise self._silent(position)
            records, position = self._sorted_out(messages, position)
            inside = bisect_left(records, end, key=offset_of)
            self._ahead = records[inside:]
            if inside:
                yield records[:inside]
        first = offset_of(self._ahead[0]) if self._ahead else position
        self._continues = (end, first)

    def close(self) -> None:
        self._ahead.clear()
        self._consumer.close()

    def _seek(self, start: int) -> None:
        self._ahead.clear()
        partition = self._partition
        self._consumer.assign([topic_partition(partition.topic, partition.number, start)])

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
            raise self._failed(error_of(error)) from error
        return messages

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
            elif not is_transient(error):
                raise self._failed(error)
        return position

    def _after_lost(self, position: int) -> int:
        """Continue at the first available offset, and report how many are missing.

        Raises CheckpointError if the source may not skip them.
        """
        partition = self._partition
        if not partition.skips_lost:
            raise self._lost(position)
        place = topic_partition(partition.topic, partition.number)
        first, _ = self._consumer.get_watermark_offsets(place, REQUEST_S_MAX)
        if first <= position:
            raise CheckpointError(
                f"{partition} ends before offset {position} now: was the topic recreated while it "
                "was read? Run again: the source then skips what is lost."
            )
        LOGGER.warning(
            "%s begins at offset %s now: %s offsets are skipped",
            partition,
            f"{first:,}",
            f"{first - position:,}",
        )
        self._seek(first)
        return first

    def _lost(self, position: int) -> CheckpointError:
        return CheckpointError(
            f"{self._partition} no longer holds offset {position}: the topic's retention removed "
            "records that were not processed yet. To continue without them, configure the source "
            "with on_data_loss='skip'; how many are missing is reported then."
        )

    def _silent(self, position: int) -> PeerError:
        return PeerError(
            f"{self._partition} cannot be read from offset {position}: no broker of "
            f"{self._partition.brokers} has answered for {SILENCE_S_MAX:.0f} s. Nothing is lost: "
            "run again when they are there."
        )

    def _failed(self, error: KafkaError) -> PeerError:
        way_out = "."
        if error.code() in UNAUTHORIZED:
            way_out = f": give the user the right Read on topic '{self._partition.topic}'."
        return PeerError(f"{self._partition} cannot be read: {sentence(error)}{way_out}")


def offset_of(message: Message) -> int:
    """Return a record's offset; a record from a broker has one."""
    return cast(int, message.offset())


class _Readers(threading.local):
    """The readers of one thread.

    Two runs in one process may read the same partition, and a reader has one place in it.
    """

    def __init__(self) -> None:
        self.by_partition: OrderedDict[Partition, PartitionReader] = OrderedDict()


_here = _Readers()


def reader_of(partition: Partition) -> PartitionReader:
    """Return this thread's reader of a partition; close the least recently used ones."""
    readers = _here.by_partition
    reader = readers.pop(partition, None) or PartitionReader(partition)
    readers[partition] = reader
    while len(readers) > OPEN_MAX:
        _, oldest = readers.popitem(last=False)
        oldest.close()
    return reader


def drop_reader(partition: Partition) -> None:
    """Close this thread's reader of a partition, whose client failed in an unknown state."""
    reader = _here.by_partition.pop(partition, None)
    if reader is not None:
        reader.close()


def close_readers() -> None:
    """Close all readers of this thread (tests)."""
    readers = _here.by_partition
    while readers:
        _, reader = readers.popitem()
        reader.close()


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
