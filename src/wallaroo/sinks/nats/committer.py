"""NATS JetStream as the system of a queued committer.

Where it runs: driver.  It imports nats-py, which is optional.

The invariants are those of ``sinks/slices.py``: a slice is done when the server has confirmed all
of its messages.  A message's ``Nats-Msg-Id`` is the sink's name, the commit's id and the output's
number in the commit: the same whenever it is published, and no other message has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from nats.js.errors import NotFoundError

from wallaroo.clients.nats import ERRORS, TIMEOUT_S, Server, connected, is_transient, sentence
from wallaroo.faults import fault_point
from wallaroo.sinks.addressed import unpack
from wallaroo.sinks.event_loop import EventLoop
from wallaroo.sinks.queued_committer import QueuedCommitter
from wallaroo.sinks.slices import ConfirmingSystem, Progress, Slice, SlicedSession
from wallaroo.sinks.system import DeliveryError, Session

SLICE = 500  # unconfirmed messages, at most
ANSWER_S_MAX = 30.0
LOOK_S = 0.5  # between checks that the connection is still open
MESSAGE_ID = "Nats-Msg-Id"
EXPECTED_STREAM = "Nats-Expected-Stream"


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of outputs."""

    sink: str
    server: Server
    name: str
    subject: str
    stream: str


class Publisher:
    """One connection, in the thread of an event loop.

    nats-py's own `publish_async` loses answers that are errors.
    """

    def __init__(self, client: Any, target: Target):
        self._client = client
        self._target = target
        self._inbox = client.new_inbox()
        self._published = 0
        self._subjects: dict[str, str] = {}  # unconfirmed, by reply subject
        self._error: DeliveryError | None = None
        self._changed = asyncio.Event()

    async def open(self) -> None:
        """Subscribe to the answers."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._note)

    async def publish(self, part: Slice) -> None:
        """Publish; return when all are confirmed.

        Raises one of ``ERRORS`` or DeliveryError.
        """
        expected = {EXPECTED_STREAM: self._target.stream} if self._target.stream else {}
        for place, output in enumerate(part.outputs):
            address, payload = unpack(output)
            subject = address or self._target.subject
            headers = {MESSAGE_ID: f"{self._target.sink}-{part.key_of(place)}", **expected}
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

    async def _note(self, message: Any) -> None:
        error = await self._refusal(message)
        if error is not None:  # the message stays unconfirmed, even while the reason is looked up
            self._fail(error)
            return
        self._subjects.pop(message.subject, None)
        if not self._subjects:
            self._changed.set()

    async def _refusal(self, message: Any) -> DeliveryError | None:
        """Return why an answer is no confirmation; None if it is one."""
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

    async def _unanswered(self, subject: str) -> DeliveryError:
        """Return why no stream answered: there may be none."""
        try:
            await self._client.jetstream(timeout=TIMEOUT_S).find_stream_name_by_subject(subject)
        except NotFoundError:
            return DeliveryError(f"no stream takes subject '{subject}'", False)
        except ERRORS as error:
            return DeliveryError(sentence(error), True)
        return DeliveryError("the stream does not answer", True)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()


class NATSSession(SlicedSession):
    """One connection."""

    def __init__(self, target: Target, progress: Progress, checkpoint: str):
        super().__init__(checkpoint, progress, SLICE)
        self._loop = EventLoop()
        try:
            self._publisher = self._loop.run(_publisher(target))
        except BaseException:
            self._loop.close()
            raise

    def deliver(self, part: Slice) -> None:
        """Publish a slice; return when it is confirmed."""
        fault_point("nats.publish")
        self._loop.run(self._publisher.publish(part))
        fault_point("nats.confirmed")

    def cancel(self) -> None:
        """Stop waiting for confirmations."""
        self._loop.cancel()

    def close(self) -> None:
        """Close the connection."""
        self._loop.close(self._publisher.close())


async def _publisher(target: Target) -> Publisher:
    publisher = Publisher(await connected(target.server), target)
    await publisher.open()
    return publisher


class NATSSystem(ConfirmingSystem):
    """A subject, or several."""

    errors: ClassVar[tuple[type[Exception], ...]] = (*ERRORS, DeliveryError)
    refusal = "refuses {output} for {target}"
    ways_to_correct = "Create the stream, or correct the subject, the rights or the password"

    def __init__(self, target: Target):
        super().__init__(target.sink, target.server.place, target.name)
        self._target = target

    def connect(self, checkpoint: str) -> Session:
        return NATSSession(self._target, self._progress, checkpoint)

    def is_transient(self, error: Exception) -> bool:
        return is_transient(error)

    def sentence(self, error: Exception) -> str:
        return sentence(error)


def open_committer(target: Target, staging: Path, is_durable: bool) -> QueuedCommitter:
    """Open the committer of a NATS sink."""
    system = NATSSystem(target)
    return QueuedCommitter(target.sink, system, staging, is_durable=is_durable, points="nats")
