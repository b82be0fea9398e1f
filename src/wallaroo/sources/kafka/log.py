"""A Kafka topic, or several, as a source log.

Where it runs: the driver asks for heads, workers read ranges.

The invariant: how far an application has come is in its commits alone.  The offsets that are
committed to the consumer group are for people and their monitoring; nothing reads them back, unless
the source is configured to start from them.  A partition that a position does not mention begins at
offset 0: it was created after the run began, and nothing of it was processed.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from wallaroo.clients.kafka import (
    FIRST,
    NEXT,
    REQUEST_S_MAX,
    Inquiry,
    error_of,
    is_transient,
    sentence,
)
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.sources.kafka.offsets import Flat, flat, missing, position_of, split
from wallaroo.sources.kafka.reader import (
    Partition,
    drop_reader,
    newest_ms,
    reader_of,
    times_ns,
    values,
)
from wallaroo.sources.kafka.records import KafkaRecord, record_of
from wallaroo.sources.log import Head, Position, Range, Records, SourceLog
from wallaroo.sources.offsets import advanced, backlog

METADATA_S = 5.0  # between two looks for new topics and partitions
HEAD_S = 0.005  # a head younger than this is not asked for again
RETRY_S = 1.0  # after a broker has not answered
PUBLISH_S = 1.0  # between two commits of offsets to the group
PATIENCE_S = 30.0  # at the start of a run: a broker may be starting, too
LATEST = "latest"
STORED = "stored"


Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a Kafka source reads, and how; picklable."""

    source: str
    brokers: str
    topics: tuple[str, ...]  # names; one that begins with ^ is a regular expression
    start: str | int  # earliest, latest, stored, or a time in milliseconds
    group: str  # offsets are published to it; empty: nowhere
    isolation: str
    on_data_loss: str  # "stop" or "skip"
    is_bounded: bool  # ends at what the topics hold when the run begins
    with_metadata: bool  # decoders get a KafkaRecord instead of the value
    options: tuple[tuple[str, str], ...] = field(repr=False, default=())
    request_s: float = REQUEST_S_MAX


@dataclass(slots=True)
class _Asked:
    """What the last answers were, in this process."""

    inquiry: Inquiry | None = None
    partitions: tuple[tuple[str, int], ...] = ()
    partitions_at: float = float("-inf")
    head: Head | None = None
    head_at: float = float("-inf")
    published_at: float = float("-inf")


class KafkaLog(SourceLog):
    """See the module's head."""

    def __init__(self, subscription: Subscription, bound: Position | None = None):
        """``bound`` is where a bounded source ends; the first look finds it."""
        self._subscription = subscription
        self._bound = bound
        self._asked = _Asked()

    def __reduce__(self) -> tuple[type[KafkaLog], tuple[Subscription, Position | None]]:
        return KafkaLog, (self._subscription, self._bound)

    # -- planning ---------------------------------------------------------------------------------

    def beginning(self) -> Position:
        """Ask the brokers for the start that is configured.  Raises PeerError where they do not
        answer or a topic is missing.
        """
        self._find_bound()
        return self._with_retries(self._beginning)

    def _find_bound(self) -> None:
        if self._subscription.is_bounded and self._bound is None:
            self._with_retries(self._look)

    def _beginning(self) -> Position:
        start = self._subscription.start
        if start == STORED:
            return position_of(self._stored())
        if isinstance(start, int):
            found = self._list(start)
            ends = self._list(NEXT)
            return position_of({p: o if o >= 0 else ends[p] for p, o in found.items()})
        return position_of(self._list(NEXT if start == LATEST else FIRST))

    def head(self) -> Head:
        """Return how far the partitions go.  Where no broker answers: what was last known, and
        why.
        """
        asked = self._asked
        now = time.monotonic()
        wait_s = RETRY_S if asked.head is not None and asked.head.error else HEAD_S
        if asked.head is not None and now - asked.head_at < wait_s:
            return asked.head
        try:
            asked.head = self._look()
        except PeerError as error:
            known = asked.head.position if asked.head is not None else Position({}, 0)
            asked.head = Head(known, error=str(error))
        asked.head_at = time.monotonic()
        return asked.head

    def backlog_events(self, position: Position, head: Head) -> int:
        return backlog(flat(position.place), flat(head.position.place))

    def advance(self, start: Position, events_max: int) -> Position:
        """Move towards the head, sharing ``events_max`` offsets over the partitions."""
        head = flat(self.head().position.place)
        begin = {**dict.fromkeys(head, 0), **flat(start.place)}
        return position_of(advanced(begin, head, events_max))

    def split(self, start: Position, end: Position, pieces: int) -> list[list[Range]]:
        """Cut at offsets."""
        ends = flat(end.place)
        begin = {**dict.fromkeys(ends, 0), **flat(start.place)}
        return split({p: o for p, o in begin.items() if p in ends}, ends, pieces)

    def partitions(self, position: Position) -> frozenset[str]:
        return frozenset(f"{topic}-{number}" for topic, number in flat(position.place))

    def require(self, position: Position) -> None:
        """Raise CheckpointError where retention removed what was not processed yet."""
        self._find_bound()
        if self._subscription.on_data_loss != "stop" or not position.place:
            return
        first = self._with_retries(lambda: self._list(FIRST))
        wanted = {p: o for p, o in flat(position.place).items() if p in first}
        lost = list(missing(wanted, first))
        gone = sorted(set(flat(position.place)) - set(first))
        if gone:
            topic, partition = gone[0]
            raise CheckpointError(
                f"source '{self._subscription.source}': Kafka has no partition {partition} of "
                f"topic '{topic}', of which this application has processed "
                f"{flat(position.place)[gone[0]]:,} offsets. Was the topic deleted or made again? "
                "Restore it, or give this application a checkpoint of its own."
            )
        if lost:
            topic, partition, offset, oldest = lost[0]
            raise CheckpointError(
                f"source '{self._subscription.source}': partition {partition} of Kafka topic "
                f"'{topic}' begins at offset {oldest:,} now; the {oldest - offset:,} offsets from "
                f"{offset:,} on were not processed and are gone. To go on without them, configure "
                f"the source with on_data_loss='skip'."
            )

    def committed(self, position: Position, released: Position | None) -> None:
        """Publish the offsets to the consumer group, now and then, without waiting for the
        answer.
        """
        group = self._subscription.group
        now = time.monotonic()
        if not group or now - self._asked.published_at < PUBLISH_S:
            return
        self._asked.published_at = now
        with contextlib.suppress(KafkaException):
            self._inquiry().publish(flat(position.place))

    # -- reading ----------------------------------------------------------------------------------

    def read(self, part: Range) -> Iterator[Records]:
        """Yield the records of a range of offsets; records without a value are left out unless the
        decoder gets metadata.
        """
        topic, number, start = part.start
        partition = self._partition(topic, number)
        take: Callable[[list[Any]], list[Any]] = self._take()
        try:
            for messages in reader_of(partition).read(start, part.end):
                payloads = take(messages)
                if payloads:
                    newest_ns = newest_ms(messages) * 1_000_000
                    times = partial(self._times, messages)
                    yield Records(part.partition, newest_ns, payloads, times)
        except BaseException:
            drop_reader(partition)
            raise

    def prefetch(self, part: Range) -> None:
        """Let the client fetch while another range is read; what fails then fails in `read`."""
        topic, number, start = part.start
        with contextlib.suppress(KafkaException, PeerError):
            reader_of(self._partition(topic, number)).prepare(start)

    def _times(self, messages: list[Any]) -> list[int]:
        """When the records were made, as their producer or the broker says."""
        if self._subscription.with_metadata:
            return times_ns(messages)
        return times_ns([message for message in messages if message.value() is not None])

    def _take(self) -> Callable[[list[Any]], list[Any]]:
        if self._subscription.with_metadata:
            return _with_metadata
        return _present_values

    def _partition(self, topic: str, number: int) -> Partition:
        own = self._subscription
        skips_lost = own.on_data_loss == "skip"
        return Partition(own.brokers, topic, number, own.isolation, skips_lost, own.options)

    # -- asking the brokers -----------------------------------------------------------------------

    def _inquiry(self) -> Inquiry:
        if self._asked.inquiry is None:
            own = self._subscription
            self._asked.inquiry = Inquiry(
                own.brokers,
                dict(own.options),
                group=own.group,
                isolation=own.isolation,
                request_s=own.request_s,
            )
        return self._asked.inquiry

    def _look(self) -> Head:
        if self._bound is not None:
            return Head(self._bound, is_ended=True)
        latest = position_of(self._list(NEXT))
        if not self._subscription.is_bounded:
            return Head(latest)
        self._bound = latest
        return Head(latest, is_ended=True)

    def _with_retries(self, ask: Callable[[], Answer]) -> Answer:
        """Ask until there is an answer, an error that is not transient, or PATIENCE_S are over."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask()
            except PeerError as error:
                is_final = not isinstance(error.__cause__, KafkaException) or not is_transient(
                    error_of(error.__cause__)
                )
                if is_final or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _partitions(self) -> tuple[tuple[str, int], ...]:
        """Return all partitions of all topics, looked up now and then."""
        asked = self._asked
        if asked.partitions and time.monotonic() - asked.partitions_at < METADATA_S:
            return asked.partitions
        try:
            topics = self._inquiry().topics()
        except KafkaException as error:
            raise self._unanswered(error) from error
        found: list[tuple[str, int]] = []
        for wanted in self._subscription.topics:
            names = [name for name in topics if _matches(wanted, name)]
            if not names and not wanted.startswith("^"):
                raise self._no_topic(wanted, list(topics))
            found += [(name, number) for name in names for number in topics[name]]
        asked.partitions = tuple(sorted(set(found)))
        asked.partitions_at = time.monotonic()
        return asked.partitions

    def _list(self, time_ms: int) -> Flat:
        try:
            return self._inquiry().offsets(self._partitions(), time_ms)
        except KafkaException as error:
            raise self._unanswered(error) from error

    def _stored(self) -> Flat:
        """Return the group's offsets; where it has none, the earliest ones."""
        earliest = self._list(FIRST)
        try:
            found = self._inquiry().committed(earliest)
        except KafkaException as error:
            raise self._unanswered(error) from error
        return {**earliest, **{(p.topic, p.partition): p.offset for p in found}}

    def _unanswered(self, raised: KafkaException) -> PeerError:
        error = error_of(raised)
        own = self._subscription
        what = sentence(error)
        then = "the client keeps trying." if is_transient(error) else "correct the configuration."
        return PeerError(f"source '{own.source}': Kafka at {own.brokers}: {what}; {then}")

    def _no_topic(self, wanted: str, there: list[str]) -> PeerError:
        near = difflib.get_close_matches(wanted, there, 1)
        hint = f" Did you mean '{near[0]}'?" if near else " Create it, or correct its name."
        own = self._subscription
        return PeerError(
            f"source '{own.source}': Kafka at {own.brokers} has no topic '{wanted}'.{hint}"
        )


def _matches(wanted: str, name: str) -> bool:
    if wanted.startswith("^"):
        return not name.startswith("__") and re.search(wanted, name) is not None
    return wanted == name


def _present_values(messages: list[Any]) -> list[Any]:
    found = values(messages)
    return [value for value in found if value is not None] if None in found else found


def _with_metadata(messages: list[Any]) -> list[KafkaRecord]:
    return [record_of(message) for message in messages]
