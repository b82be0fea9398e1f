"""MQTTSinkConfig: outputs as messages of MQTT topics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.network.tls import TLS
from wallaroo.network.urls import place_of
from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.sinks.wrapped_encoder import AddressedOutput, AddressPack, decoded, wrapped
from wallaroo.steps.kinds import Encoder

TOPIC_BYTES_MAX = 65_535  # MQTT 3.1.1, 4.7.3


def _topic_problem(topic: str) -> str:
    if not topic or set(topic) & set("+#\0") or len(topic.encode()) > TOPIC_BYTES_MAX:
        return f"a topic to publish to has 1 to {TOPIC_BYTES_MAX} bytes, without +, # and NUL"
    return ""


@dataclass(frozen=True, slots=True)
class MQTTSinkConfig(QueuedSinkConfig):
    """A sink that publishes to MQTT, in order; at least once.

    Quality of service is 1.  The encoder returns the payload, or ``(payload, topic)``; ``topic`` is
    that of outputs without one.  An output is done when the broker has acknowledged it; one that
    was unacknowledged when a process died or a connection broke is published again.  ``retain``:
    brokers keep a topic's last message for new subscribers.  ``tls`` verifies the broker by the
    system's authorities (``True``), or by a `wallaroo.TLS`.  Needs paho-mqtt where the driver runs.
    """

    kind: ClassVar[str] = "mqtt"
    target_form: ClassVar[str] = "{0.topic}"
    shown_options: ClassVar[str] = "{0.topic!r}"
    system: ClassVar[str] = "wallaroo.connectors.mqtt.committer:MQTTSystem"
    library: ClassVar[str] = "paho-mqtt"

    host: str
    topic: str = ""
    encoder: Encoder[Any] | None = None
    port: int = 1883
    retain: bool = False
    client_id: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    tls: bool | TLS = False
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if "://" in self.host:
            raise self._wrong(
                f"host={place_of(self.host)!r} is a URL.", "Give the host's name alone."
            )
        if not self.topic and self.encoder is None:
            raise self._wrong("No topic is named.", "Name one, or let the encoder return it.")
        if self.topic and (problem := _topic_problem(self.topic)):
            raise self._wrong(f"topic={self.topic!r} is not a topic.", f"Name one: {problem}.")
        pack = AddressPack(_topic_problem, bool(self.topic))
        object.__setattr__(self, "encoder", wrapped(self.encoder, pack))

    def decoded(self, output: bytes) -> AddressedOutput:
        return decoded(output, self.topic)

    @property
    def label(self) -> str:
        return f"mqtt {self.topic or self.host}"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"
