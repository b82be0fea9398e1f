"""MQTTSourceConfig: the messages of MQTT topics as events."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from wallaroo.network.tls import TLS
from wallaroo.network.urls import place_of
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.steps.kinds import Decoder


@dataclass(frozen=True, slots=True)
class MQTTSourceConfig(SourceConfig[Event]):
    """A subscription to a topic or topic filter; at least once.

    A filter (``sensors/+/celsius``) covers all topics that match.

    The decoder gets a message's payload.  With ``qos`` 1 a message is acknowledged when it is on
    disk, and the broker keeps the session of ``client_id`` (``wallaroo-<name>`` by default; unique
    per application): it delivers messages that were published while the application was not
    connected, and redelivers unacknowledged ones.  With ``qos`` 0 these are lost.  ``tls`` verifies
    the broker by the system's authorities (``True``), or by a `wallaroo.TLS`.  Needs paho-mqtt on
    the driver's host.
    """

    kind: ClassVar[str] = "mqtt"
    label_form: ClassVar[str] = "mqtt {0.topic}"
    opener: ClassVar[str] = "wallaroo.connectors.mqtt.subscriber:open_feed"
    library: ClassVar[tuple[str, ...]] = ("paho-mqtt",)
    has_port: ClassVar[bool] = False  # the port is the broker's

    name: str
    topic: str
    host: str
    decoder: Decoder[Event]
    port: int = 1883
    qos: int = 1
    client_id: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    tls: bool | TLS = False

    def __post_init__(self) -> None:
        if "://" in self.host:
            raise self._wrong(
                f"host={place_of(self.host)!r} is a URL.", "Give the host's name alone."
            )
        if not self.topic:
            raise self._wrong("topic='' is not a topic.", "Name a topic or a filter.")
        if self.qos not in (0, 1):
            raise self._wrong(f"qos={self.qos!r} is not supported.", "Write 1, or 0.")

    def for_trial(self) -> Self:
        return self.for_fork("trial")

    def for_fork(self, name: str) -> Self:
        return replace(self, client_id=f"{self.client_id or f'wallaroo-{self.name}'}-{name}")
