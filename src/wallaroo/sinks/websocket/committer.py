"""A WebSocket server as the system of a queued committer.

Where it runs: driver.  It imports websockets, which is optional.

The invariants are those of ``sinks/slices.py``: a slice is done when the server has answered a ping
that was sent after it.  A server handles frames in order (RFC 6455, 5.5.3), so it has received
them.
"""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.clients.websocket import (
    ERRORS,
    Peer,
    connected,
    is_transient,
    sentence,
)
from wallaroo.faults import fault_point
from wallaroo.sinks.queued_committer import QueuedCommitter
from wallaroo.sinks.slices import ConfirmingSystem, Progress, Slice, SlicedSession
from wallaroo.sinks.system import BROKEN_OFF, DeliveryError, Session
from wallaroo.tls_sockets import keep_alive

SLICE = 1000  # unanswered messages, at most
ANSWER_S_MAX = 30.0
ANSWER_BYTES_MAX = 16 << 20  # a message of the server, which is dropped
LOOK_S = 0.05
DROP_EVERY = 8  # messages sent
DROPPED_MAX = 1000  # messages of the server at a time
BACKOFF_S = 0.25


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of outputs."""

    sink: str
    peer: Peer
    name: str
    is_text: bool


class WebSocketSession(SlicedSession):
    """One connection."""

    def __init__(self, target: Target, progress: Progress, checkpoint: str):
        super().__init__(checkpoint, progress, SLICE)
        self._is_text = target.is_text
        self._is_cancelled = False
        self._open = contextlib.ExitStack()
        try:
            self._connection: Any = self._open.enter_context(connected(target.peer))
        except Exception:
            progress.failures += 1
            raise
        keep_alive(self._connection.socket)

    def deliver(self, part: Slice) -> None:
        """Send a slice; return when it was received."""
        fault_point("websocket.send")
        for place, output in enumerate(part.outputs):
            if place % DROP_EVERY == 0:
                self._drop_what_came()
            self._connection.send(output, text=self._is_text)
        self._wait_for(self._connection.ping())
        fault_point("websocket.answered")

    def _wait_for(self, answered: Any) -> None:
        """Wait for a ping's answer; raise one of ``ERRORS``, or DeliveryError."""
        until = time.monotonic() + ANSWER_S_MAX
        while not answered.wait(LOOK_S):
            if self._is_cancelled:
                raise DeliveryError(BROKEN_OFF, True)
            if time.monotonic() > until:
                raise DeliveryError(f"no answer within {ANSWER_S_MAX:g} s", True)
            self._drop_what_came()

    def _drop_what_came(self) -> None:
        """Drop the server's messages: while their queue is full, no answer is read either."""
        with contextlib.suppress(TimeoutError):
            for _ in range(DROPPED_MAX):
                self._connection.recv(0, decode=False)

    def cancel(self) -> None:
        """End the wait.  Called from another thread."""
        self._is_cancelled = True
        with contextlib.suppress(OSError):
            self._connection.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(*ERRORS):
            self._open.close()


class WebSocketSystem(ConfirmingSystem):
    """A server."""

    errors: ClassVar[tuple[type[Exception], ...]] = (*ERRORS, DeliveryError)
    refusal = "does not take {output}"
    ways_to_correct = "Correct the url, the headers or the certificates"

    def __init__(self, target: Target):
        super().__init__(target.sink, target.peer.place, target.name)
        self._target = target

    def connect(self, checkpoint: str) -> Session:
        return WebSocketSession(self._target, self._progress, checkpoint)

    def is_transient(self, error: Exception) -> bool:
        return is_transient(error)

    def sentence(self, error: Exception) -> str:
        return sentence(error)

    def pause_s(self, error: Exception) -> float:
        return self._progress.pause_s(BACKOFF_S)


def open_committer(target: Target, staging: Path, is_durable: bool) -> QueuedCommitter:
    """Open the committer of a WebSocket sink."""
    system = WebSocketSystem(target)
    return QueuedCommitter(target.sink, system, staging, is_durable=is_durable, points="websocket")
