"""Kafka clients with our defaults, and what their errors mean for a run.

Where it runs: driver and workers.  It imports confluent-kafka, which is
optional: import it where a Kafka source or sink is opened.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from wallaroo.errors import PeerError

LOGGER = logging.getLogger("wallaroo.kafka")
REQUEST_S_MAX = 10.0  # for an answer to a question about metadata or offsets
# librdkafka sleeps this long when its queue is full; with its default of 1000 ms a worker that is
# faster than a queue's refill stands still (measured: a factor of five)
FETCH_BACKOFF_MS = 5
QUEUE_KBYTES = 16 * 1024  # fetched ahead, per consumer
QUEUE_MESSAGES_MIN = 100_000

# what goes away by itself: the client tries again, and a run waits
PASSING = frozenset(
    [
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
    ]
)


def is_passing(error: KafkaError) -> bool:
    """Whether the same request may succeed later without anybody's doing."""
    return error.code() in PASSING or error.retriable()


def error_of(raised: KafkaException) -> KafkaError:
    """Return the error inside an exception of the client."""
    inner = raised.args[0]
    assert isinstance(inner, KafkaError)
    return inner


def sentence(error: KafkaError) -> str:
    """Return an error in the broker's or the client's words, on one line."""
    return " ".join(str(error.str()).split())


def quiet(_: Any) -> None:
    """Take the client's own error events: what matters comes back from a call, too."""


def settings(brokers: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return what every client is configured with; the user's options win."""
    return {
        "bootstrap.servers": brokers,
        "client.id": "wallaroo",
        "logger": LOGGER,
        "error_cb": quiet,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        **options,
    }


def open_admin(brokers: str, options: Mapping[str, str]) -> AdminClient:
    """Open a client that asks for metadata and offsets.  Raises PeerError for an unknown option."""
    try:
        return AdminClient(settings(brokers, options))
    except KafkaException as error:
        raise _refused(brokers, error) from error


def open_consumer(
    brokers: str, options: Mapping[str, str], *, isolation: str, skips_lost: bool
) -> Consumer:
    """Open a consumer that is assigned partitions by hand and belongs to no group."""
    own = {
        "group.id": "wallaroo-unused",  # the client wants one; nothing is committed to it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest" if skips_lost else "error",
        "isolation.level": isolation,
        "fetch.queue.backoff.ms": FETCH_BACKOFF_MS,
        "fetch.wait.max.ms": 50,
        "queued.min.messages": QUEUE_MESSAGES_MIN,
        "queued.max.messages.kbytes": QUEUE_KBYTES,
    }
    try:
        return Consumer({**settings(brokers, options), **own, **_consumer_options(options)})
    except KafkaException as error:
        raise _refused(brokers, error) from error


def _consumer_options(options: Mapping[str, str]) -> dict[str, str]:
    fixed = ("enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof")
    return {name: value for name, value in options.items() if name not in fixed}


def _refused(brokers: str, error: KafkaException) -> PeerError:
    return PeerError(
        f"no Kafka client for {brokers} can be made: {sentence(error_of(error))}. Options have "
        f"librdkafka's names; correct options={{...}}."
    )


def topic_partition(topic: str, partition: int, offset: int | None = None) -> TopicPartition:
    """Return the client's value for a partition, or for a place in it."""
    if offset is None:
        return TopicPartition(topic, partition)
    return TopicPartition(topic, partition, offset)


# the client's own functions that make these have no types
FIRST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
NEXT: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def since(time_ms: int) -> OffsetSpec:
    """Ask for the first offset at or after a time (unix, milliseconds); -1 where there is none."""
    spec: OffsetSpec = OffsetSpec.for_timestamp(time_ms)
    return spec
