"""Delivery of committed batches to a WebSocket server.

The invariants are those of ``sinks/queued/at_least_once.py``: a slice is done when the server has
answered a ping that was sent after it.  A server handles frames in order (RFC 6455, 5.5.3), so it
has received them.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

from wallaroo.connectors.websocket.client import ERRORS, Peer, connected
from wallaroo.connectors.websocket.sink import WebSocketSinkConfig
from wallaroo.instrumentation.faults import fault_point
from wallaroo.network.tls_sockets import client_context, keep_alive
from wallaroo.sinks.queued.at_least_once import AckingSystem, Progress, Slice, SlicedSession
from wallaroo.sinks.queued.system import BROKEN_OFF, CommitContext, DeliveryError, Session

SLICE = 1000  # unanswered messages, at most
ANSWER_S_MAX = 30.0
ANSWER_BYTES_MAX = 16 << 20  # a message of the server, which is dropped
LOOK_S = 0.05
DROP_EVERY = 8  # messages sent
DROPPED_MAX = 1000  # messages of the server at a time
BACKOFF_S = 0.25


class WebSocketSession(SlicedSession):
    def __init__(self, peer: Peer, progress: Progress, checkpoint: str, *, is_text: bool):
        super().__init__(checkpoint, progress, SLICE)
        self._is_text = is_text
        self._is_cancelled = False
        self._open = contextlib.ExitStack()
        try:
            self._connection: Any = self._open.enter_context(connected(peer))
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
        """Wait for a ping's answer; raise one of the client's errors, or DeliveryError."""
        until = time.monotonic() + ANSWER_S_MAX
        while not answered.wait(LOOK_S):
            if self._is_cancelled:
                raise DeliveryError(BROKEN_OFF, True)
            if time.monotonic() > until:
                raise DeliveryError(f"no answer within {ANSWER_S_MAX:g} s", True)
            self._drop_what_came()

    def _drop_what_came(self) -> None:
        """Drop the server's messages: no answer is read while their queue is full."""
        with contextlib.suppress(TimeoutError):
            for _ in range(DROPPED_MAX):
                self._connection.recv(0, decode=False)

    def cancel(self) -> None:
        """End the wait.  Called from another thread."""
        self._is_cancelled = True
        with contextlib.suppress(OSError):
            self._connection.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(*ERRORS.types):
            self._open.close()


class WebSocketSystem(AckingSystem[WebSocketSinkConfig]):
    client = ERRORS
    refusal = "does not take {output}"
    ways_to_correct = "Correct the url, the headers or the certificates"

    def __init__(self, config: WebSocketSinkConfig, context: CommitContext):
        """Raise PeerError for a TLS file that cannot be used."""
        super().__init__(config, context)
        tls = client_context(config.tls) if config.tls is not None else None
        self._peer = Peer(config.url, config.headers, ANSWER_BYTES_MAX, tls)

    @property
    def place(self) -> str:
        return self._peer.place

    def connect(self, checkpoint: str) -> Session:
        is_text = self._config.text
        return WebSocketSession(self._peer, self._progress, checkpoint, is_text=is_text)

    def pause_s(self, error: Exception) -> float:
        return self._progress.pause_s(BACKOFF_S)
