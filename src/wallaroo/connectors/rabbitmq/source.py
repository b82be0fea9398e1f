"""RabbitMQSourceConfig: the messages of a RabbitMQ queue as events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from wallaroo.network.urls import url_problem
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.steps.kinds import Decoder

PREFETCH = 2000
U16_MAX = 0xFFFF


@dataclass(frozen=True, slots=True)
class RabbitMQSourceConfig(SourceConfig[Event]):
    """A consumer of a queue; at least once.

    The decoder gets a message's body.  A message is acknowledged when it is on disk; the server
    sends at most ``prefetch`` messages ahead of that.  Messages that were stored but not
    acknowledged when a process died are delivered again.  ``url`` is
    ``amqp://user:password@host:port/vhost``, ``amqps://`` with TLS.  The queue must exist; it is
    not declared.  Needs pika on the driver's host.
    """

    kind: ClassVar[str] = "rabbitmq"
    label_form: ClassVar[str] = "rabbitmq queue {0.queue}"
    opener: ClassVar[str] = "wallaroo.connectors.rabbitmq.consumer:open_feed"
    library: ClassVar[tuple[str, ...]] = ("pika",)

    name: str
    queue: str
    url: str = field(repr=False)  # may hold a password
    decoder: Decoder[Event]
    prefetch: int = PREFETCH

    @property
    def exclusive(self) -> str:
        return f"queue '{self.queue}'"

    def __post_init__(self) -> None:
        if problem := url_problem(self.url, "amqp://user:password@host:5672/", "amqp", "amqps"):
            raise self._wrong(*problem)
        if not self.queue:
            raise self._wrong("queue='' is not a name.", "Name the queue.")
        if not 1 <= self.prefetch <= U16_MAX:
            raise self._wrong(
                f"prefetch={self.prefetch!r} cannot be asked for.", "Give 1 to 65535 messages."
            )
