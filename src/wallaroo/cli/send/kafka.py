"""A sender of messages as records of a Kafka topic.

Where it runs: a process of its own.  It imports confluent-kafka, which is optional.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaException, Producer

from wallaroo.cli.send.sending import Blocks, SendOptions, Sent
from wallaroo.cli.terminal.kafka_address import KafkaAddress
from wallaroo.connectors.kafka.client import error_of, sentence, settings
from wallaroo.errors import PeerError

POLL_EVERY = 1000  # records between two polls for delivery reports
FULL_S = 0.1  # to wait if the client's queue is full
LINGER_MS = 5
PURGE_S = 1.0  # for the client to drop what cannot be sent any more


class TopicRecords:
    """A producer to one topic, with the outcome of its deliveries."""

    def __init__(self, address: KafkaAddress, connect_timeout_s: float):
        self._address = address
        self._failed = ""
        # log_level 0: errors that the client would print are returned from calls as well
        own = {"enable.idempotence": True, "linger.ms": LINGER_MS, "log_level": 0}
        try:
            self._producer: Any = Producer({**own, **settings(address.brokers, address.options)})
            topic = self._producer.list_topics(address.topic, connect_timeout_s)
        except KafkaException as error:
            raise PeerError(
                f"cannot reach {address} within {connect_timeout_s:g} s: "
                f"{sentence(error_of(error))}. Is the broker running there?"
            ) from None
        problem = topic.topics[address.topic].error
        if problem is not None:
            raise PeerError(f"topic '{address.topic}' at {address.brokers}: {sentence(problem)}.")

    def send(self, key: bytes | None, value: bytes) -> None:
        """Add a record.  Raises PeerError if an earlier one failed."""
        while True:
            try:
                self._producer.produce(self._address.topic, value, key, on_delivery=self._note)
            except BufferError:
                self.look(FULL_S)
            except KafkaException as error:
                self._failed = sentence(error_of(error))
                self.look()
            else:
                return

    def look(self, wait_s: float = 0.0) -> None:
        """Poll for delivery reports.  Raises PeerError if a record failed."""
        self._producer.poll(wait_s)
        if self._failed:
            raise PeerError(f"{self._address} refuses a record: {self._failed}.")

    def finish(self, timeout_s: float) -> bool:
        """Wait until everything is delivered; return whether it is."""
        left = self._producer.flush(timeout_s)
        self.look()
        return not left

    def drop(self) -> None:
        """Drop all undelivered records."""
        self._producer.purge()
        self._producer.flush(PURGE_S)

    def _note(self, error: Any, record: Any) -> None:
        if error is not None and not self._failed:
            self._failed = sentence(error)


def send_records(
    address: KafkaAddress,
    blocks: Blocks,
    overhead: int,
    options: SendOptions,
    *,
    separator: str | None = None,
) -> Sent:
    """Send each message, without the ``overhead`` bytes before it, as a record's value.

    With a ``separator``, the part before it is the record's key.  Ctrl-C ends it early and is no
    error.  Raises PeerError if the brokers stay unavailable or refuse.
    """
    records = TopicRecords(address, options.connect_timeout_s)
    divider = None if separator is None else separator.encode()
    began = time.monotonic()
    until = began + options.duration_s if options.duration_s is not None else float("inf")
    messages = 0
    size_bytes = 0
    lag_s = 0.0
    is_read = False
    try:
        for payload in itertools.islice(_payloads(blocks, overhead, options), options.count):
            if options.rate:
                due = began + messages / options.rate
                early_s = min(due, until) - time.monotonic()
                if early_s > 0:
                    records.look(early_s)
                lag_s = max(lag_s, -early_s)
            if messages % POLL_EVERY == 0:
                records.look()
            if time.monotonic() >= until:
                break
            records.send(*_key_and_value(payload, divider))
            messages += 1
            size_bytes += len(payload)
        is_read = records.finish(options.read_timeout_s)
    except KeyboardInterrupt:
        pass
    finally:
        if not is_read:
            records.drop()
    return Sent(messages, size_bytes, time.monotonic() - began, lag_s, is_read)


def _payloads(blocks: Blocks, overhead: int, options: SendOptions) -> Iterator[bytes]:
    for _ in range(options.repeat) if options.repeat else itertools.repeat(None):
        is_empty = True
        for block in blocks():
            start = 0
            for end in block.ends:
                is_empty = False
                yield block.content[start + overhead : end]
                start = end
        if is_empty:
            return


def _key_and_value(payload: bytes, divider: bytes | None) -> tuple[bytes | None, bytes]:
    if divider is None:
        return None, payload
    key, found, value = payload.partition(divider)
    return (key, value) if found else (None, payload)
