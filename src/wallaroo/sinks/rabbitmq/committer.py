"""RabbitMQ as the system that a queued committer puts batches into.

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
from wallaroo.errors import PeerError, WallarooError
from wallaroo.faults import fault_point
from wallaroo.sinks.addressed import unpack
from wallaroo.sinks.pending import PendingBatch
from wallaroo.sinks.queued_committer import QueuedCommitter
from wallaroo.sinks.rabbitmq.publisher import Message, Publisher
from wallaroo.sinks.slices import Progress, Slice, SlicedSession
from wallaroo.sinks.system import DeliveryError, Session, System

SLICE = 1000  # messages that are not confirmed, at most


@dataclass(frozen=True, slots=True)
class Target:
    """Where outputs go."""

    sink: str
    url: str = field(repr=False)
    name: str
    exchange: str
    routing_key: str
    is_mandatory: bool

    @property
    def place(self) -> str:
        """What errors call the server."""
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
        """Wait for no confirmation any more."""
        self._publisher.cancel()

    def close(self) -> None:
        """Close the connection."""
        self._publisher.close()


class RabbitMQSystem(System):
    """One exchange or queue."""

    errors: ClassVar[tuple[type[Exception], ...]] = (*ERRORS, DeliveryError)

    def __init__(self, target: Target):
        self._target = target
        self._progress = Progress()

    @property
    def target(self) -> str:
        return self._target.name

    def connect(self, checkpoint: str) -> Session:
        return RabbitMQSession(self._target, self._progress, checkpoint)

    def waiting_for(self, error: Exception) -> str:
        passes = error.is_transient if isinstance(error, DeliveryError) else is_transient(error)
        return f"{self._target.place} ({sentence(error)})" if passes else ""

    def refused(self, error: Exception, batch: PendingBatch | None, staging: Path) -> WallarooError:
        what = f"batch {batch.batch} for" if batch else "output for"
        return PeerError(
            f"{self._target.place} refuses {what} {self._target.name} of sink "
            f"'{self._target.sink}': {sentence(error)}. Nothing is lost: committed output waits in "
            f"{staging}. Declare or bind what is missing, or correct the name, the rights or the "
            f"password, then run again."
        )


def open_committer(target: Target, staging: Path, is_durable: bool) -> QueuedCommitter:
    """Open the committer of a RabbitMQ sink.  Raises PeerError for an address that cannot be
    read.
    """
    try:
        parameters_of(target.url, has_heartbeats=False)
    except ValueError as error:
        raise PeerError(f"Sink '{target.sink}': the address cannot be read: {error}.") from None
    system = RabbitMQSystem(target)
    return QueuedCommitter(target.sink, system, staging, is_durable=is_durable, points="rabbitmq")
