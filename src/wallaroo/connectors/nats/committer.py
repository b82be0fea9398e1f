"""Delivery of committed batches to NATS JetStream.

The invariants are those of ``sinks/queued/at_least_once.py``: a slice is done when the server has
confirmed all of its messages.  A message's ``Nats-Msg-Id`` is the sink's name, the commit's id and
the output's number in the commit: the same whenever it is published, and no other message has it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from nats.js.errors import NotFoundError

from wallaroo.connectors.nats.client import ERRORS, TIMEOUT_S, connected, server_of
from wallaroo.connectors.nats.sink import NATSSinkConfig
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.queued.at_least_once import AckingSystem, Progress, Slice, SlicedSession
from wallaroo.sinks.queued.system import BROKEN_OFF, CommitContext, DeliveryError, Session
from wallaroo.sinks.wrapped_encoder import unpack

SLICE = 500  # unconfirmed messages, at most
ANSWER_S_MAX = 30.0
LOOK_S = 0.5  # between checks that the connection is still open
MESSAGE_ID = "Nats-Msg-Id"
EXPECTED_STREAM = "Nats-Expected-Stream"
CLOSE_S_MAX = 1.0
Answer = TypeVar("Answer")


class EventLoop:
    """An event loop that runs another thread's coroutines in its own thread.

    It runs as long as the session, so that the client answers its server's pings while there is no
    output.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live, name="wallaroo-sink-loop", daemon=True)
        self._running: concurrent.futures.Future[Any] | None = None
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """Return a coroutine's result.  Raises what it raised; DeliveryError after `cancel`."""
        running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self._running = running
        try:
            return running.result()
        except concurrent.futures.CancelledError:
            raise DeliveryError(BROKEN_OFF, True) from None

    def cancel(self) -> None:
        """Cancel the running coroutine.  Called from another thread."""
        if self._running is not None:
            self._running.cancel()

    def close(self, last: Coroutine[Any, Any, None] | None = None) -> None:
        """Run a last coroutine for a moment, then end the loop."""
        if last is not None:
            with contextlib.suppress(Exception):
                asyncio.run_coroutine_threadsafe(last, self._loop).result(CLOSE_S_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S_MAX)

    def _live(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


class StreamPublisher:
    """One connection in an event loop's thread.

    The client's `publish_async` is not used: it loses error answers.
    """

    def __init__(self, client: Any, sink: str, config: NATSSinkConfig):
        self._client = client
        self._sink = sink
        self._config = config
        self._inbox = client.new_inbox()
        self._published = 0
        self._before = 0  # published before the present slice
        self._subjects: dict[str, str] = {}  # unconfirmed, by reply subject
        self._error: DeliveryError | None = None
        self._changed = asyncio.Event()

    async def open(self) -> None:
        """Subscribe to the answers."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._note)

    async def require_stream(self) -> None:
        """Raise DeliveryError if the server reports that no stream accepts the subject."""
        if self._config.subject:
            refusal = await self._unanswered(self._config.subject, LOOK_S)
            if not refusal.is_transient:
                raise refusal

    async def publish(self, part: Slice) -> None:
        """Publish; return when all are confirmed.  Raises a client's error or DeliveryError."""
        self._before = self._published
        expected = {EXPECTED_STREAM: self._config.stream} if self._config.stream else {}
        for place, output in enumerate(part.outputs):
            address, payload = unpack(output)
            subject = address or self._config.subject
            headers = {MESSAGE_ID: f"{self._sink}-{part.key_of(place)}", **expected}
            self._published += 1
            reply = f"{self._inbox}.{self._published}"
            self._subjects[reply] = subject
            await self._client.publish(subject, payload, reply, headers)
        loop = asyncio.get_running_loop()
        until = loop.time() + ANSWER_S_MAX
        while self._subjects and self._error is None:
            if self._client.is_closed:
                raise DeliveryError("the connection is lost", True)
            if loop.time() > until:
                raise DeliveryError(f"no answer within {ANSWER_S_MAX:g} s", True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), LOOK_S)
        if self._error is not None:
            raise self._error

    @property
    def confirmed(self) -> int:
        """Return how many of the first outputs of the last slice were confirmed."""
        waiting = list(self._subjects)  # at once: answers come in another thread
        first = int(waiting[0].rpartition(".")[2]) - 1 if waiting else self._published
        return first - self._before

    async def _note(self, message: Any) -> None:
        error = await self._refusal(message)
        if error is not None:  # the message stays unconfirmed, even while the reason is looked up
            self._fail(error)
            return
        self._subjects.pop(message.subject, None)
        if not self._subjects:
            self._changed.set()

    async def _refusal(self, message: Any) -> DeliveryError | None:
        """Return why an answer is not a confirmation; None if it is one."""
        if not message.data:  # no responders
            return await self._unanswered(self._subjects.get(message.subject, ""))
        error = json.loads(message.data).get("error")
        if error is None:
            return None
        is_transient = error.get("code", 0) >= 500
        return DeliveryError(str(error.get("description", error)), is_transient)

    def _fail(self, error: DeliveryError) -> None:
        self._error = self._error or error
        self._changed.set()

    async def _unanswered(self, subject: str, timeout_s: float = TIMEOUT_S) -> DeliveryError:
        """Return why no stream answered: there may be none."""
        try:
            await self._client.jetstream(timeout=timeout_s).find_stream_name_by_subject(subject)
        except NotFoundError:
            return DeliveryError(f"no stream takes subject '{subject}'", False)
        except ERRORS.types as error:
            return DeliveryError(ERRORS.sentence(error), True)
        return DeliveryError("the stream does not answer", True)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()


class NATSSession(SlicedSession):
    def __init__(self, system: NATSSystem, progress: Progress, checkpoint: str):
        super().__init__(checkpoint, progress, SLICE)
        self._loop = EventLoop()
        try:
            self._publisher = self._loop.run(system.publisher())
        except BaseException:
            self._loop.close()
            raise

    def deliver(self, part: Slice) -> None:
        fault_point("nats.publish")
        try:
            self._loop.run(self._publisher.publish(part))
        finally:
            self.accepted = self._publisher.confirmed
        fault_point("nats.confirmed")

    def cancel(self) -> None:
        self._loop.cancel()

    def close(self) -> None:
        self._loop.close(self._publisher.close())


class NATSSystem(AckingSystem[NATSSinkConfig]):
    """A subject, or several."""

    client = ERRORS
    refusal = "refuses {output} for {target}"
    ways_to_correct = "Create the stream, or correct the subject, the rights or the password"

    def __init__(self, config: NATSSinkConfig, context: CommitContext):
        """Raise PeerError for an address or a TLS file that cannot be used."""
        super().__init__(config, context)
        self._server = server_of(config, f"Sink '{context.sink}' ({config.label})")

    @property
    def place(self) -> str:
        return self._server.place

    def connect(self, checkpoint: str) -> Session:
        return NATSSession(self, self._progress, checkpoint)

    async def publisher(self) -> StreamPublisher:
        """Connect; return what publishes."""
        publisher = StreamPublisher(await connected(self._server), self._context.sink, self._config)
        try:
            await publisher.open()
            await publisher.require_stream()
        except BaseException:
            await publisher.close()
            raise
        return publisher
