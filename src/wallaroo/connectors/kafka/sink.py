"""KafkaSinkConfig: outputs as records of a Kafka topic.

Where it runs: the configuration is pickled; writers run in workers, the committer in the driver.
Only the driver connects to the brokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar

from wallaroo.connectors.kafka.broker_names import LOG_LEVELS, brokers_text, check_options, is_topic
from wallaroo.connectors.kafka.output import KafkaOutput, KeyPack, decoded, pack
from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.sinks.wrapped_encoder import wrapped
from wallaroo.steps.kinds import Encoder
from wallaroo.steps.option_values import as_names, check_choice, names_twice

DELIVERIES = ("exactly-once", "at-least-once")


@dataclass(frozen=True, slots=True)
class KafkaSinkConfig(QueuedSinkConfig):
    """A sink that sends outputs to a Kafka topic, in order.

    ``brokers`` is ``"host:9092,..."`` or a sequence of such texts or ``(host, port)`` pairs.  The
    encoder returns the record's value (bytes or str), ``(value, key)``, ``(value, key, partition)``
    or a `wallaroo.sinks.KafkaOutput` with headers; ``None`` writes nothing.  A record goes to the
    partition it names, else to its key's (chosen as Java clients do), else to any.

    With ``key``, a field or several, for compacted topics: the encoder returns a row (a dict, a
    dataclass or a named tuple), written as JSON under its key, `wallaroo.sinks.Delete`, written as
    a tombstone, or a `KafkaOutput` with a key.

    ``delivery="exactly-once"``: each commit of the application is one transaction; consumers with
    ``isolation.level=read_committed`` see every output once.  ``"at-least-once"``: no transactions,
    less latency; output in flight at a crash is sent again.  ``options`` are librdkafka's, for
    TLS, SASL and tuning.  While the brokers are unavailable, output waits in the outbox.  Needs
    confluent-kafka.

    In the API of 2017 it is ``KafkaSinkConfig(topic, brokers, log_level, max_produce_buffer_ms,
    max_message_size, encoder)``; the three in the middle are not used.
    """

    kind: ClassVar[str] = "kafka"
    target_form: ClassVar[str] = "{0.topic}"
    shown_options: ClassVar[str] = "topic={0.topic!r}"
    system: ClassVar[str] = "wallaroo.connectors.kafka.committer:KafkaSystem"
    library: ClassVar[str] = "confluent-kafka"

    topic: str
    brokers: str | Sequence[Any]
    encoder: Encoder[Any] | None = None
    delivery: str = "exactly-once"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = field(default="", kw_only=True)
    key: Sequence[str] = field(default=(), kw_only=True)
    encoder_of_2017: InitVar[Any] = None

    def __post_init__(self, encoder_of_2017: Any) -> None:
        third: Any = self.encoder
        if third in LOG_LEVELS:
            object.__setattr__(self, "encoder", encoder_of_2017)
            object.__setattr__(self, "delivery", DELIVERIES[0])
            object.__setattr__(self, "options", {})
        if not is_topic(self.topic):
            fix = "Give the topic's name; brokers= comes after it."
            raise self._wrong(f"topic={self.topic!r} is not a name.", fix)
        check_choice(self, "delivery", DELIVERIES)
        try:
            object.__setattr__(self, "brokers", brokers_text(self.brokers))
        except (TypeError, ValueError):
            fix = "Give 'host:port,host:port', or a list of (host, port)."
            raise self._wrong(f"brokers={self.brokers!r} cannot be read.", fix) from None
        check_options(self)
        key = as_names(self.key)
        if not all(isinstance(name, str) for name in key) or names_twice(key):
            raise self._wrong(f"key={self.key!r} are not different names.", "Name fields of a row.")
        object.__setattr__(self, "key", key)
        packing = KeyPack(key) if key else pack
        object.__setattr__(self, "encoder", wrapped(self.encoder, packing))

    def decoded(self, output: bytes) -> KafkaOutput:
        return decoded(output)

    @property
    def address(self) -> str:
        return brokers_text(self.brokers)
