"""A reader of the records of a Kafka topic.

Where it runs: a process of its own.  It imports confluent-kafka, which is optional.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, BinaryIO

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError

from wallaroo.cli.receive.receiver import OutputTotals
from wallaroo.cli.send.kafka import partitions_of
from wallaroo.cli.terminal.kafka_address import KafkaAddress
from wallaroo.connectors.kafka import client
from wallaroo.errors import PeerError

RECORDS_MAX = 1000  # per poll
CONNECT_S = 10.0

Line = Callable[[Any], bytes]  # a record's line of output


class TopicReader:
    """A consumer of all partitions of a topic, of committed records only."""

    def __init__(self, address: KafkaAddress, *, from_end: bool):
        self._address = address
        events: deque[KafkaError] = deque(maxlen=client.EVENTS_MAX)
        options = {**address.options, "error_cb": events.append}
        self._consumer: Any = client.open_consumer(
            address.brokers, options, isolation="read_committed", reset="earliest"
        )
        try:
            self._partitions = partitions_of(self._consumer, events, address, CONNECT_S)
        except BaseException:
            self.close()
            raise
        start = OFFSET_END if from_end else OFFSET_BEGINNING
        topic = address.topic
        self._consumer.assign(
            [client.topic_partition(topic, number, start) for number in self._partitions]
        )
        self._at_end: set[int] = set()

    @property
    def is_at_end(self) -> bool:
        """Return whether every partition was at its end at the last poll."""
        return len(self._at_end) == len(self._partitions)

    def read(self, wait_s: float, most: int) -> list[Any]:
        """Return new records, at most ``most``.  Raises PeerError if the brokers refuse."""
        records = []
        for message in self._consumer.consume(min(most, RECORDS_MAX), wait_s):
            error = message.error()
            if error is None:
                self._at_end.discard(message.partition())
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._at_end.add(message.partition())
            elif not client.is_transient(error):
                raise PeerError(f"{self._address}: {client.sentence(error)}.")
        return records

    def close(self) -> None:
        self._consumer.close()


def receive_records(
    reader: TopicReader,
    out: BinaryIO | None,
    totals: OutputTotals,
    *,
    count: int,
    until: float,
    ends_at_end: bool,
    flush_s: float,
    separator: str | None = None,
) -> bool:
    """Write records, one per line, until there are ``count`` or the deadline ``until`` has passed.

    With ``ends_at_end`` it also ends when everything was read.  Return whether it ended by that or
    by the count.
    """
    line = _line_of(separator)
    while totals.messages < count:
        records = reader.read(
            min(flush_s, max(0.0, until - time.monotonic())), count - totals.messages
        )
        if records:
            _note(totals, records)
            if out is not None:
                out.write(b"".join(map(line, records)))
        if out is not None:
            out.flush()
        if ends_at_end and reader.is_at_end:
            return True
        if time.monotonic() >= until:
            return False
    return True


def _note(totals: OutputTotals, records: list[Any]) -> None:
    totals.first_ns = totals.first_ns or time.time_ns()
    totals.last_ns = time.time_ns()
    totals.messages += len(records)
    totals.bytes += sum(len(record.value() or b"") for record in records)


def _line_of(separator: str | None) -> Line:
    if separator is None:
        return lambda record: (record.value() or b"") + b"\n"
    divider = separator.encode()
    return lambda record: b"%b%b%b\n" % (record.key() or b"", divider, record.value() or b"")
