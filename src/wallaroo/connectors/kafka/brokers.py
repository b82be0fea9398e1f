"""Queries of a Kafka source to its brokers: topics, ids and offsets.

Where it runs: driver.  Queries are made now and then; at once after an answer that does not fit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from confluent_kafka import KafkaException

from wallaroo.connectors.kafka import client
from wallaroo.connectors.kafka.broker_names import is_among
from wallaroo.connectors.kafka.identity import Topics
from wallaroo.connectors.kafka.offsets import Flat
from wallaroo.errors import PeerError

METADATA_S = 5.0  # between two polls for new topics and partitions
DOUBT_S = 0.5  # the same, while something does not match
# how long topics or records have to be missing before they count as lost: brokers that have just
# started do not know all of them for a moment
CONFIRM_S = 10.0
SILENT_S = 5.0  # at the start without an answer, until that is reported: a query may take longer
PATIENCE_S = 30.0  # how long the start of a run waits: a broker may be starting, too
# A client is replaced after this time without an answer: some never reconnected, while the broker
# answered others.
REOPEN_S = 30.0
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class TopicsQuery:
    """The topics of a Kafka source, and how they are read; picklable."""

    source: str
    brokers: str
    topics: tuple[str, ...]  # names; one that begins with ^ is a regular expression
    # earliest, latest, stored, a time in milliseconds, or offsets by topic and partition
    start: str | int | Mapping[str, Mapping[int, int]]
    group: str  # offsets are published to it; empty: nowhere
    isolation: str
    on_data_loss: str  # "stop" or "skip"
    is_bounded: bool  # ends at what the topics hold when the run begins
    with_metadata: bool  # decoders get a KafkaRecord instead of the value
    publishes: bool = True  # publish offsets to the group
    options: tuple[tuple[str, str], ...] = field(repr=False, default=())
    request_s: float = client.REQUEST_S_MAX
    metadata_s: float = METADATA_S
    confirm_s: float = CONFIRM_S
    patience_s: float = PATIENCE_S
    silent_s: float = SILENT_S


class Brokers:
    """A source's queries, and the last answers, in this process.

    The batches' thread and the observer's make them.
    """

    def __init__(self, subscription: TopicsQuery):
        self._subscription = subscription
        self._opened: client.Inquiry | None = None
        self._answered_at = time.monotonic()  # or when the client was opened
        self._asked_at = float("-inf")  # the last query for topics
        self._first: Flat = {}
        self.ids: dict[str, str] = {}
        self._known: dict[tuple[str, str], dict[int, int]] = {}
        self.is_doubted = False  # something does not match: topics are then queried often

    def topics(self) -> Topics:
        """Return all topics' extent.  Raises PeerError if none answers, or one is missing."""
        ends = self.offsets(client.NEXT)
        if any(end < self._known_of(topic).get(number, 0) for (topic, number), end in ends.items()):
            self.forget()  # the topic may be another one
            ends = self.offsets(client.NEXT)
        for (topic, number), end in ends.items():
            self._known_of(topic)[number] = end
        return Topics(self._first, ends, self.ids, self._known, self._subscription.topics)

    def _known_of(self, topic: str) -> dict[int, int]:
        """Return the last known ends of a topic, under its present id."""
        return self._known.setdefault((topic, self.ids.get(topic, "")), {})

    def offsets(self, time_ms: int) -> Flat:
        """Return each partition's first offset at or after a time (see `Inquiry.offsets`)."""
        self._look()
        try:
            return self._ask(lambda inquiry: inquiry.offsets(self._first, time_ms))
        except PeerError:
            self.forget()  # a partition may be gone
            raise

    def open(self) -> None:
        """Open the client, which checks its options.  Raises PeerError."""
        self._inquiry()

    def close(self) -> None:
        """Disconnect, once a call of another thread has ended."""
        self._opened = None

    def forget(self) -> None:
        """Query topics again at the next call."""
        self._asked_at = float("-inf")

    def stored(self) -> Flat:
        """Return the group's offsets; if it has none, the earliest ones."""
        earliest = self.offsets(client.FIRST)
        stored = self._ask(lambda inquiry: inquiry.committed(earliest))
        return {**earliest, **{(p.topic, p.partition): p.offset for p in stored}}

    def publish(self, offsets: Flat) -> None:
        """Commit offsets to the group, without waiting for the answer.  Raises KafkaException."""
        self._inquiry().publish(offsets)

    def _look(self) -> None:
        """Query ids, then offsets, so that no later topic's offset counts for an earlier one."""
        metadata_s = self._subscription.metadata_s
        wait_s = min(DOUBT_S, metadata_s) if self.is_doubted else metadata_s
        if time.monotonic() - self._asked_at < wait_s:
            return
        partitions = self._partitions()
        names = sorted({topic for topic, _ in partitions})
        ids = self._ask(lambda inquiry: inquiry.ids(names))
        self._first = self._ask(lambda inquiry: inquiry.offsets(partitions, client.FIRST))
        self.ids = ids
        self._asked_at = time.monotonic()

    def _partitions(self) -> list[tuple[str, int]]:
        topics = self._ask(lambda inquiry: inquiry.topics())
        partitions: set[tuple[str, int]] = set()
        for wanted in self._subscription.topics:
            names = [name for name in topics if is_among(name, (wanted,))]
            if not names and not wanted.startswith("^"):
                raise self._no_topic(wanted, list(topics))
            partitions.update((name, number) for name in names for number in topics[name])
        return sorted(partitions)

    def _inquiry(self) -> client.Inquiry:
        if self._opened is None:
            query = self._subscription
            self._answered_at = time.monotonic()
            try:
                self._opened = client.Inquiry(
                    query.brokers,
                    dict(query.options),
                    group=query.group,
                    isolation=query.isolation,
                    request_s=query.request_s,
                )
            except PeerError as error:
                raise PeerError(f"source '{query.source}': {error}") from error
        return self._opened

    def _ask(self, ask: Callable[[client.Inquiry], Answer]) -> Answer:
        inquiry = self._inquiry()
        try:
            answer = ask(inquiry)
            self._answered_at = time.monotonic()
            return answer
        except KafkaException as raised:
            error = client.error_of(raised)
            if client.is_transient(error) and time.monotonic() - self._answered_at > REOPEN_S:
                self._replace(inquiry)
            own = self._subscription
            where = f"source '{own.source}': Kafka at {own.brokers}"
            if client.is_transient(error):
                raise PeerError(f"{where} is unavailable ({client.sentence(error)})") from raised
            raise PeerError(
                f"{where}: {client.sentence(error)}; correct the configuration."
            ) from raised

    def _replace(self, inquiry: client.Inquiry) -> None:
        """Let the next query open another client.

        Another thread may be in a call of this one, which ends when nothing refers to it.
        """
        if self._opened is inquiry:
            self._opened = None

    def _no_topic(self, wanted: str, there: list[str]) -> PeerError:
        own = self._subscription
        return PeerError(
            f"source '{own.source}': Kafka at {own.brokers} has no topic '{wanted}'. "
            f"{client.hint_at(wanted, there)}"
        )
