"""Kafka clients with our defaults, and their errors' meaning for runs.

Where it runs: driver and workers.  It imports confluent-kafka, which is optional: import it only to
open a Kafka source or sink.

The invariant: no Python code runs in a thread of librdkafka.  Its administration client calls
Python from such a thread; if the garbage collector frees another client in that thread, the process
dies (confluent-kafka-python, pull request 2129).  A consumer's blocking calls answer the same
queries, except for topics' ids (`wallaroo.connectors.kafka.topic_ids`).
"""

from __future__ import annotations

import difflib
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from wallaroo.connectors.kafka.topic_ids import TopicIds
from wallaroo.errors import PeerError

LOGGER = logging.getLogger("wallaroo.kafka")
Answer = TypeVar("Answer")
REQUEST_S_MAX = 10.0  # for an answer to a query of metadata or offsets
# librdkafka sleeps this long when its queue is full; with its default of 1000 ms a worker that is
# faster than a queue's refill does not move (measured: a factor of five)
FETCH_BACKOFF_MS = 5
QUEUE_KBYTES = 16 * 1024  # fetched ahead, per consumer
QUEUE_MESSAGES_MIN = 100_000
EVENTS_MAX = 100  # a client's errors, kept for a request
UNUSED_GROUP = "wallaroo-unused"  # the client requires a group; nothing is committed to this one
# times with a meaning of their own in the protocol (ListOffsets request)
FIRST = -2
NEXT = -1

DESTROY_BROKER = -137  # in librdkafka 2.10 and later

# transient errors: the client retries, and a run waits
PASSING = frozenset(
    [
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        # a broker that restarts: it does not know its topics yet, or the connection is to one that
        # was replaced meanwhile
        KafkaError._UNKNOWN_PARTITION,
        DESTROY_BROKER,
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


SPARED_S = 60.0  # between two log lines of one kind
_KIND = re.compile(r"(\w+) \[[^]]*\] (\[thrd:[^]]*\])?")


class SparingFilter(logging.Filter):
    """A filter that passes one log line of a kind per minute.

    A kind is a line's first word, and the broker that it is about: clients log each of their
    attempts to connect, some in a second.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        super().__init__()
        self._clock = clock
        self._passed: dict[tuple[str, ...], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        found = _KIND.match(record.getMessage())
        if found is None:
            return True
        now = self._clock()
        kind = found.groups("")
        if now - self._passed.get(kind, -SPARED_S) < SPARED_S:
            return False
        self._passed[kind] = now
        return True


LOGGER.addFilter(SparingFilter())
# a sink's consumers have the options of its producer
SINK_LOGGER = LOGGER.getChild("sink")
SINK_LOGGER.addFilter(lambda record: "is a producer property" not in record.getMessage())
SINK_LOGGER.addFilter(SparingFilter())

# operations that the user of the brokers is not allowed to do: waiting does not help
UNAUTHORIZED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
# the client's own errors: a wrong password, a certificate that is not trusted
REFUSALS = (KafkaError._AUTHENTICATION, KafkaError._SSL)


def is_transient(error: KafkaError) -> bool:
    """Return whether retrying the same request may succeed."""
    return error.code() in PASSING or error.retriable()


def error_of(raised: KafkaException) -> KafkaError:
    """Return the error inside an exception of the client."""
    inner = raised.args[0]
    assert isinstance(inner, KafkaError)
    return inner


def sentence(error: KafkaError) -> str:
    """Return an error on one line, in the broker's or the client's words, without a duration."""
    return " ".join(str(error.str()).split()).partition(" (after ")[0]


def hint_at(wanted: str, there: Iterable[str]) -> str:
    """Return the remedy for a missing topic among the existing ones."""
    way_out = "create it, correct its name, or give the user the right Describe on it."
    near = difflib.get_close_matches(wanted, list(there), 1)
    if near:
        return f"Did you mean '{near[0]}'? If not, {way_out}"
    return f"C{way_out[1:]}"


def quiet(_: Any) -> None:
    """Drop the client's own error events: those that matter are also results of calls."""


def answer_of(client: Any, events: deque[KafkaError], ask: Callable[[], Answer]) -> Answer:
    """Make a client's request; raise its error if the brokers refuse, or do not answer.

    If they refuse the client, or their names are unknown, they never answer: the cause comes as one
    of the client's events, which its ``error_cb`` appends.
    """
    client.poll(0)  # earlier events, and the client's log lines
    events.clear()
    try:
        return ask()
    except KafkaException as raised:
        client.poll(0)
        unknown = [KafkaError._RESOLVE] if is_transient(error_of(raised)) else []
        known = tuple(events)  # another thread's call may add one
        for code in (*REFUSALS, *unknown):
            for error in known:
                if error.code() == code:
                    raise KafkaException(error) from None
        raise


def settings(brokers: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of every client; the user's options override them."""
    return {
        "bootstrap.servers": brokers,
        "client.id": "wallaroo",
        "logger": LOGGER,
        "error_cb": quiet,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        **options,
    }


class Inquiry:
    """A client for queries of metadata and offsets.

    It acts on behalf of a consumer group that it is not a member of.  Every call waits for the
    brokers' answer and raises KafkaException if there is none.
    """

    def __init__(
        self,
        brokers: str,
        options: Mapping[str, Any],
        *,
        group: str = "",
        isolation: str = "read_committed",
        request_s: float = REQUEST_S_MAX,
    ):
        events: deque[KafkaError] = deque(maxlen=EVENTS_MAX)
        fixed = {
            "group.id": group or UNUSED_GROUP,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "error_cb": events.append,  # no method of this object: the client would keep it
        }
        self._events = events
        self._request_s = request_s
        self._consumer: Consumer = _consumer(brokers, {**settings(brokers, options), **fixed})
        self._configuration = settings(brokers, options)
        self._ids: TopicIds | None = None

    def topics(self) -> dict[str, list[int]]:
        found = self._asked(lambda: self._consumer.list_topics(timeout=self._request_s)).topics
        return {name: sorted(topic.partitions) for name, topic in found.items()}

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of topics that have one."""
        return self._descriptions().of(topics)

    def rights(self, topic: str) -> set[int]:
        """Return the operations that the user may do on a topic; none if it is unknown."""
        return self._descriptions().rights(topic)

    def _descriptions(self) -> TopicIds:
        if self._ids is None:
            self._ids = TopicIds(self._configuration, self._request_s)
        return self._ids

    def offsets(
        self, partitions: Iterable[tuple[str, int]], time_ms: int
    ) -> dict[tuple[str, int], int]:
        """Return each partition's first offset at or after a time; -1 if there is none.

        The time is unix time in milliseconds, or FIRST (the partition's beginning) or NEXT (the
        offset of the next record).
        """
        places = [TopicPartition(topic, number, time_ms) for topic, number in partitions]
        if not places:
            return {}
        answers = self._asked(lambda: self._consumer.offsets_for_times(places, self._request_s))
        return {(answer.topic, answer.partition): answer.offset for answer in _checked(answers)}

    def committed(self, partitions: Iterable[tuple[str, int]]) -> list[TopicPartition]:
        """Return the group's committed offsets, after open transactions, if any."""
        places = [TopicPartition(topic, number) for topic, number in partitions]
        if not places:
            return []
        answers = self._asked(lambda: self._consumer.committed(places, self._request_s))
        return [answer for answer in _checked(answers) if answer.offset >= 0]

    def publish(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets to the group without waiting for the answer."""
        changed = [TopicPartition(t, number, offset) for (t, number), offset in offsets.items()]
        if changed:
            self._consumer.commit(offsets=changed, asynchronous=True)

    def close(self) -> None:
        self._consumer.close()

    def _asked(self, ask: Callable[[], Answer]) -> Answer:
        return answer_of(self._consumer, self._events, ask)


def _checked(answers: list[TopicPartition]) -> list[TopicPartition]:
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return answers


def open_consumer(
    brokers: str,
    options: Mapping[str, Any],
    *,
    isolation: str,
    reset: str = "error",
    tuning: Mapping[str, int] | None = None,
) -> Consumer:
    """Open a consumer without a group; ``reset``: ``auto.offset.reset``."""
    fixed = {
        "group.id": UNUSED_GROUP,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": reset,
        "isolation.level": isolation,
        "fetch.queue.backoff.ms": FETCH_BACKOFF_MS,
        "fetch.wait.max.ms": 50,
        "queued.min.messages": QUEUE_MESSAGES_MIN,
        "queued.max.messages.kbytes": QUEUE_KBYTES,
        **(tuning or {}),
    }
    return _consumer(brokers, {**settings(brokers, options), **fixed, **_consumer_options(options)})


def _consumer_options(options: Mapping[str, Any]) -> dict[str, Any]:
    fixed = ("enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof")
    return {name: value for name, value in options.items() if name not in fixed}


def _consumer(brokers: str, configuration: Mapping[str, Any]) -> Consumer:
    """Open a consumer.  Raises PeerError for an unknown option."""
    try:
        return Consumer(dict(configuration))
    except KafkaException as error:
        raise PeerError(
            f"no Kafka client for {brokers} can be made: {sentence(error_of(error))}. Options have "
            f"librdkafka's names; correct options={{...}}."
        ) from error


def topic_partition(topic: str, partition: int, offset: int | None = None) -> TopicPartition:
    """Return the client's value for a partition, or for a place in it."""
    if offset is None:
        return TopicPartition(topic, partition)
    return TopicPartition(topic, partition, offset)
