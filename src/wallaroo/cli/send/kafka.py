"""A sender of messages as records of a Kafka topic.

Where it runs: a process of its own.  It imports confluent-kafka, which is optional.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from wallaroo.cli.send.sending import Blocks, SendOptions, Sent, send_over
from wallaroo.cli.terminal.kafka_address import KafkaAddress
from wallaroo.connectors.kafka.client import (
    EVENTS_MAX,
    REFUSALS,
    answer_of,
    error_of,
    sentence,
    settings,
)
from wallaroo.errors import PeerError

POLL_EVERY = 1000  # records between two polls for delivery reports
FULL_S = 0.1  # the wait while the client's queue is full
LINGER_MS = 5
PURGE_S = 1.0  # the client's time to drop what can no longer be sent


def partitions_of(
    client: Any, events: deque[KafkaError], address: KafkaAddress, timeout_s: float
) -> list[int]:
    """Return a topic's partitions.  ``events``: what the client's ``error_cb`` appends to.

    Raises PeerError if the topic, or its cluster, does not exist, or refuses the client.
    """
    try:
        topics = answer_of(client, events, lambda: client.list_topics(address.topic, timeout_s))
    except KafkaException as raised:
        error = error_of(raised)
        remedy = "Is the broker running there?"
        if error.code() in REFUSALS:
            remedy = "Correct the login or the certificates: --kafka-option."
        raise PeerError(
            f"cannot reach {address} within {timeout_s:g} s: {sentence(error)}. {remedy}"
        ) from None
    topic = topics.topics[address.topic]
    if topic.error is not None:
        raise PeerError(f"topic '{address.topic}' at {address.brokers}: {sentence(topic.error)}.")
    return sorted(topic.partitions)


class TopicRecords:
    """A channel to a topic: a record for each message.

    ``overhead`` bytes before a message are left out; the part before a ``divider`` is its key.
    """

    def __init__(
        self, address: KafkaAddress, connect_timeout_s: float, overhead: int, divider: bytes | None
    ):
        self._address = address
        self._overhead = overhead
        self._divider = divider
        self._failed = ""
        # log_level 0: errors that the client would print are returned from calls as well
        own = {"enable.idempotence": True, "linger.ms": LINGER_MS, "log_level": 0}
        events: deque[KafkaError] = deque(maxlen=EVENTS_MAX)
        common = {**settings(address.brokers, address.options), "error_cb": events.append}
        try:
            self._producer: Any = Producer({**own, **common})
        except KafkaException as raised:
            raise PeerError(
                f"no Kafka client for {address} can be made: {sentence(error_of(raised))}. Options "
                "have librdkafka's names; correct --kafka-option."
            ) from None
        partitions_of(self._producer, events, address, connect_timeout_s)

    def put(self, part: memoryview, sent: int) -> None:
        if sent % POLL_EVERY == 0:
            self.wait(0.0)
        key, value = _key_and_value(bytes(part[self._overhead :]), self._divider)
        while True:
            try:
                self._producer.produce(self._address.topic, value, key, on_delivery=self._note)
            except BufferError:
                self.wait(FULL_S)
            except KafkaException as error:
                self._failed = sentence(error_of(error))
                self.wait(0.0)
            else:
                return

    def wait(self, seconds: float) -> None:
        """Poll for delivery reports.  Raises PeerError if a record failed."""
        self._producer.poll(seconds)
        if self._failed:
            raise PeerError(f"{self._address} refuses a record: {self._failed}.")

    def finish(self, sent: int, timeout_s: float) -> bool:
        left = self._producer.flush(timeout_s)
        self.wait(0.0)
        return not left

    def drop(self) -> None:
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
    divider = None if separator is None else separator.encode()
    records = TopicRecords(address, options.connect_timeout_s, overhead, divider)
    sent = send_over(records, blocks, replace(options, batch_size=1))
    return replace(sent, size_bytes=sent.size_bytes - overhead * sent.messages)


def _key_and_value(payload: bytes, divider: bytes | None) -> tuple[bytes | None, bytes]:
    if divider is None:
        return None, payload
    key, found, value = payload.partition(divider)
    return (key, value) if found else (None, payload)
