"""RabbitMQSinkConfig: outputs as messages of an exchange or a queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.network.urls import url_problem
from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.sinks.wrapped_encoder import AddressedOutput, AddressPack, decoded, wrapped
from wallaroo.steps.kinds import Encoder

NAME_BYTES_MAX = 255  # AMQP's short strings: routing keys, names of queues


def _routing_key_problem(key: str) -> str:
    if len(key.encode()) > NAME_BYTES_MAX:
        return f"a routing key has at most {NAME_BYTES_MAX} bytes"
    return ""


def _queue_problem(name: str) -> str:
    return _routing_key_problem(name) if name else "the output names no queue, nor does the sink"


@dataclass(frozen=True, slots=True)
class RabbitMQSinkConfig(QueuedSinkConfig):
    """A sink that publishes to an exchange, in order; at least once.

    The encoder returns the body, or ``(body, routing key)``; ``routing_key`` is that of outputs
    without one.  Without an ``exchange`` it is the name of a queue.  Messages are persistent, and
    an output is done when the server has confirmed it; one that was unconfirmed when a process died
    is published again.  ``message_id`` is the commit's id and the output's number in it, the same
    when it is published again.  A message that no queue accepts ends the run; with
    ``mandatory=False`` it is dropped.

    ``url`` is ``amqp://user:password@host:port/vhost``, ``amqps://`` with TLS.  Exchange and queues
    have to exist; they are not declared.  Needs pika where the driver runs.
    """

    kind: ClassVar[str] = "rabbitmq"
    system: ClassVar[str] = "wallaroo.connectors.rabbitmq.committer:RabbitMQSystem"
    library: ClassVar[str] = "pika"

    url: str = field(repr=False)  # may hold a password
    encoder: Encoder[Any] | None = None
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = True
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if wrong := url_problem(self.url, "amqp://user:password@host:5672/", "amqp", "amqps"):
            raise self._wrong(*wrong)
        if not self.exchange and not self.routing_key and self.encoder is None:
            raise self._wrong(
                "Neither an exchange nor a routing key is named.",
                "Name an exchange; or a queue as routing_key.",
            )
        if problem := _routing_key_problem(self.routing_key):
            raise self._wrong(f"routing_key= is too long: {problem}.", "Name a shorter one.")
        problem_of = _routing_key_problem if self.exchange else _queue_problem
        pack = AddressPack(problem_of, bool(self.routing_key))
        object.__setattr__(self, "encoder", wrapped(self.encoder, pack))

    def decoded(self, output: bytes) -> AddressedOutput:
        return decoded(output, self.routing_key)

    @property
    def target(self) -> str:
        if not self.exchange:
            return f"queue {self.routing_key}" if self.routing_key else "queues"
        return f"exchange {self.exchange}"
