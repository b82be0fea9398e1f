"""A consumer of a RabbitMQ queue that acknowledges messages on disk.

Where it runs: feeder processes.  It imports pika, which is optional.

The invariants:

* Messages go to the inbox in the order of their delivery tags, so the stored messages have
  consecutive tags from the first on, and one acknowledgement covers all of them.
* The thread never waits for room in the inbox: heartbeats continue.  The waiting messages are
  bounded by the prefetch count.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from functools import partial
from typing import Any

import pika
from pika.exceptions import ConnectionWrongStateError, ConsumerCancelled

from wallaroo.connectors.rabbitmq.client import ERRORS, parameters_of
from wallaroo.connectors.rabbitmq.source import RabbitMQSourceConfig
from wallaroo.network.client_errors import readable_address
from wallaroo.network.urls import place_of
from wallaroo.sources.feed import framed
from wallaroo.sources.feeds.inbox import Inbox, InboxFeed, Pushed
from wallaroo.sources.feeds.reconnecting import keep_reading

RETRY_S = 1.0
IDLE_S = 1.0  # without a message
FULL_S = 0.02  # between two checks for room in the inbox
OTHERS_S = 5.0  # without a message, until other consumers count as having taken what was there


class Consumer:
    def __init__(self, config: RabbitMQSourceConfig[Any], parameters: Any, inbox: Inbox):
        self._inbox = inbox
        self._waiting: deque[Pushed] = deque()
        self._stored = _Stored()
        self._is_cancelled = False
        self._connection: Any = pika.BlockingConnection(parameters)
        try:
            self._channel = self._connection.channel()
            declared = self._channel.queue_declare(config.queue, passive=True)
            # the number at the beginning that has not arrived yet
            self._held = declared.method.message_count
            inbox.knows_present = True
            self._channel.basic_qos(prefetch_count=config.prefetch)
            self._channel.add_on_cancel_callback(self._cancelled)
            self._channel.basic_consume(config.queue, self._take)
        except BaseException:
            self.close()
            raise

    def run(self) -> None:
        """Accept messages until the connection breaks, which raises one of the client's errors."""
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
        with contextlib.suppress(*ERRORS.types):
            self._connection.close()

    def _take(self, _: Any, delivery: Any, __: Any, body: bytes) -> None:
        self._waiting.append(Pushed(framed(body), None, partial(self._note, delivery.delivery_tag)))

    def _cancelled(self, _: Any) -> None:
        self._is_cancelled = True

    def _note(self, tag: int) -> None:
        """Acknowledge everything up to a tag. Called by another thread."""
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


def open_feed(config: RabbitMQSourceConfig[Any], resume: bytes) -> InboxFeed:
    """Return the feed of the source.  Raises PeerError if its address cannot be read."""
    with readable_address(f"Source '{config.name}'"):
        parameters = parameters_of(config.url, has_heartbeats=True)
    place = f"RabbitMQ at {place_of(config.url)}"
    problem = f"Source '{config.name}' cannot consume queue '{config.queue}' of {place}"
    ways = "Correct the address, the name or the rights, or declare the queue"

    def follow(inbox: Inbox, _: Any) -> None:
        def read() -> None:
            with contextlib.closing(Consumer(config, parameters, inbox)) as consumer:
                consumer.run()

        keep_reading(read, inbox, ERRORS, place, problem, ways, RETRY_S)

    return InboxFeed(config.name, follow, resume)
