"""A reader of a JetStream stream, from the last stored message on.

The invariants:

* Messages enter the inbox in the order of their numbers in the stream, each number once: every
  connection creates a consumer of its own that begins after the last number that entered.  Numbers
  of one consumer's deliveries have no gaps; if one is missing the connection is dropped.
* A message is acknowledged when its number is not above the last one on disk, never before, however
  often it was delivered.
* In a stream whose numbers have no gaps of their own, a number that is missing after the last one
  read, and below those that the stream holds, was lost: it is counted or refused, never skipped
  silently.
* The next consumer delivers the last message read once more, unless it was removed. If the stream
  stored it at another time, it is a different message: the stream is an older copy that has grown
  since, or a server that had lost messages took over, and the stream is refused.
* A stream that keeps messages for its consumers is never without one of ours after the first
  connection (``interest``), or keeps them without (``workqueue``, which allows one at a time).
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
from collections import deque
from functools import partial
from typing import Any, NamedTuple

from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, RetentionPolicy
from nats.js.errors import NotFoundError

from wallaroo.connectors.nats.client import ERRORS, Server, connected, server_of
from wallaroo.connectors.nats.message import NATSMessage
from wallaroo.connectors.nats.source import NATSSourceConfig
from wallaroo.errors import PeerError
from wallaroo.sources.feed import framed, framed_event
from wallaroo.sources.feeds.generator import unpickled
from wallaroo.sources.feeds.inbox import Inbox, InboxFeed, Pushed
from wallaroo.sources.feeds.reconnecting import keep_reading

RETRY_S = 0.5
IDLE_S = 0.25  # without a message, the reader does other work
FULL_S = 0.02  # between two checks for room in the inbox
PULL_MESSAGES = 1000
PULL_BYTES = 8 << 20
PULL_S = 5.0  # until a request without messages is answered
ANSWER_S_MAX = 15.0  # after this the server, or the consumer, counts as lost
KEPT_S = 24 * 3600.0  # how long a message waits for its acknowledgement
ALONE_S_MAX = 300.0  # how long an ephemeral consumer outlives its connection
TOKEN_BYTES = 6
ENDS = ("404", "408")  # statuses that end a request, and nothing else
_log = logging.getLogger(__name__)
TOO_LARGE = "Message Size Exceeds MaxBytes"  # the rest of the request's byte limit is too small


class StreamPosition(NamedTuple):
    """The position after a message.

    It has the message's number and time, and the stream's creation time.
    """

    created: str
    sequence: int
    stored_at: str = ""  # when the stream stored the message; empty: unknown


class LostError(ConnectionError):
    """Error of a connection or consumer that is no longer usable."""


class Acknowledgements:
    """Replies that wait until their messages are on disk."""

    def __init__(self, stored: int):
        self._stored = stored  # the last number on disk; set by the feed's thread
        self._waiting: deque[tuple[int, str]] = deque()

    def add(self, sequence: int, reply: str) -> None:
        """Note the reply subject of a message's acknowledgement."""
        self._waiting.append((sequence, reply))

    def store(self, sequence: int) -> None:
        """Note that everything up to a number is on disk.  Called by another thread."""
        self._stored = sequence

    def take(self) -> list[str]:
        """Return the replies that are due."""
        due = []
        while self._waiting and self._waiting[0][0] <= self._stored:
            due.append(self._waiting.popleft()[1])
        return due

    def forget(self) -> None:
        """Drop all replies: the next consumer delivers unacknowledged messages again."""
        self._waiting.clear()


class StreamReader:
    """A reader that uses as many connections as it needs."""

    def __init__(
        self,
        config: NATSSourceConfig[Any],
        server: Server,
        inbox: Inbox,
        position: StreamPosition | None,
    ):
        self._config = config
        self._server = server
        self._consumer = (
            config.consumer or f"wallaroo-{re.sub(r'[^A-Za-z0-9_-]', '_', config.name)}"
        )
        self._inbox = inbox
        self._position = position
        self._read_to = position.sequence if position else 0
        self._acknowledgements = Acknowledgements(self._read_to)
        self._jetstream: Any = None
        self._shows_loss = False
        self._skipped = 0  # messages lost after the last one that entered
        self._newest: int | None = None  # the stream's last message at the beginning
        inbox.knows_present = True

    async def run(self) -> None:
        """Read until the connection breaks, which raises one of the client's errors."""
        client = await connected(self._server)
        try:
            self._jetstream = client.jetstream()
            consumer, is_kept = await self._new_consumer(self._jetstream)
            if not consumer.num_pending:
                self._inbox.reach_present()
            self._inbox.problem = ""
            self._inbox.is_away = False
            pulls = Pulls(client, self._config.stream, consumer.name)
            await pulls.open()
            while True:
                for message in await pulls.next_messages():
                    await self._take(message, is_kept=is_kept)
                await self._acknowledge(client)
        finally:
            await client.close()

    async def _new_consumer(self, jetstream: Any) -> tuple[Any, bool]:
        """Create a consumer of unread messages; return it, and whether acks remove them."""
        source = self._config
        stream = await jetstream.stream_info(source.stream)
        retention = stream.config.retention
        is_kept = retention != RetentionPolicy.LIMITS
        is_compacted = stream.config.max_msgs_per_subject > 0
        self._shows_loss = not (is_kept or source.subject or is_compacted)
        self._begin(stream, is_kept=is_kept)
        self._acknowledgements.forget()
        if not is_kept:
            assert self._position is not None
            first = self._position.sequence if self._position.stored_at else self._next_sequence()
            config = ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=first,
                ack_policy=AckPolicy.NONE,
                inactive_threshold=ALONE_S_MAX,
                mem_storage=True,
            )
            return await jetstream.add_consumer(source.stream, self._filtered(config)), is_kept
        name = f"{self._consumer}-{secrets.token_hex(TOKEN_BYTES)}"
        config = ConsumerConfig(
            durable_name=name,
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=KEPT_S,
            max_ack_pending=-1,
        )
        earlier = await self._earlier(jetstream)
        if retention == RetentionPolicy.WORK_QUEUE:  # it accepts one consumer at a time
            await self._remove(jetstream, earlier)
            consumer = await jetstream.add_consumer(source.stream, self._filtered(config))
        else:  # without a consumer it keeps nothing
            consumer = await jetstream.add_consumer(source.stream, self._filtered(config))
            await self._remove(jetstream, earlier)
        return consumer, is_kept

    async def _earlier(self, jetstream: Any) -> list[str]:
        """Return the names of the durable consumers of earlier connections."""
        own = self._config
        ours = re.compile(rf"{re.escape(self._consumer)}-[0-9a-f]{{{2 * TOKEN_BYTES}}}")
        names: list[str] = []
        seen = 0
        while page := await jetstream.consumers_info(own.stream, seen):
            names += [one.name for one in page if ours.fullmatch(one.name)]
            seen += len(page)
        return names

    def _filtered(self, config: ConsumerConfig) -> ConsumerConfig:
        config.filter_subject = self._config.subject or None
        return config

    async def _remove(self, jetstream: Any, names: list[str]) -> None:
        for name in names:
            try:
                await jetstream.delete_consumer(self._config.stream, name)
            except NotFoundError:  # another request was faster
                continue

    def _begin(self, stream: Any, *, is_kept: bool) -> None:
        """Set the position if there is none; refuse a stream other than the earlier one."""
        config = self._config
        created = stream.created.isoformat()
        newest = stream.state.last_seq
        self._newest = newest if self._newest is None else self._newest
        if self._position is None:
            start = 1 if is_kept else config.start
            first = newest + 1 if start is None else max(start, stream.state.first_seq)
            self._position = StreamPosition(created, first - 1)
        elif self._position.created != created:
            raise self._another("was deleted and created again since it was read")
        elif self._read_to > newest:
            raise self._another(
                f"ends with message {newest}, and message {self._read_to} was read already: its "
                f"server lost messages"
            )
        self._look_for_loss(stream.state.first_seq)

    def _look_for_loss(self, first: int) -> None:
        """Count unread, removed messages below ``first``; raise unless they may be skipped."""
        assert self._position is not None
        lost = first - self._next_sequence()
        if not self._shows_loss or lost <= 0:
            return
        config = self._config
        what = (
            f"{lost:,} messages of stream '{config.stream}' of {self._server.place}, from "
            f"{self._next_sequence()} on, were removed before they were read"
        )
        if config.on_data_loss != "skip":
            raise PeerError(
                f"Source '{config.name}': {what}. To continue without them, configure the source "
                f"with on_data_loss='skip'."
            )
        _log.warning("source '%s': %s: continued without them", config.name, what)
        self._position = self._position._replace(sequence=first - 1, stored_at="")
        self._skipped += lost

    def _another(self, what: str) -> PeerError:
        own = self._config
        return PeerError(
            f"Source '{own.name}': stream '{own.stream}' of {self._server.place} {what}, so its "
            f"numbers mean other messages. To read it from its start, run with another "
            f"--checkpoint folder, or give the source another name."
        )

    def _next_sequence(self) -> int:
        assert self._position is not None
        return self._position.sequence + 1

    async def _take(self, message: Any, *, is_kept: bool) -> None:
        assert self._position is not None
        metadata = message.metadata
        sequence = metadata.sequence.stream
        stored_at = str(metadata.timestamp)
        position = self._position
        if sequence == position.sequence and position.stored_at not in ("", stored_at):
            raise self._another(
                f"was set back since it was read: message {sequence} is another one, stored at "
                f"{stored_at}"
            )
        if is_kept:
            self._acknowledgements.add(sequence, message.reply)
        if sequence <= position.sequence:
            if not metadata.num_pending:
                self._inbox.reach_present()
            return
        if self._shows_loss and sequence > self._next_sequence():
            stream = await self._jetstream.stream_info(self._config.stream)
            self._look_for_loss(min(sequence, stream.state.first_seq))
        self._position = StreamPosition(position.created, sequence, stored_at)
        self._read_to = sequence
        stored = partial(self._acknowledgements.store, sequence) if is_kept else None
        pushed = Pushed(self._frame(message, sequence), self._position, stored, self._skipped)
        self._skipped = 0
        while not self._inbox.try_put(pushed):
            await asyncio.sleep(FULL_S)
        if sequence >= (self._newest or 0) or not metadata.num_pending:
            self._inbox.reach_present()

    def _frame(self, message: Any, sequence: int) -> bytes:
        if self._config.decoder is not unpickled:
            return framed(message.data)
        headers = dict(message.headers or {})
        return framed_event(NATSMessage(message.subject, sequence, headers, message.data))

    async def _acknowledge(self, client: Any) -> None:
        for reply in self._acknowledgements.take():
            await client.publish(reply, b"+ACK")


class Pulls:
    """Requests for messages of one consumer, one at a time.

    nats-py's own `fetch` sets a timer for each message, which costs six times the CPU time.
    """

    def __init__(self, client: Any, stream: str, consumer: str):
        self._client = client
        self._address = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = client.new_inbox()
        self._came: list[Any] = []
        self._something = asyncio.Event()
        self._left = 0  # messages, in the open request
        self._delivered = 0  # by the consumer, since it was created
        self._answered_at = 0.0

    async def open(self) -> None:
        """Subscribe to the answers."""
        await self._client.subscribe(
            self._inbox, cb=self._note, pending_msgs_limit=-1, pending_bytes_limit=-1
        )

    async def next_messages(self) -> list[Any]:
        """Return messages that came, perhaps none.  Raises LostError if no more can come."""
        loop = asyncio.get_running_loop()
        if self._left <= 0:
            await self._ask()
            self._answered_at = loop.time()
        try:
            await asyncio.wait_for(self._something.wait(), IDLE_S)
        except TimeoutError:
            if self._client.is_closed:
                raise LostError("the connection is lost") from None
            if loop.time() - self._answered_at > ANSWER_S_MAX:
                raise LostError(f"no answer within {ANSWER_S_MAX:g} s") from None
            return []
        self._answered_at = loop.time()
        self._something.clear()
        came = self._came
        self._came = []
        return [message for message in came if self._is_delivery(message)]

    async def _ask(self) -> None:
        request = {
            "batch": PULL_MESSAGES,
            "max_bytes": max(PULL_BYTES, 2 * self._client.max_payload),
            "expires": int(PULL_S * 1e9),
        }
        await self._client.publish(self._address, json.dumps(request).encode(), self._inbox)
        self._left = PULL_MESSAGES

    async def _note(self, message: Any) -> None:
        self._came.append(message)
        self._something.set()

    def _is_delivery(self, message: Any) -> bool:
        """Return whether it is a message of the stream; if not, end the request or consumer."""
        if not message.reply:
            headers = message.headers or {}
            status = headers.get("Status", "")
            words = headers.get("Description", "")
            if status not in ENDS and words != TOO_LARGE:
                raise LostError(f"the consumer is gone: {status} {words}".rstrip())
            self._left = 0
            return False
        number = message.metadata.sequence.consumer
        if number != self._delivered + 1:
            raise LostError(f"delivery {self._delivered + 1} is missing")
        self._delivered = number
        self._left -= 1
        return True


def open_feed(config: NATSSourceConfig[Any], resume: bytes) -> InboxFeed:
    """Return the feed of the source.  Raises PeerError if its address cannot be read."""
    server = server_of(config, f"Source '{config.name}' ({config.label})")
    problem = f"Source '{config.name}' cannot read stream '{config.stream}' of {server.place}"
    ways = "Correct the address, the name, the rights or the certificates, or create the stream"

    def follow(inbox: Inbox, position: StreamPosition | None) -> None:
        reader = StreamReader(config, server, inbox, position)
        keep_reading(
            lambda: asyncio.run(reader.run()), inbox, ERRORS, server.place, problem, ways, RETRY_S
        )

    return InboxFeed(config.name, follow, resume)
