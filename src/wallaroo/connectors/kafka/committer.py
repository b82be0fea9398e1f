"""Delivery of committed batches to Kafka.

Where it runs: driver, in the committer's thread.

The invariants, for ``delivery="exactly-once"``:

* A batch is one transaction; batches that wait, for example after an outage, share one.  The same
  transaction commits the offset of a consumer group that belongs to this checkpoint and sink: the
  last batch's number plus one, with the commit's id as metadata.  Recovery reads it back; so it
  knows whether each transaction was committed, even if its confirmation never arrived.
* The transactional id belongs to the checkpoint and the sink.  A newer session fences older ones
  before its first transaction: the broker refuses the records of a forgotten process.  A session
  that finds a commit in the ledger postpones fencing until it has output: its committer refuses an
  older copy of the checkpoint first, which must not end the run of the original.  A late request of
  a session that this run abandoned may fence its successor (``connectors/kafka/fencing.py``).
* librdkafka's `send_offsets_to_transaction` ignores its timeout: it may never return if the group's
  coordinator was lost in the transaction (its issue 5456).  A session cannot end that, so the
  committer abandons the session and opens another one, which fences it.
* Brokers forget the offsets of a group without members after ``offsets.retention.minutes`` (seven
  days unless configured otherwise).  The outbox's own record of deliveries covers that, except for
  a batch that was in flight at a crash after which nothing ran for so long: it is sent again.

With ``delivery="at-least-once"`` a batch is sent by an idempotent producer and confirmed by all
in-sync replicas; one that was in flight at a crash is sent again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from wallaroo.connectors.kafka import client
from wallaroo.connectors.kafka.fencing import OwnSessions
from wallaroo.connectors.kafka.output import unpack
from wallaroo.connectors.kafka.sink import DELIVERIES, KafkaSinkConfig
from wallaroo.connectors.kafka.topic_ids import READ, WRITE
from wallaroo.durable.commit_id import CommitId
from wallaroo.errors import CheckpointError, PeerError, WallarooError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import CommitContext, ExternalSystem, Session
from wallaroo.sinks.staging import Staged

EXACTLY_ONCE = DELIVERIES[0]
TOGETHER = 100  # batches in a transaction, at most
# The minimum between the beginnings of two transactions: each costs brokers a dozen requests and
# writes, however small it is.
SPACING_S = 0.02
# Defaults of the client, which the sink's options override.  A coordinator that has not finished
# one transaction refuses the next one for some milliseconds; the client would wait 100.  How large
# a record may be is the topic's to decide: the client's limit is the largest that it accepts.
TUNING = {"linger.ms": 5, "retry.backoff.ms": 5, "message.max.bytes": 1_000_000_000}
TOPIC_S_MAX = 3.0  # a new topic is not known to all brokers immediately
# Once fenced, a client answers every call with "fatal"; no other cause makes ours fatal.
FENCED = (KafkaError._FENCED, KafkaError._FATAL, KafkaError.INVALID_PRODUCER_EPOCH)
# The client has failed a transaction, and with it records that it had not sent.
FAILED = (KafkaError._STATE, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
TRANSACTION_MS = "transaction.timeout.ms"
LEDGER_PARTITION = 0  # the topic's partition under which the group's offset is kept
# for refusals that have one cause
WAYS_OUT = {
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        f"Set {TRANSACTION_MS} in the sink's options to at most transaction.max.timeout.ms of the "
        f"brokers"
    ),
    KafkaError.MSG_SIZE_TOO_LARGE: "Raise max.message.bytes of the topic",
}
WAYS_ON = (
    "Continue with the checkpoint that wrote the topic; or begin with another --checkpoint folder "
    "and another topic."
)


@dataclass(frozen=True, slots=True)
class KafkaTimeouts:
    """Bounds on the duration of calls, seconds."""

    answer_s: float = 10.0  # an answer; after that the session is reopened
    # the time without a confirmed record; until then a commit is retried
    stalled_s: float = 30.0
    # after this time the broker aborts an unfinished transaction; the sink's options override it
    transaction_ms: int = 300_000


class KafkaSystem(ExternalSystem[KafkaSinkConfig]):
    errors: ClassVar[tuple[type[Exception], ...]] = (KafkaException,)
    ways_on: ClassVar[str] = WAYS_ON
    timeouts: ClassVar[KafkaTimeouts] = KafkaTimeouts()

    def __init__(self, config: KafkaSinkConfig, context: CommitContext):
        super().__init__(config, context)
        self.sink = context.sink
        self.stalled_s = self.timeouts.stalled_s
        self.is_fencing = config.delivery == EXACTLY_ONCE
        self.own = OwnSessions()

    @property
    def brokers(self) -> str:
        return self._config.address

    @property
    def options(self) -> Mapping[str, str]:
        """Return librdkafka's options, which may hold a password."""
        return self._config.options

    @property
    def consumer_options(self) -> Mapping[str, Any]:
        """Return the options for the sink's consumers."""
        return {**self.options, "logger": client.SINK_LOGGER}

    def group(self, checkpoint: str) -> str:
        """Return the consumer group, and transactional id, of a checkpoint's output here."""
        return f"wallaroo-sink-{checkpoint}-{self.sink}"

    def connect(self, checkpoint: str) -> Session:
        self._require_topic()
        if self.is_fencing:
            self.own.begin()
            return TransactionalSession(self, checkpoint)
        return IdempotentSession(self, checkpoint)

    def _require_topic(self) -> None:
        """Raise PeerError for missing rights, or a topic that does not appear in time."""
        deadline = time.monotonic() + TOPIC_S_MAX
        with closing(client.Inquiry(self.brokers, self.consumer_options)) as inquiry:
            while self.target not in (topics := inquiry.topics()):
                if time.monotonic() > deadline:
                    raise PeerError(
                        f"Sink '{self.sink}': Kafka at {self.brokers} has no topic "
                        f"'{self.target}'. {client.hint_at(self.target, topics)} Then run again; "
                        f"committed output waits."
                    )
                time.sleep(0.2)
            rights = inquiry.rights(self.target)
        needed = {"Write": WRITE} | ({"Read": READ} if self.is_fencing else {})
        missing = [right for right, number in needed.items() if rights and number not in rights]
        if missing:
            raise self._unauthorized(f"{' and '.join(missing)} on topic '{self.target}'")

    def _unauthorized(self, rights: str) -> PeerError:
        return PeerError(
            f"Sink '{self.sink}': the user of Kafka at {self.brokers} has no right {rights}. "
            f"Nothing is lost: committed output waits in {self._context.staging}. Give the user "
            f"the rights that docs/kafka-production.md lists, then run again."
        )

    def waiting_for(self, error: Exception) -> str:
        assert isinstance(error, KafkaException)
        inner = client.error_of(error)
        if inner.code() in FENCED and self.own.explain():
            return f"Kafka at {self.brokers} (a late request of a session that was given up)"
        if inner.code() in client.UNAUTHORIZED:
            return ""
        if inner.code() == KafkaError._UNKNOWN_PARTITION:
            what = f"topic '{self.target}' has no partition that an output names, as far as known"
            return f"Kafka at {self.brokers} ({what})"
        is_temporary = client.is_transient(inner) or inner.txn_requires_abort()
        return f"Kafka at {self.brokers} ({client.sentence(inner)})" if is_temporary else ""

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        assert isinstance(error, KafkaException)
        inner = client.error_of(error)
        if inner.code() in FENCED:
            return PeerError(
                f"Sink '{self.sink}': another process has taken over the output to Kafka "
                f"topic '{self.target}': a copy of this checkpoint is in use. Nothing was "
                f"written twice. End one of the two."
            )
        if inner.code() in client.UNAUTHORIZED:
            return self._unauthorized(self._refused_right(inner))
        what = f"batch {batch.batch} for" if batch else "output for"
        way_out = WAYS_OUT.get(inner.code(), "Correct the topic or the sink's options")
        return PeerError(
            f"Kafka refuses {what} topic '{self.target}': {client.sentence(inner)}. Nothing is "
            f"lost: committed output waits in {self._context.staging}. {way_out}, then run again."
        )

    def _refused_right(self, error: KafkaError) -> str:
        """Return the right that a refused request needs, and the resource."""
        resource = client.UNAUTHORIZED[error.code()]
        named = {
            "topic": f"Write on topic '{self.target}'",
            "group": "Read on groups with the prefix 'wallaroo-sink-'",
            "transactional id": "Write on transactional ids with the prefix 'wallaroo-sink-'",
        }
        return named.get(resource, f"on the {resource} ({client.sentence(error)})")


class KafkaSession(Session):
    """A session with a producer, and the first error of a record."""

    def __init__(self, system: KafkaSystem, checkpoint: str, own: Mapping[str, Any]):
        self._checkpoint = checkpoint
        self._topic = system.target
        self._answer_s = system.timeouts.answer_s
        self._producer = Producer(
            {
                **TUNING,
                **client.settings(system.brokers, system.options),
                "enable.idempotence": True,
                "partitioner": "murmur2_random",  # as Java clients choose a key's partition
                **own,
            }
        )
        self._failure: KafkaError | None = None
        self._confirmed = 0
        self._is_cancelled = False

    def _send(self, parts: Iterator[Staged]) -> None:
        """Produce all records and wait until the brokers have confirmed them.

        Raises KafkaException for the first one that they refused, or if they confirm nothing for
        `KafkaTimeouts.answer_s`.
        """
        self._failure = None
        for part in parts:
            for packed in part.outputs():
                self._produce(packed)
        fault_point("kafka.produced")
        self._wait(0)

    def cancel(self) -> None:
        self._is_cancelled = True

    def close(self) -> None:
        self._producer.purge()  # unsent records are dropped

    def mark(self) -> object:
        return self._confirmed

    def _wait(self, waiting_max: int) -> None:
        """Wait until at most ``waiting_max`` records are unconfirmed."""
        waiting = len(self._producer)
        moved_at = time.monotonic()
        # a flush does not wait for more records (``linger.ms``)
        serve = self._producer.poll if waiting_max else self._producer.flush
        while waiting > waiting_max:
            serve(0.1)
            if self._failure is not None:
                raise KafkaException(self._failure)
            if len(self._producer) < waiting:
                waiting = len(self._producer)
                moved_at = time.monotonic()
            if self._is_cancelled or time.monotonic() - moved_at > self._answer_s:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no confirmation"))

    def _produce(self, packed: memoryview) -> None:
        value, key, partition, headers = unpack(packed)
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key,
                    partition,
                    on_delivery=self._delivered,
                    headers=list(headers),
                )
                return
            except BufferError:  # the client's queue is full
                self._wait(len(self._producer) // 2)

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        self._confirmed += error is None
        if error is not None and self._failure is None:
            self._failure = error


class TransactionalSession(KafkaSession):
    """A session that writes batches in transactions; see the module's head."""

    batches_max: ClassVar[int] = TOGETHER

    def __init__(self, system: KafkaSystem, checkpoint: str):
        self._system = system
        self._group = system.group(checkpoint)
        self._ledger = TopicPartition(system.target, LEDGER_PARTITION)
        timeouts = self._timeouts = system.timeouts
        timeout_ms = system.options.get(TRANSACTION_MS, timeouts.transaction_ms)
        own = {"transactional.id": self._group, TRANSACTION_MS: timeout_ms}
        super().__init__(system, checkpoint, own)
        self._transaction_s = int(timeout_ms) / 1000
        self._is_settled = True  # no request is in flight
        self._member = Consumer(
            {**client.settings(system.brokers, system.consumer_options), "group.id": self._group}
        )
        self._last = self._read_last("read_uncommitted")
        self._is_fencing = False
        if not self._last.exists:
            self._fence()
        self._begun_at = float("-inf")  # the newest transaction (monotonic)
        self._begun_time = 0.0  # the same (unix): a clock that passes while a machine sleeps

    def _fence(self) -> None:
        """Fence earlier sessions; find their newest commit."""
        self._is_settled = False
        self._producer.init_transactions(self._timeouts.answer_s)
        self._is_settled = True
        self._system.own.opened()
        last = self._read_last("read_committed")
        if self._last.exists and last != self._last:
            words = "an earlier session has written"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, words))
        self._last = last
        self._is_fencing = True

    def last(self) -> CommitId:
        return self._last

    def write(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        return self.write_several([(batch, parts)])[0]

    def write_several(self, batches: Sequence[tuple[PendingBatch, Iterator[Staged]]]) -> list[bool]:
        new = [each for each in batches if self._is_new(each[0])]
        if new:
            self._transact(new)
        return [False] * (len(batches) - len(new)) + [True] * len(new)

    def pause_s(self) -> float:
        return max(0.0, self._begun_at + SPACING_S - time.monotonic())

    def _is_new(self, batch: PendingBatch) -> bool:
        if batch.batch > self._last.batch:
            return True
        if batch.batch == self._last.batch and batch.commit != self._last:
            raise CheckpointError(
                f"Kafka topic '{self._system.target}' holds output of another commit "
                f"{batch.batch} of sink '{self._system.sink}': a copy of this checkpoint was run, "
                f"or it was rolled back. {WAYS_ON}"
            )
        return False

    def _transact(self, batches: Sequence[tuple[PendingBatch, Iterator[Staged]]]) -> None:
        """Send batches in one transaction."""
        if not self._is_fencing:
            self._fence()
        last = batches[-1][0].commit
        answer_s = self._timeouts.answer_s
        producer = self._producer
        self._begun_at = time.monotonic()
        self._begun_time = time.time()
        self._is_settled = False
        producer.begin_transaction()
        fault_point("kafka.begin")
        try:
            self._send(chain.from_iterable(parts for _, parts in batches))
            producer.send_offsets_to_transaction(
                [self._entry(last)], self._member.consumer_group_metadata(), answer_s
            )
            fault_point("kafka.ledger")
            self._commit()
        except KafkaException as raised:
            error = self._cause(client.error_of(raised))
            self._abort(error)
            self._check_fenced(error)
            raise KafkaException(error) from raised
        fault_point("kafka.committed")
        self._last = last
        self._is_settled = True
        self._system.own.succeed()

    def _cause(self, error: KafkaError) -> KafkaError:
        """Return why the client has failed the transaction, if an error only states that it has.

        A transaction that has failed, or records of which have, cannot be committed: the client
        answers with the first error.
        """
        if error.code() in FAILED:
            try:
                self._producer.commit_transaction(self._timeouts.answer_s)
            except KafkaException as raised:
                cause = client.error_of(raised)
                return KafkaError(cause.code(), cause.str())  # whose retry depends on its code
        return error

    def _abort(self, error: KafkaError) -> None:
        """Abort a transaction that the brokers refuse, unless the next session ends it.

        After a permanent error there is none, and readers of committed records would wait behind an
        open transaction until the brokers end it.
        """
        is_permanent = not client.is_transient(error) and error.code() not in FENCED
        if error.txn_requires_abort() or is_permanent:
            with suppress(KafkaException):
                self._producer.abort_transaction(self._timeouts.answer_s)
                self._is_settled = True

    def _check_fenced(self, error: KafkaError) -> None:
        """Raise a transient error for a timed-out transaction, which looks like a fenced one.

        Brokers refuse a producer whose transaction they have ended, and one that another process
        has fenced, in the same words.
        """
        took_s = time.time() - self._begun_time
        if error.code() in FENCED and took_s >= self._transaction_s:
            words = f"a transaction was ended by the brokers after {took_s:.0f} s"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, words))

    def _commit(self) -> None:
        """Commit; retry without an answer: the client knows that it is the same transaction."""
        while True:
            try:
                self._producer.commit_transaction(self._timeouts.answer_s)
                return
            except KafkaException as error:
                if self._is_cancelled or not client.error_of(error).retriable():
                    raise

    def _entry(self, commit: CommitId) -> TopicPartition:
        ledger = self._ledger
        return TopicPartition(ledger.topic, ledger.partition, commit.batch + 1, commit.id)

    def _read_last(self, isolation: str) -> CommitId:
        """Read the ledger; ``read_committed`` waits for an open transaction to end."""
        system = self._system
        options = system.consumer_options
        with closing(
            client.Inquiry(system.brokers, options, group=self._group, isolation=isolation)
        ) as inquiry:
            found = inquiry.committed([(self._ledger.topic, self._ledger.partition)])
        if not found:
            return CommitId(self._checkpoint)
        return CommitId(self._checkpoint, found[0].offset - 1, found[0].metadata or "")

    def close(self) -> None:
        super().close()
        self._member.close()
        if self._is_settled:
            self._system.own.end()


class IdempotentSession(KafkaSession):
    """A session that sends each batch and waits for its confirmation."""

    def __init__(self, system: KafkaSystem, checkpoint: str):
        super().__init__(system, checkpoint, {})

    def last(self) -> CommitId:
        return CommitId(self._checkpoint)  # the topic does not record its batches

    def write(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        self._send(parts)
        fault_point("kafka.sent")
        return True
