"""Delivery of committed batches to RabbitMQ.

The invariants are those of ``sinks/queued/at_least_once.py``: a slice is done when the server has
confirmed all of its messages.  Messages after one that it has not accepted are published one by
one, so that none overtakes it again.
"""

from __future__ import annotations

from collections.abc import Iterator

from wallaroo.connectors.rabbitmq.client import ERRORS, parameters_of
from wallaroo.connectors.rabbitmq.publisher import ChannelPublisher, Message, NotAcceptedError
from wallaroo.connectors.rabbitmq.sink import RabbitMQSinkConfig
from wallaroo.instrumentation.faults import fault_point
from wallaroo.network.client_errors import readable_address
from wallaroo.network.urls import place_of
from wallaroo.sinks.queued.at_least_once import AckingSystem, Progress, Slice, SlicedSession
from wallaroo.sinks.queued.system import CommitContext
from wallaroo.sinks.wrapped_encoder import unpack

SLICE = 1000  # unconfirmed messages, at most


class RabbitMQSession(SlicedSession):
    def __init__(self, config: RabbitMQSinkConfig, progress: Progress, checkpoint: str):
        super().__init__(checkpoint, progress, SLICE)
        self._config = config
        parameters = parameters_of(config.url, has_heartbeats=False)
        self._publisher = ChannelPublisher(
            parameters, is_mandatory=config.mandatory, exchange=config.exchange
        )

    def deliver(self, part: Slice) -> None:
        fault_point("rabbitmq.publish")
        try:
            self._publisher.publish(self._messages(part))
        except NotAcceptedError:
            self._progress.apart = part.first + SLICE
            raise
        finally:
            self.accepted = self._publisher.confirmed
        fault_point("rabbitmq.confirmed")

    def _messages(self, part: Slice) -> Iterator[Message]:
        config = self._config
        for place, output in enumerate(part.outputs):
            routing_key, body = unpack(output)
            key = routing_key or config.routing_key
            yield Message(config.exchange, key, body, part.key_of(place))

    def cancel(self) -> None:
        self._publisher.cancel()

    def close(self) -> None:
        self._publisher.close()


class RabbitMQSystem(AckingSystem[RabbitMQSinkConfig]):
    """One exchange or queue."""

    session = RabbitMQSession
    client = ERRORS
    refusal = "refuses {output} for {target}"
    ways_to_correct = (
        "Declare or bind what is missing, or correct the name, the rights or the password"
    )

    def __init__(self, config: RabbitMQSinkConfig, context: CommitContext):
        """Raise PeerError for an address that cannot be read."""
        super().__init__(config, context)
        with readable_address(f"Sink '{context.sink}'"):
            parameters_of(config.url, has_heartbeats=False)

    @property
    def place(self) -> str:
        return f"RabbitMQ at {place_of(self._config.url)}"
