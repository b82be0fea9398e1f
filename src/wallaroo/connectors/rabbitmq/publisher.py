"""A RabbitMQ connection whose messages the server confirms.

Where it runs: driver, in the committer's thread.  It imports pika, which is optional.

The invariant: `publish` returns when the server has confirmed every message passed to it, and
raises otherwise; `confirmed` then counts those before the first unconfirmed one.  The server
refuses at once, and confirms messages that are on disk; `publish` waits for every answer.

The connection is served in the thread only during a wait; so it has no heartbeats, and a server
that does not answer is detected by the timeout of a confirmation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import pika
from pika.adapters.select_connection import SelectConnection
from pika.adapters.utils.connection_workflow import AMQPConnectionWorkflowFailed

from wallaroo.sinks.queued.system import BROKEN_OFF, DeliveryError

CONFIRM_S_MAX = 30.0
CLOSE_S_MAX = 1.0
PERSISTENT = 2


class Message(NamedTuple):
    """A message to publish."""

    exchange: str
    routing_key: str
    body: bytes
    id: str


class NotAcceptedError(DeliveryError):
    """A message refused for now, for example because of a full queue."""

    def __init__(self) -> None:
        super().__init__("the server did not accept a message", True)


class ChannelPublisher:
    def __init__(self, parameters: Any, *, is_mandatory: bool, exchange: str = ""):
        """Connect; raise one of pika's errors, or DeliveryError if nothing answers.

        An ``exchange`` that is not there is an error.
        """
        self.confirm_s_max = CONFIRM_S_MAX
        self._is_mandatory = is_mandatory
        self._error: Exception | None = None
        self._blocked = ""
        self._published = 0  # delivery tags begin at 1
        self._before = 0  # published before the present messages
        self._unconfirmed: deque[int] = deque()  # without an answer
        self._refused: set[int] = set()
        self._channel: Any = None
        self._is_confirming = False
        self._condition: Callable[[], bool] = bool  # the condition that ends the wait
        self._connection: Any = SelectConnection(
            parameters,
            on_open_callback=partial(self._connected, exchange),
            on_open_error_callback=self._failed,
            on_close_callback=self._failed,
        )
        self._wait_for(lambda: self._is_confirming)

    def publish(self, messages: Iterable[Message]) -> None:
        """Publish, and wait for the confirmations."""
        self._before = self._published
        properties = pika.BasicProperties(delivery_mode=PERSISTENT)
        for message in messages:
            properties.message_id = message.id
            self._channel.basic_publish(
                message.exchange,
                message.routing_key,
                message.body,
                properties,
                mandatory=self._is_mandatory,
            )
            self._published += 1
            self._unconfirmed.append(self._published)
        self._wait_for(lambda: not self._unconfirmed)
        if self._refused:
            raise NotAcceptedError

    @property
    def confirmed(self) -> int:
        """Return how many of the first messages of the last call were confirmed."""
        others = self._refused.union(self._unconfirmed)
        return min(others, default=self._published + 1) - 1 - self._before

    def cancel(self) -> None:
        """End the wait.  Called from another thread."""
        error = DeliveryError(BROKEN_OFF, True)
        self._connection.ioloop.add_callback_threadsafe(lambda: self._fail(error))

    def close(self) -> None:
        """Close the connection; wait up to ``CLOSE_S_MAX`` for the server's answer."""
        connection = self._connection
        if connection.is_open:
            connection.close()
            connection.ioloop.call_later(CLOSE_S_MAX, connection.ioloop.stop)
            connection.ioloop.start()
        connection.ioloop.close()

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        """Run the connection until the condition holds; raise the first error."""
        loop = self._connection.ioloop
        timer = loop.call_later(self.confirm_s_max, self._time_out)
        self._condition = condition
        if self._error is None and not condition():
            loop.start()
        loop.remove_timeout(timer)
        if self._error is not None:
            raise self._error

    def _look(self) -> None:
        if self._condition():
            self._connection.ioloop.stop()

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._connection.ioloop.stop()

    def _time_out(self) -> None:
        why = self._blocked or f"no answer within {self.confirm_s_max:g} s"
        self._fail(DeliveryError(why, True))

    # -- callbacks of pika ------------------------------------------------------------------------

    def _connected(self, exchange: str, connection: Any) -> None:
        connection.add_on_connection_blocked_callback(self._note_blocked)
        connection.add_on_connection_unblocked_callback(self._note_unblocked)
        connection.channel(on_open_callback=partial(self._opened, exchange))

    def _failed(self, _: Any, error: Exception) -> None:
        if isinstance(error, AMQPConnectionWorkflowFailed):  # TLS's or AMQP's handshake
            last = error.exceptions[-1]
            error = getattr(last, "exception", last)
        self._fail(error)

    def _note_blocked(self, _: Any, frame: Any) -> None:
        self._blocked = f"the server accepts nothing: {frame.method.reason}"

    def _note_unblocked(self, _: Any, __: Any) -> None:
        self._blocked = ""

    def _opened(self, exchange: str, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._failed)
        channel.add_on_return_callback(self._returned)
        if exchange:
            channel.exchange_declare(exchange, passive=True, callback=self._found)
        else:
            self._found(None)

    def _found(self, _: Any) -> None:
        self._channel.confirm_delivery(self._confirmed, callback=self._confirming)

    def _confirming(self, _: Any) -> None:
        self._is_confirming = True
        self._look()

    def _returned(self, _: Any, method: Any, __: Any, ___: Any) -> None:
        where = method.exchange or "the default exchange"
        why = f"no queue takes messages of {where} with routing key '{method.routing_key}'"
        self._fail(DeliveryError(why, False))

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        if self._error is not None:
            return
        answered = []
        if method.multiple:
            while self._unconfirmed and self._unconfirmed[0] <= method.delivery_tag:
                answered.append(self._unconfirmed.popleft())
        elif method.delivery_tag in self._unconfirmed:
            self._unconfirmed.remove(method.delivery_tag)
            answered.append(method.delivery_tag)
        if method.NAME != "Basic.Ack":
            self._refused.update(answered)
        self._look()
