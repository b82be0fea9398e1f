"""RabbitMQ as the system of a queued committer.

Where it runs: driver.  It imports pika, which is optional.

The invariants are those of ``sinks/slices.py``: a slice is done when the server has confirmed all
of its messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from wallaroo.clients.rabbitmq import ERRORS, is_transient, parameters_of, place_of, sentence
from wallaroo.errors import PeerError
from wallaroo.faults import fault_point
from wallaroo.sinks.addressed import unpack
from wallaroo.sinks.queued_committer import QueuedCommitter
from wallaroo.sinks.rabbitmq.publisher import Message, Publisher
from wallaroo.sinks.slices import ConfirmingSystem, Progress, Slice, SlicedSession
from wallaroo.sinks.system import DeliveryError, Session

SLICE = 1000  # unconfirmed messages, at most


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of outputs."""

    sink: str
    url: str = field(repr=False)
    name: str
    exchange: str
    routing_key: str
    is_mandatory: bool

    @property
    def place(self) -> str:
        """Return the server's name in errors."""
        return f"RabbitMQ at {place_of(self.url)}"


class RabbitMQSession(SlicedSession):
    """One connection."""

    def __init__(self, target: Target, progress: Progress, checkpoint: str):
        super().__init__(checkpoint, progress, SLICE)
        self._target = target
        parameters = parameters_of(target.url, has_heartbeats=False)
        self._publisher = Publisher(parameters, is_mandatory=target.is_mandatory)

    def deliver(self, part: Slice) -> None:
        """Publish a slice; return when it is confirmed."""
        fault_point("rabbitmq.publish")
        self._publisher.publish(self._messages(part))
        fault_point("rabbitmq.confirmed")

    def _messages(self, part: Slice) -> Iterator[Message]:
        target = self._target
        for place, output in enumerate(part.outputs):
            routing_key, body = unpack(output)
            key = routing_key or target.routing_key
            yield Message(target.exchange, key, body, part.key_of(place))

    def cancel(self) -> None:
        """Stop waiting for confirmations."""
        self._publisher.cancel()

    def close(self) -> None:
        """Close the connection."""
        self._publisher.close()


class RabbitMQSystem(ConfirmingSystem):
    """One exchange or queue."""

    errors: ClassVar[tuple[type[Exception], ...]] = (*ERRORS, DeliveryError)
    refusal = "refuses {output} for {target}"
    ways_to_correct = (
        "Declare or bind what is missing, or correct the name, the rights or the password"
    )

    def __init__(self, target: Target):
        super().__init__(target.sink, target.place, target.name)
        self._target = target

    def connect(self, checkpoint: str) -> Session:
        return RabbitMQSession(self._target, self._progress, checkpoint)

    def is_transient(self, error: Exception) -> bool:
        return is_transient(error)

    def sentence(self, error: Exception) -> str:
        return sentence(error)


def open_committer(target: Target, staging: Path, is_durable: bool) -> QueuedCommitter:
    """Open the committer of a RabbitMQ sink; raise PeerError for an unreadable address."""
    try:
        parameters_of(target.url, has_heartbeats=False)
    except ValueError as error:
        raise PeerError(f"Sink '{target.sink}': the address cannot be read: {error}.") from None
    system = RabbitMQSystem(target)
    return QueuedCommitter(target.sink, system, staging, is_durable=is_durable, points="rabbitmq")
