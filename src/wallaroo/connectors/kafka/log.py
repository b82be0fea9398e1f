"""A Kafka topic, or several, as a source log.

Where it runs: the driver queries heads, workers read ranges.

The invariants:

* The progress of an application is in its commits alone.  The offsets committed to the consumer
  group are for monitoring only; nothing reads them back, unless the source is configured to start
  from them.
* A partition that a position does not mention begins at offset 0: it was created after the run
  began, and nothing of it was processed.
* A position is continued in the topics that it was taken in, known by their ids, and nowhere else
  (`wallaroo.connectors.kafka.identity`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from wallaroo.connectors.kafka.broker_names import brokers_text, is_among
from wallaroo.connectors.kafka.brokers import Brokers, TopicsQuery
from wallaroo.connectors.kafka.client import FIRST, NEXT, error_of, is_transient
from wallaroo.connectors.kafka.identity import SKIP, TopicLoss, Topics, added, losses, settled
from wallaroo.connectors.kafka.offsets import (
    ID,
    Flat,
    Place,
    entries_of,
    flat,
    position_of,
    readable,
    split,
    step,
    waiting,
)
from wallaroo.connectors.kafka.reader import (
    READERS,
    Partition,
    PartitionReader,
    newest_ms,
    times_ns,
    values,
)
from wallaroo.connectors.kafka.record import origin_of, record_of
from wallaroo.connectors.kafka.source import KafkaSourceConfig
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.network.reachability import why_unreachable
from wallaroo.sources.log import (
    SKIPPED,
    Boundary,
    Head,
    LogContext,
    Position,
    Range,
    Records,
    SourceLog,
)

HEAD_S = 0.005  # a head younger than this is not queried again
RETRY_S = 1.0  # after a broker did not answer
CONNECT_S = 1.0  # for each broker to accept a connection at the start
# how long the first start of an application waits for brokers of which none accepts a connection
FIRST_START_S = 5.0
PUBLISH_S = 1.0  # between two commits of offsets to the group
WAY_OUT = "Is it running? Start it, or correct brokers=; then run again."
LISTENER = (
    "It accepts connections: if its listener expects TLS or a login, or does not, correct "
    "security.protocol in options="
)
WAY_IN = f"{LISTENER}; then run again."
LATEST = "latest"
STORED = "stored"

_log = logging.getLogger("wallaroo.run")
Answer = TypeVar("Answer")


class KafkaLog(SourceLog):
    """The log of a Kafka source; see the module's docstring."""

    notes_receipt = True

    def __init__(self, subscription: TopicsQuery, bound: Position | None = None):
        """Create a log; ``bound`` is the end of a bounded source, which the first look finds."""
        self._subscription = subscription
        self._bound = bound
        self._brokers = Brokers(subscription)
        self._topics: Topics | None = None  # at the last look
        self._head: Head | None = None
        self._head_at = float("-inf")
        self._published_at = float("-inf")
        self._lost_since: dict[str, float] = {}  # by topic
        self._reported: set[str] = set()
        self._skipped = 0  # records, since the run began

    def __reduce__(self) -> tuple[type[KafkaLog], tuple[TopicsQuery, Position | None]]:
        return KafkaLog, (self._subscription, self._bound)

    # -- planning ---------------------------------------------------------------------------------

    def beginning(self) -> Position:
        """Return the start that is configured, as the brokers report it.

        Raises PeerError if they do not answer or a topic is missing, CheckpointError if the group's
        offsets are not those of the topics.
        """
        self._await_brokers(min(FIRST_START_S, self._subscription.patience_s))
        self._find_bound()
        position = self._with_retries(self._beginning)
        if self._subscription.start == STORED:
            self._require_stored(position)
        return position

    def _require_stored(self, position: Position) -> None:
        """Compare the group's offsets with the topics, as at every later start."""
        try:
            self.require(position)
        except CheckpointError as error:
            raise CheckpointError(
                f"{error} The offsets are those that group '{self._subscription.group}' has "
                f"stored: correct them there, or choose another start=."
            ) from None

    def _find_bound(self) -> None:
        if self._subscription.is_bounded and self._bound is None:
            self._with_retries(self._look)

    def _beginning(self) -> Position:
        start = self._subscription.start
        brokers = self._brokers
        if start == STORED:
            offsets = brokers.stored()
        elif isinstance(start, int):
            ends = brokers.offsets(NEXT)
            offsets = {p: o if o >= 0 else ends[p] for p, o in brokers.offsets(start).items()}
        elif not isinstance(start, str):
            offsets = self._given(start, brokers.offsets(NEXT))
        else:
            offsets = brokers.offsets(NEXT if start == LATEST else FIRST)
        return position_of(offsets, brokers.ids)

    def _given(self, start: Mapping[str, Mapping[int, int]], ends: Flat) -> Flat:
        """Return the offsets that are configured.  Raises PeerError if they do not fit."""
        offsets = {(topic, n): offset for topic, own in start.items() for n, offset in own.items()}
        beyond = [place for place in offsets.keys() & ends.keys() if offsets[place] > ends[place]]
        problems = {
            "names": offsets.keys() - ends.keys(),
            "names no offset of": ends.keys() - offsets.keys(),
            "is beyond the end of": beyond,
        }
        for what, places in problems.items():
            for topic, number in sorted(places):
                absent = ", which is not there" if (topic, number) not in ends else ""
                raise PeerError(
                    f"source '{self._subscription.source}': the place to start from {what} "
                    f"partition {number} of Kafka topic '{topic}'{absent}. Give one offset for "
                    f"each partition, at most its end. The ends are {_by_topic(ends)}."
                )
        return offsets

    def boundary(self) -> Boundary:
        """Return the beginning, with a time that no record after it is expected to be before."""
        start = self._subscription.start
        position = self.beginning()
        if isinstance(start, int):
            self._with_retries(lambda: self._require_older(position, start))
            return Boundary(position, start * 1_000_000)
        self.require(position)
        return Boundary(position, self._first_ns(position))

    def _require_older(self, position: Position, time_ms: int) -> None:
        """Report partitions whose records at or after a time may be gone already."""
        first = self._brokers.offsets(FIRST)
        for (topic, number), offset in flat(position.place).items():
            if 0 < offset <= first.get((topic, number), 0):
                at = datetime.fromtimestamp(time_ms / 1e3, UTC).isoformat()
                what = (
                    f"partition {number} of Kafka topic '{topic}' begins at offset {offset:,} now, "
                    f"and holds no record from before {at}: records since then may be gone"
                )
                way_out = f"To continue with what is there, {SKIP}, or give its offsets instead."
                skipping = "what is gone is skipped"
                self._skip(TopicLoss(topic, what, way_out, skipping, {}, is_certain=True))

    def _first_ns(self, position: Position) -> int:
        """Return the time of the oldest record that follows a position in any partition."""
        now_ns = time.time_ns()
        ids = entries_of(position.place, ID)
        _, ends = readable(position.place, self.head().position.place)
        times = [now_ns]
        for (topic, number), offset in flat(position.place).items():
            reader = PartitionReader(self._partition(topic, number, ids.get(topic, "")))
            try:
                run = next(reader.read(offset, ends[topic, number]), None)
                times += times_ns(run[:1]) if run else []
            finally:
                reader.close()
        return min(times)

    def head(self) -> Head:
        """Return the partitions' ends; without an answer, the last known ones and the error."""
        head = self._head
        now = time.monotonic()
        wait_s = RETRY_S if head is not None and head.error else HEAD_S
        if head is not None and now - self._head_at < wait_s:
            return head
        try:
            head = Head(self._bound, is_ended=True) if self._bound is not None else self._look()
        except PeerError as error:
            known = head or Head(Position({}, 0))
            head = Head(known.position, error=str(error), as_of_ns=known.as_of_ns)
        head = replace(head, counts={SKIPPED: self._skipped})
        self._head = head
        self._head_at = time.monotonic()
        return head

    def backlog_events(self, position: Position, head: Head) -> int:
        return waiting(position, head.position)

    def advance(self, start: Position, events_max: int) -> Position:
        """Move towards the head, sharing ``events_max`` offsets over the partitions."""
        return step(start, self.head().position, events_max)

    def split(self, start: Position, end: Position, pieces: int) -> list[list[Range]]:
        """Cut at offsets; leave out skipped offsets, which are gone."""
        begin, ends = readable(start.place, end.place)
        if self._topics is not None:
            first = self._topics.first if self._skips else added(start, self._topics)
            begin = {place: max(low, first.get(place, low)) for place, low in begin.items()}
        return split(begin, ends, pieces, entries_of(end.place, ID))

    def partitions(self, position: Position) -> frozenset[str]:
        return frozenset(f"{topic}-{number}" for topic, number in flat(self._read_of(position)))

    def _read_of(self, position: Position) -> Place:
        """Return a position's place without topics that the source no longer reads."""
        wanted = self._subscription.topics
        return {topic: own for topic, own in position.place.items() if is_among(topic, wanted)}

    def lags(self, position: Position, head: Position) -> Mapping[str, int]:
        before, ends = readable(position.place, head.place)
        return {f"{t}-{n}": max(0, end - before[t, n]) for (t, n), end in ends.items()}

    @property
    def group(self) -> str:
        return self._subscription.group

    # -- identity ---------------------------------------------------------------------------------

    def require(self, position: Position) -> None:
        """Raise CheckpointError if records after the position are lost, or topics differ.

        Losses that may be temporary are waited for.
        """
        self._await_brokers(self._subscription.patience_s)
        self._find_bound()
        self._brokers.forget()
        while position.place:
            self._with_retries(self._look)
            self._compared(position)
            if all(map(self._is_confirmed, self._lost_since)):
                return
            time.sleep(0.1)

    def reconcile(self, position: Position) -> Position:
        return position if self.head().error else self._compared(position)

    def _compared(self, position: Position) -> Position:
        """Return the position to continue from, as far as the last look showed."""
        topics = self._topics
        if topics is None:
            return position
        lost = list(losses(position, topics))
        now = time.monotonic()
        doubted = {loss.topic for loss in lost if not loss.is_certain}
        self._lost_since = {topic: self._lost_since.get(topic, now) for topic in doubted}
        self._brokers.is_doubted = bool(doubted)
        taken = [loss for loss in lost if loss.is_certain or self._is_confirmed(loss.topic)]
        for loss in taken:
            self._skip(loss)
        return settled(position, taken, topics)

    def _is_confirmed(self, topic: str) -> bool:
        return time.monotonic() - self._lost_since[topic] >= self._subscription.confirm_s

    def _skip(self, loss: TopicLoss) -> None:
        """Report a skipped loss.  Raises CheckpointError if the source may not skip it."""
        query = self._subscription
        if not self._skips and not loss.is_harmless:
            raise CheckpointError(f"source '{query.source}': {loss.what}. {loss.way_out}")
        if loss.what not in self._reported:
            self._reported.add(loss.what)
            self._skipped += loss.missed
            _log.warning("source '%s': %s: %s", query.source, loss.what, loss.skipping)

    @property
    def _skips(self) -> bool:
        return self._subscription.on_data_loss == "skip"

    def committed(self, position: Position, released: Position | None) -> None:
        """Publish the offsets to the consumer group, at intervals, without awaiting an answer."""
        now = time.monotonic()
        own = self._subscription
        if not (own.group and own.publishes) or now - self._published_at < PUBLISH_S:
            return
        self._published_at = now
        with contextlib.suppress(KafkaException):
            self._brokers.publish(flat(self._read_of(position)))

    def close(self) -> None:
        self._brokers.close()

    # -- reading ----------------------------------------------------------------------------------

    def read(self, part: Range) -> Iterator[Records]:
        """Yield a range's records; those without a value only if the decoder accepts metadata."""
        topic, number, start, *known = part.start
        partition = self._partition(topic, number, *known)
        take: Callable[[list[Any]], list[Any]] = self._take()
        try:
            for messages in READERS.of(partition).read(start, part.end):
                payloads = take(messages)
                if payloads:
                    newest_ns = newest_ms(messages) * 1_000_000
                    times = partial(self._times, messages)
                    origin = partial(self._origin, messages)
                    yield Records(part.partition, newest_ns, payloads, times, origin=origin)
        except BaseException:
            READERS.drop(partition)
            raise

    def prefetch(self, part: Range) -> None:
        """Let the client fetch while another range is read; failures show in `read`."""
        topic, number, start, *known = part.start
        with contextlib.suppress(KafkaException, PeerError):
            READERS.of(self._partition(topic, number, *known)).prepare(start)

    def _times(self, messages: list[Any]) -> list[int]:
        """Return the times of the records, as set by their producer or the broker."""
        if self._subscription.with_metadata:
            return times_ns(messages)
        return times_ns([message for message in messages if message.value() is not None])

    def _origin(self, messages: list[Any], number: int) -> dict[str, Any]:
        """Return the facts about a record, by its number among those that are read."""
        whole = self._subscription.with_metadata
        return origin_of([m for m in messages if whole or m.value() is not None][number])

    def _take(self) -> Callable[[list[Any]], list[Any]]:
        if self._subscription.with_metadata:
            return lambda messages: [record_of(message) for message in messages]
        return _present_values

    def _partition(self, topic: str, number: int, known_as: str = "") -> Partition:
        own = self._subscription
        return Partition(
            own.brokers, topic, number, own.isolation, self._skips, own.options, known_as
        )

    # -- asking the brokers -----------------------------------------------------------------------

    def _look(self) -> Head:
        asked_ns = time.time_ns()
        topics = self._brokers.topics()
        self._topics = topics
        position = position_of(topics.ends, topics.ids)
        if self._subscription.is_bounded:
            self._bound = self._bound or position
            return Head(self._bound, is_ended=True)
        return Head(position, as_of_ns=asked_ns)

    def _await_brokers(self, patience_s: float) -> None:
        """Return when a broker accepts connections; report at once that none does.

        The client does not report it before a request has timed out.  Raises PeerError after
        ``patience_s``.
        """
        self._brokers.open()
        where = f"source '{self._subscription.source}': Kafka at {self._subscription.brokers}"
        deadline = time.monotonic() + patience_s
        is_reported = False
        while causes := self._why_unreachable():
            what = f"{where} is unavailable ({causes})"
            if time.monotonic() >= deadline:
                raise PeerError(f"{what}, for {patience_s:.0f} s now. {WAY_OUT}")
            if not is_reported:
                _log.warning("%s. Is it running? The run waits for %.0f s.", what, patience_s)
                is_reported = True
            time.sleep(0.1)

    def _why_unreachable(self) -> str:
        brokers = self._subscription.brokers.split(",")
        addresses = [broker.rpartition("://")[2] for broker in brokers]
        return why_unreachable(addresses, CONNECT_S)

    def _with_retries(self, ask: Callable[[], Answer]) -> Answer:
        """Retry until there is an answer, a permanent error, or the time is over.

        Report early that there is no answer.
        """
        report = threading.Timer(self._subscription.silent_s, self._report_silence)
        report.daemon = True
        report.start()
        try:
            return self._retried(ask)
        finally:
            report.cancel()

    def _report_silence(self) -> None:
        own = self._subscription
        if not self._why_unreachable():
            where = f"source '{own.source}': Kafka at {own.brokers}"
            _log.warning("%s has not answered for %g s. %s.", where, own.silent_s, LISTENER)

    def _retried(self, ask: Callable[[], Answer]) -> Answer:
        patience_s = self._subscription.patience_s
        deadline = time.monotonic() + patience_s
        while True:
            try:
                return ask()
            except PeerError as error:
                is_final = not isinstance(error.__cause__, KafkaException) or not is_transient(
                    error_of(error.__cause__)
                )
                if is_final:
                    raise
                if time.monotonic() > deadline:
                    way_out = WAY_OUT if self._why_unreachable() else WAY_IN
                    raise PeerError(f"{error}, for {patience_s:.0f} s now. {way_out}") from error
                time.sleep(0.1)


def _present_values(messages: list[Any]) -> list[Any]:
    found = values(messages)
    return [value for value in found if value is not None] if None in found else found


def _by_topic(offsets: Flat) -> str:
    """Return offsets as `start=` takes them: by topic if there are several.

    >>> _by_topic({("b", 0): 9, ("a", 1): 5, ("a", 0): 7}), _by_topic({("a", 0): 7})
    ("{'a': {0: 7, 1: 5}, 'b': {0: 9}}", '{0: 7}')
    """
    topics: dict[str, dict[int, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[number] = offset
    return str(topics if len(topics) > 1 else next(iter(topics.values()), {}))


def open_log(config: KafkaSourceConfig[Any], context: LogContext) -> KafkaLog:
    start = config.start
    return KafkaLog(
        TopicsQuery(
            source=config.name,
            brokers=brokers_text(config.brokers),
            topics=tuple(config.topic),
            start=int(start.timestamp() * 1000) if isinstance(start, datetime) else start,
            group=config.published_group,
            isolation=config.isolation,
            on_data_loss=config.on_data_loss,
            is_bounded=config.until_now or context.until_now,
            with_metadata=config.with_metadata,
            publishes=config.publishes,
            options=tuple(sorted(config.options.items())),
        )
    )
