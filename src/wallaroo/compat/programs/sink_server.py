"""The sink program's side of the connector protocol, in memory.

Where it runs: sink programs, one thread.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import selectors
import socket
import threading
import time

from wallaroo.protocols.connector import frames, two_phase

CREDITS = 1000
READ_BYTES = 64 * 1024
SEND_S = 10.0  # for a client to read its answers; all others wait meanwhile
ACCEPT_RETRY_S = 0.1
_LOG = logging.getLogger(__name__)


class SinkServer:
    """A server that votes on transactions and returns committed payloads."""

    def __init__(self, host: str, port: int, cookie: str):
        self._cookie = cookie.encode()
        self._payloads: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._instances: dict[bytes, _Output] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server((host, port))
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        threading.Thread(target=self._live, name="wallaroo-sink-connector", daemon=True).start()

    @property
    def port(self) -> int:
        """Return the port it listens on."""
        return int(self._listener.getsockname()[1])

    def read(self, timeout_s: float | None) -> bytes | None:
        """Return the next committed payload; None if none comes in time."""
        try:
            return self._payloads.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _live(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._accept()
                elif not self._serve(key.data):
                    self._drop(key.data)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            # the client has disconnected, or this process is out of descriptors
            _LOG.warning("A connection cannot be accepted: %s.", error)
            time.sleep(ACCEPT_RETRY_S)
            return
        sock.settimeout(SEND_S)
        self._selector.register(sock, selectors.EVENT_READ, _Client(sock))

    def _serve(self, client: _Client) -> bool:
        """Answer a client's frames; return whether its connection stays open."""
        try:
            data = client.socket.recv(READ_BYTES)
            contents = client.splitter.feed(data)
            answers = [answer for content in contents for answer in self._take(client, content)]
            client.socket.sendall(b"".join(map(frames.encode, answers)))
        except (OSError, frames.MalformedFrameError):
            return False
        except Exception:  # noqa: BLE001  # the server's one error boundary: others are served on
            _LOG.exception("A client of the sink connector is dropped:")
            return False
        return bool(data) and not any(isinstance(answer, frames.Error) for answer in answers)

    def _drop(self, client: _Client) -> None:
        self._selector.unregister(client.socket)
        with contextlib.suppress(OSError):
            client.socket.close()

    def _take(self, client: _Client, content: bytes) -> list[frames.Frame]:
        frame = frames.decode(content)
        if isinstance(frame, frames.Hello):
            if frame.version not in frames.VERSIONS or frame.cookie != self._cookie:
                return [frames.Error(b"the version or the cookie is not this sink's")]
            client.output = self._instances.setdefault(frame.instance, _Output())
            client.output.waiting.clear()
            return [frames.Ok(CREDITS)]
        output = client.output
        if output is None:
            return [frames.Error(b"HELLO comes first")]
        if isinstance(frame, frames.Notify):
            return [frames.NotifyAck(True, frame.stream, output.end)]
        if isinstance(frame, frames.EndOfStream):
            return [frames.Ack(1, ((frame.stream, output.end),))]
        if isinstance(frame, frames.Message) and frame.stream == two_phase.CONTROL_STREAM:
            return self._transact(output, frame.payload)
        if isinstance(frame, frames.Message):
            output.waiting.append(frame)
        return []

    def _transact(self, output: _Output, content: bytes) -> list[frames.Frame]:
        request = two_phase.unpack(content)
        if isinstance(request, two_phase.ListUncommitted):
            return [two_phase.framed(two_phase.ReplyUncommitted(request.tag, tuple(output.voted)))]
        if isinstance(request, two_phase.Phase1):
            is_whole = all(output.holds(start, end) for _, start, end in request.ranges)
            output.voted[request.transaction] = output.waiting if is_whole else []
            output.waiting = []
            return [two_phase.framed(two_phase.Vote(request.transaction, is_whole))]
        if isinstance(request, two_phase.Phase2):
            for message in output.voted.pop(request.transaction, ()):
                if request.is_commit:
                    output.end = message.id + len(message.payload)
                    self._payloads.put(message.payload)
        return []


class _Output:
    """The output that one instance of an application has sent."""

    def __init__(self) -> None:
        self.end = 0  # end of the committed bytes
        self.waiting: list[frames.Message] = []  # not in a transaction yet
        self.voted: dict[bytes, list[frames.Message]] = {}

    def holds(self, start: int, end: int) -> bool:
        """Return whether exactly these bytes are waiting."""
        at = start
        for message in self.waiting:
            if message.id != at:
                return False
            at += len(message.payload)
        return at == end


class _Client:
    def __init__(self, sock: socket.socket):
        self.socket = sock
        self.splitter = frames.FrameSplitter()
        self.output: _Output | None = None
