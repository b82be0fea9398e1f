"""KafkaSinkConfig: outputs as records of a Kafka topic.

Where it runs: the configuration travels; its writer runs in workers, its committer in the driver.
Only the driver connects to the brokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.clients.kafka_names import LOG_LEVELS, brokers_text
from wallaroo.errors import Problem, WallarooParameterError, optional_library
from wallaroo.sinks.interface import SinkCommitter, SinkConfig, SinkWriter, WriteContext
from wallaroo.sinks.kafka.records import AS_IT_IS, RecordEncoder
from wallaroo.sinks.staging import StagedWriter
from wallaroo.steps import Encoder

DELIVERIES = ("exactly-once", "at-least-once")


@dataclass(frozen=True, slots=True)
class KafkaSinkConfig(SinkConfig):
    """A sink that sends outputs to a Kafka topic, in order.

    ``brokers`` is ``"host:9092,..."`` or a sequence of such texts or ``(host, port)`` pairs.  The
    encoder returns the record's value (bytes or str), ``(value, key)``, ``(value, key, partition)``
    or a `wallaroo.sinks.KafkaOutput` with headers; ``None`` writes nothing.  A record goes to the
    partition it names, else to its key's (chosen as Java clients do), else to any.

    ``delivery="exactly-once"``: each commit of the application is one transaction; consumers with
    ``isolation.level=read_committed`` see every output once.  ``"at-least-once"``: no transactions,
    less latency; output in flight at a crash is sent again.  ``options`` are librdkafka's, for
    TLS, SASL and tuning.  While the brokers are unavailable, output waits in the outbox.  Needs
    confluent-kafka: ``pip install 'wallaroo-spark[kafka]'``.

    In the API of 2017 it is ``KafkaSinkConfig(topic, brokers, log_level, max_produce_buffer_ms,
    max_message_size, encoder)``; the three in the middle are not used.
    """

    kind: ClassVar[str] = "kafka"
    topic: str
    brokers: str | Sequence[Any]
    encoder: Encoder[Any] | None = None
    delivery: str = "exactly-once"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = field(default="", kw_only=True)
    encoder_of_2017: InitVar[Any] = None

    def __post_init__(self, encoder_of_2017: Any) -> None:
        third: Any = self.encoder
        if third in LOG_LEVELS:
            object.__setattr__(self, "encoder", encoder_of_2017)
            object.__setattr__(self, "delivery", DELIVERIES[0])
            object.__setattr__(self, "options", {})
        if not isinstance(self.topic, str) or not self.topic:
            raise self._wrong(f"topic={self.topic!r} is no name.", "Give the topic's name.")
        if self.delivery not in DELIVERIES:
            choices = " or ".join(map(repr, DELIVERIES))
            raise self._wrong(f"delivery={self.delivery!r} is unknown.", f"Write {choices}.")
        try:
            object.__setattr__(self, "brokers", brokers_text(self.brokers))
        except (TypeError, ValueError):
            fix = "Give 'host:port,host:port', or a list of (host, port)."
            raise self._wrong(f"brokers={self.brokers!r} cannot be read.", fix) from None
        object.__setattr__(self, "options", dict(self.options))
        inner = self.encoder or AS_IT_IS
        if isinstance(inner, RecordEncoder):
            inner = inner.inner
        if isinstance(inner, Encoder):  # the build reports anything else
            object.__setattr__(self, "encoder", RecordEncoder(inner))

    def _wrong(self, what: str, fix: str) -> WallarooParameterError:
        return WallarooParameterError(
            Problem(f"KafkaSinkConfig(topic={self.topic!r})", "", what, fix)
        )

    @property
    def label(self) -> str:
        """Return the sink's name in errors and tables."""
        return f"kafka {self.topic}"

    @property
    def target(self) -> str:
        """Return the topic that this sink continues."""
        return self.topic

    @property
    def address(self) -> str:
        """Return the brokers of the topic."""
        return brokers_text(self.brokers)

    def writer(self, context: WriteContext) -> SinkWriter:
        """Stage one task's records of one batch in the outbox."""
        return StagedWriter(context)

    def committer(self, sink: str, staging: Path, is_durable: bool) -> SinkCommitter:
        """Send from the driver; raise PeerError if confluent-kafka is missing."""
        user = f"Sink '{sink}' ({self.label})"
        with optional_library(user, "confluent-kafka", "kafka"):
            from wallaroo.sinks.kafka.committer import Target, open_committer
        brokers = brokers_text(self.brokers)
        target = Target(sink, brokers, self.topic, self.delivery, self.options)
        return open_committer(target, staging, is_durable)
