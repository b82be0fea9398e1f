"""A consumer of a RabbitMQ queue that acknowledges messages on disk.

Where it runs: feeder processes.  It imports pika, which is optional.

The invariants:

* Messages go to the inbox in the order of their delivery tags, so what is stored is a run of tags
  from the first on, and one acknowledgement covers all of them.
* The thread never waits for room in the inbox: heartbeats continue.  The waiting messages are
  bounded by the prefetch count.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pika
from pika.exceptions import ConnectionWrongStateError, ConsumerCancelled

from wallaroo.connectors.rabbitmq.client import (
    ERRORS,
    is_transient,
    parameters_of,
    place_of,
    sentence,
)
from wallaroo.connectors.rabbitmq.source import RabbitMQSourceConfig
from wallaroo.errors import PeerError
from wallaroo.sources.feed import framed
from wallaroo.sources.feeds.inbox import Inbox, InboxFeed, Pushed

RETRY_S = 1.0
IDLE_S = 1.0  # without a message
FULL_S = 0.02  # between two checks whether the inbox has room
OTHERS_S = 5.0  # without a message, until other consumers count as having taken what was there


@dataclass(frozen=True, slots=True)
class QueueSubscription:
    """The queue to consume, and its server."""

    source: str
    queue: str
    url: str = field(repr=False)
    prefetch: int

    @property
    def place(self) -> str:
        """Return the server's name for errors."""
        return f"RabbitMQ at {place_of(self.url)}"


class Consumer:
    """One connection and its consumer."""

    def __init__(self, subscription: QueueSubscription, inbox: Inbox):
        self._inbox = inbox
        self._waiting: deque[Pushed] = deque()
        self._stored = _Stored()
        self._is_cancelled = False
        parameters = parameters_of(subscription.url, has_heartbeats=True)
        self._connection: Any = pika.BlockingConnection(parameters)
        try:
            self._channel = self._connection.channel()
            declared = self._channel.queue_declare(subscription.queue, passive=True)
            self._held = declared.method.message_count  # at the beginning, and not yet here
            inbox.knows_present = True
            self._channel.basic_qos(prefetch_count=subscription.prefetch)
            self._channel.add_on_cancel_callback(self._cancelled)
            self._channel.basic_consume(subscription.queue, self._take)
        except BaseException:
            self.close()
            raise

    def run(self) -> None:
        """Accept messages until the connection breaks, which raises one of ``ERRORS``."""
        self._inbox.problem = ""
        self._inbox.is_away = False
        came_at = time.monotonic()
        while True:
            self._connection.process_data_events(FULL_S if self._waiting else IDLE_S)
            if self._is_cancelled:
                raise ConsumerCancelled("the queue was deleted, or has moved")
            while self._waiting and self._inbox.try_put(self._waiting[0]):
                self._waiting.popleft()
                self._held -= 1
                came_at = time.monotonic()
            is_quiet = time.monotonic() - came_at >= OTHERS_S
            if self._held <= 0 or is_quiet:
                self._inbox.reach_present()

    def close(self) -> None:
        """Close the connection, if it is open."""
        with contextlib.suppress(*ERRORS):
            self._connection.close()

    def _take(self, _: Any, delivery: Any, __: Any, body: bytes) -> None:
        self._waiting.append(Pushed(framed(body), None, partial(self._note, delivery.delivery_tag)))

    def _cancelled(self, _: Any) -> None:
        self._is_cancelled = True

    def _note(self, tag: int) -> None:
        """Have everything up to a tag acknowledged.  Called by another thread."""
        if self._stored.add(tag):
            # messages without acknowledgement are delivered again after a lost connection
            with contextlib.suppress(ConnectionWrongStateError):
                self._connection.add_callback_threadsafe(self._acknowledge)

    def _acknowledge(self) -> None:
        self._channel.basic_ack(self._stored.take(), multiple=True)


class _Stored:
    """The newest tag that is stored and not acknowledged; for two threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tag = 0

    def add(self, tag: int) -> bool:
        """Note a tag; return whether `take` has to be called."""
        with self._lock:
            is_first = self._tag == 0
            self._tag = tag
            return is_first

    def take(self) -> int:
        """Return the newest tag."""
        with self._lock:
            tag = self._tag
            self._tag = 0
            return tag


def follow(subscription: QueueSubscription, inbox: Inbox) -> None:
    """Consume for as long as the process lives; connect again as often as it must.

    Raises PeerError for permanent failures: a wrong address or password, a missing queue.
    """
    inbox.is_away = True
    while True:
        try:
            consumer = Consumer(subscription, inbox)
            try:
                consumer.run()
            finally:
                consumer.close()
        except ERRORS as error:
            words = f"{subscription.place} ({sentence(error)})"
            if not is_transient(error):
                raise PeerError(
                    f"Source '{subscription.source}' cannot consume queue '{subscription.queue}' "
                    f"of {subscription.place}: {sentence(error)}. Correct the address, the name or "
                    f"the rights, or declare the queue, then run again."
                ) from error
            inbox.problem = words
            time.sleep(RETRY_S)
        except ValueError as error:
            raise PeerError(
                f"Source '{subscription.source}': the address cannot be read: {error}."
            ) from None


def open_feed(config: RabbitMQSourceConfig[Any], resume: bytes) -> InboxFeed:
    """Return the feed of the source."""
    subscription = QueueSubscription(config.name, config.queue, config.url, config.prefetch)
    return InboxFeed(config.name, lambda inbox, _: follow(subscription, inbox), resume)
