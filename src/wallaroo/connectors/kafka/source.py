"""KafkaSourceConfig: the records of Kafka topics as events.

Where it runs: the configuration is pickled; the driver queries the brokers for offsets, workers
read the records.  Neither the driver's disk nor its network carries them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, Self

from wallaroo.connectors.kafka.broker_names import (
    LOG_LEVELS,
    brokers_text,
    check_options,
    is_topic_or_pattern,
)
from wallaroo.sources.interface import Event, FedBy, SourceConfig
from wallaroo.steps.kinds import Decoder
from wallaroo.steps.option_values import check_choice

STARTS = ("earliest", "latest", "stored")
ON_DATA_LOSS = ("stop", "skip")
ISOLATIONS = ("read_committed", "read_uncommitted")


@dataclass(frozen=True, slots=True)
class KafkaSourceConfig(SourceConfig[Event]):
    """A source that reads Kafka topics, exactly once.

    ``topic`` is one, several, or ``^pattern``: all whose names match.

    ``brokers`` is ``"host:9092,..."`` or a sequence of such texts or ``(host, port)`` pairs.  The
    decoder is called with a record's value (records without one are skipped), or with a
    `wallaroo.sources.KafkaRecord` if ``with_metadata`` is true.

    ``start`` is for an application without a commit: ``"earliest"``, ``"latest"``, a time (an aware
    datetime), offsets (``{partition: offset}``, or ``{topic: {partition: offset}}``), or
    ``"stored"``: the offsets of the consumer group ``group``.  From then on offsets live in the
    application's commits; they are published to ``group`` (``wallaroo-<name>`` by default, ``""``:
    not at all) for monitoring.  ``on_data_loss`` applies if unprocessed records were removed, or a
    topic was created again: ``"stop"``, or ``"skip"``, which reports how many are skipped.  With
    ``until_now`` the source ends at the ends of the topics when the run begins.  ``options`` are
    librdkafka's, for TLS, SASL and tuning.  Needs confluent-kafka.

    In the API of 2017, ``KafkaSourceConfig(topic, brokers, log_level, decoder)``, it gets its
    pipeline's name; the log level is not used.
    """

    kind: ClassVar[str] = "kafka"
    opener: ClassVar[str] = "wallaroo.connectors.kafka.log:open_log"
    library: ClassVar[tuple[str, ...]] = ("confluent-kafka", "wherever the driver and workers run")
    fed_by: ClassVar[FedBy] = FedBy.ITSELF
    has_one_order: ClassVar[bool] = False
    carries_times: ClassVar[bool] = True

    name: str
    topic: str | Sequence[str]
    brokers: str | Sequence[Any]
    decoder: Decoder[Event]
    start: str | datetime | Mapping[Any, Any] = "earliest"
    group: str | None = None
    until_now: bool = False
    on_data_loss: str = "stop"
    isolation: str = "read_committed"
    with_metadata: bool = False
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    publishes: bool = field(default=True, init=False, repr=False)  # offsets, to the group

    def __post_init__(self) -> None:
        if self.brokers in LOG_LEVELS:  # the form of 2017
            object.__setattr__(self, "brokers", self.topic)
            object.__setattr__(self, "topic", self.name)
            object.__setattr__(self, "name", "")
        topics = tuple(self.topic) if isinstance(self.topic, Sequence) else ()
        topics = (self.topic,) if isinstance(self.topic, str) else topics
        if not topics or not all(map(is_topic_or_pattern, topics)):
            fix = "Give a topic's name, several, or '^' and a pattern; brokers= comes after it."
            raise self._wrong(f"topic={self.topic!r} is not a name.", fix)
        object.__setattr__(self, "topic", topics)
        try:
            object.__setattr__(self, "brokers", brokers_text(self.brokers))
        except (TypeError, ValueError):
            fix = "Give 'host:port,host:port', or a list of (host, port)."
            raise self._wrong(f"brokers={self.brokers!r} cannot be read.", fix) from None
        if isinstance(self.start, Mapping):
            object.__setattr__(self, "start", self._offsets(self.start, topics))
        elif isinstance(self.start, datetime):
            if self.start.tzinfo is None:
                fix = "Give it a time zone: datetime(..., tzinfo=UTC)."
                raise self._wrong(f"start={self.start} has no time zone.", fix)
        elif self.start not in STARTS:
            choices = ", ".join(map(repr, STARTS))
            raise self._wrong(
                f"start={self.start!r} is unknown.", f"Write {choices}, a datetime or offsets."
            )
        if self.start == "stored" and self.group == "":
            raise self._wrong(
                "start='stored' needs a group.", "Name the consumer group: group='...'."
            )
        check_choice(self, "on_data_loss", ON_DATA_LOSS)
        check_choice(self, "isolation", ISOLATIONS)
        check_options(self)

    def _offsets(
        self, start: Mapping[Any, Any], topics: tuple[str, ...]
    ) -> dict[str, dict[int, int]]:
        """Return the offsets to start from, by topic and partition."""
        is_flat = not any(isinstance(each, Mapping) for each in start.values())
        nested = {topics[0]: start} if is_flat and len(topics) == 1 else start
        try:
            offsets = {topic: dict(each) for topic, each in nested.items()}
            numbers = [n for each in offsets.values() for pair in each.items() for n in pair]
        except (TypeError, ValueError, AttributeError):
            numbers = [-1]
        if not numbers or any(type(number) is not int or number < 0 for number in numbers):
            fix = "Write {partition: offset}, or {topic: {partition: offset}} for several topics."
            raise self._wrong(f"start={start!r} are not offsets.", fix)
        return offsets

    def for_trial(self) -> Self:
        copy = replace(self)
        object.__setattr__(copy, "publishes", False)
        return copy

    @property
    def published_group(self) -> str:
        """Return the consumer group to which offsets are published; empty: none."""
        return f"wallaroo-{self.name}" if self.group is None else self.group

    def for_fork(self, name: str) -> Self:
        group = self.published_group
        return replace(self, group=f"{group}-{name}" if group else "")

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(
            f"topics like '{name}'" if name.startswith("^") else f"topic '{name}'"
            for name in self.topic
        )

    @property
    def label(self) -> str:
        return f"kafka {','.join(self.topic)}"

    @property
    def has_plain_payloads(self) -> bool:
        return not self.with_metadata
