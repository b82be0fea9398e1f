"""Source program's side of the protocol: ``AtLeastOnceSourceConnector``.

Where it runs: source programs, one thread per connector.  (Wallaroo's client used asyncore, which
Python no longer has; names, arguments and callbacks are the same.)

The invariants:

* Callbacks, and ``__next__``, are called by the connector's thread, one at a time.
* A message is sent only for a stream that the application has opened, and while there are credits.
* When the connection is lost every stream is closed and unsent messages are dropped; after a
  reconnect every stream is announced again, and its program continues after the point that it is
  given.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections import deque
from typing import NamedTuple

from wallaroo.compat.programs import connector_wire_messages as cwm
from wallaroo.compat.programs.faults import ConnectorError, ProtocolError
from wallaroo.protocols.connector.frames import FrameSplitter

CONNECT_S_MAX = 10.0  # for a connection and its handshake
RECONNECT_S = 0.25
FLUSH_S_MAX = 30.0  # for queued messages to leave when the connector is shut down
IDLE_S = 0.005  # until an iterator that had nothing is asked again
READ_BYTES = 64 * 1024
OUT_BYTES_MAX = 256 * 1024  # encoded but not sent; beyond this the iterator is not asked for more
QUEUE_MAX = 1024  # messages written that wait for credits; beyond this `write` waits, too

log = logging.getLogger("wallaroo.connector")


class Stream(NamedTuple):
    """The state of a stream."""

    id: int
    name: bytes
    point_of_ref: int
    is_open: bool


class _RestartError(ConnectionError):
    """The application's request for a new connection."""


class _Link:
    """One connection: its socket, and its unsent bytes."""

    def __init__(self, host: str, port: int):
        self.socket = socket.create_connection((host, port), CONNECT_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.out = bytearray()
        self._splitter = FrameSplitter()
        self._wakeup, self._waker = socket.socketpair()
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)

    def wake(self) -> None:
        """End `exchange` early."""
        with contextlib.suppress(OSError):
            self._waker.send(b"x")

    def exchange(self, timeout_s: float) -> list[bytes]:
        """Send, wait for a limited time; return received frames.  Raises OSError."""
        poll = select.poll()  # not select, which takes no descriptor above 1,023
        poll.register(self.socket, select.POLLIN | (select.POLLOUT if self.out else 0))
        poll.register(self._wakeup, select.POLLIN)
        ready = dict(poll.poll(timeout_s * 1e3))
        state = ready.get(self.socket.fileno(), 0)
        if state & select.POLLOUT:
            sent = self.socket.send(self.out[:READ_BYTES])
            del self.out[:sent]
        if self._wakeup.fileno() in ready:
            self._wakeup.recv(READ_BYTES)
        if not state & ~select.POLLOUT:
            return []
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("the application closed the connection")
        return self._splitter.feed(data)

    def close(self) -> None:
        for each in (self.socket, self._wakeup, self._waker):
            each.close()


class AtLeastOnceSourceConnector:
    """A sender of streams of messages; subclasses define the callbacks for streams.

    A subclass with ``__next__`` is asked for messages (``connector_wire_messages.Message``) while
    there are credits: None means none at the moment, StopIteration that there are no more.  Without
    it, call ``write``.
    """

    def __init__(
        self,
        version: str,
        cookie: str,
        program_name: str,
        instance_name: str,
        host: str,
        port: int | str,
        delay: float = 0,
    ):
        self.hello = cwm.Hello(version, cookie, program_name, instance_name)
        self.credits = 0
        self.error: BaseException | None = None  # why it stopped; None: normally
        self.stopped = threading.Event()
        self._address = (host, int(port))
        self._delay = delay
        self._next_at = 0.0
        self._streams: dict[int, Stream] = {}
        self._refused: dict[int, Stream] = {}  # announced again with the next ACK
        self._queue: deque[bytes] = deque()  # messages that wait for credits
        self._link: _Link | None = None
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._stop_by = 0.0  # monotonic
        self._changed = threading.Condition(threading.RLock())

    # -- for programs -----------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect, begin to send.  Raises OSError, ConnectorError if refused."""
        try:
            self._open_link()
        except Exception as error:
            self.error = error
            self.stopped.set()
            raise
        self._announce_all()
        self._thread = threading.Thread(target=self._live, name="wallaroo-connector", daemon=True)
        self._thread.start()

    def join(self, timeout: float | None = None) -> BaseException | None:
        """Wait until the connector has stopped; return why, None if all went well."""
        self.stopped.wait(timeout)
        return self.error

    def notify(
        self,
        stream_id: int,
        stream_name: bytes | str | None = None,
        point_of_ref: int | None = None,
    ) -> None:
        """Announce a stream; `stream_opened` is called when it may be sent."""
        earlier = self._streams.get(stream_id)
        if earlier is None and stream_name is None:
            raise ConnectorError("Cannot notify a new stream without a stream name!")
        if earlier is not None and point_of_ref is None:
            raise ConnectorError("Cannot update a stream without a valid point_of_ref value")
        name = earlier.name if earlier is not None else stream_name
        raw = name.encode() if isinstance(name, str) else name or b""
        is_open = earlier.is_open if earlier is not None else False
        stream = self._streams[stream_id] = Stream(stream_id, raw, point_of_ref or 0, is_open)
        self.stream_added(stream)
        if self._link is not None:  # the others are announced once there is a connection
            self.write(cwm.Notify(stream.id, stream.name, stream.point_of_ref))

    def end_of_stream(self, stream_id: int) -> None:
        """Announce that a stream is complete; it is acknowledged up to its last message."""
        self.write(cwm.EosMessage(stream_id))

    def write(self, msg: cwm.Message | cwm.Notify | cwm.EosMessage | cwm.Error) -> None:
        """Send a message.

        Waits, but not in callbacks, while too many wait for credits.  Raises ProtocolError for a
        message of a stream that is not open.
        """
        if not isinstance(msg, cwm.Message | cwm.Notify | cwm.EosMessage | cwm.Error):
            raise ProtocolError(
                f"Can only send message types {{Notify, Message, EosMessage, Error}}. Received "
                f"{msg}"
            )
        if isinstance(msg, cwm.Message) and not self._is_open(msg.stream_id):
            raise ProtocolError(
                f"Message {msg.message_id} cannot be sent. Stream ({msg.stream_id}) is not in an "
                f"open state. Use notify() to open it."
            )
        packed = cwm.Frame.encode(msg)
        with self._changed:
            if threading.current_thread() is not self._thread:
                self._changed.wait_for(lambda: len(self._queue) < QUEUE_MAX or self._is_stopping)
            if isinstance(msg, cwm.Message | cwm.EosMessage) and (self._queue or self.credits <= 0):
                self._queue.append(packed)  # in order: an end does not overtake messages
            else:
                self._send(packed)
            if self._link is not None:
                self._link.wake()

    def pending_sends(self) -> bool:
        """Return whether written data has not been sent."""
        with self._changed:
            return bool(self._queue or (self._link is not None and self._link.out))

    def shutdown(self, error: object = None) -> None:
        """Send everything written, close the connection and stop.

        With an error, stop at once, after sending it if it is a ``connector_wire_messages.Error``.
        """
        with self._changed:
            if error is not None:
                self._queue.clear()
                if isinstance(error, cwm.Error):
                    self._send(cwm.Frame.encode(error))
            self._is_stopping = True
            self._stop_by = time.monotonic() + FLUSH_S_MAX
            self._changed.notify_all()
            if self._link is not None:
                self._link.wake()
        thread = self._thread
        if thread is None:
            self.stopped.set()
        elif thread is not threading.current_thread():
            thread.join(FLUSH_S_MAX)

    # -- for subclasses ---------------------------------------------------------------------------

    def stream_added(self, stream: Stream) -> None:
        """Handle a stream that was announced, or that the application has answered."""

    def stream_removed(self, stream: Stream) -> None:
        """Handle a stream that was removed."""

    def stream_opened(self, stream: Stream) -> None:
        """Handle a stream that may be sent, from after ``stream.point_of_ref`` on.

        That is the id of the last message that the application has (2**64 - 1: none).
        """
        raise NotImplementedError

    def stream_closed(self, stream: Stream) -> None:
        """Handle a stream that must no longer be sent."""
        raise NotImplementedError

    def stream_acked(self, stream: Stream) -> None:
        """Handle a stream whose messages up to ``stream.point_of_ref`` are safe."""
        raise NotImplementedError

    def handle_restarted(self, streams: dict[int, Stream]) -> None:
        """Announce all streams; called after a reconnect."""
        for stream in list(streams.values()):
            self.notify(stream.id, stream.name, stream.point_of_ref)

    def handle_restart(self, msg: cwm.Restart) -> None:
        """Raise for a new connection, at the application's request."""
        if msg.address:
            host, _, port = msg.address.rpartition(":")
            self._address = (host.strip("[]"), int(port))
        raise _RestartError("the application asks for a new connection")

    def handle_invalid_message(self, msg: object) -> None:
        """Handle a message that a worker never sends."""
        raise ProtocolError(f"{msg} should never be received at the connector.")

    def handle_error(self) -> None:
        """Handle an error, in its exception handler, before the connector stops for it."""
        log.error("The connector stops after an error.", exc_info=True)

    # -- the thread -------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            while not self._is_done():
                try:
                    self._exchange(self._produce())
                except OSError as error:
                    if self._is_stopping:
                        break
                    log.warning("%s; connecting again", error)
                    self._lose()
                    self._reconnect()
        except Exception as error:  # noqa: BLE001  # the thread's error boundary; callbacks are the user's
            self.error = error
            self.handle_error()
        finally:
            self._close()

    def _is_done(self) -> bool:
        if not self._is_stopping:
            return False
        return not self.pending_sends() or time.monotonic() > self._stop_by

    def _produce(self) -> float:
        """Read messages from the iterator; return how long to wait for frames."""
        take = getattr(self, "__next__", None)
        if take is None or self._is_stopping or self._link is None:
            return 1.0
        while self.credits > 0 and not self._queue and len(self._link.out) < OUT_BYTES_MAX:
            now = time.monotonic()
            if now < self._next_at:
                return min(1.0, self._next_at - now)
            try:
                message = take()
            except StopIteration:
                self.shutdown()
                return 0.0
            if message is None:
                return IDLE_S
            self._next_at = now + self._delay
            self.write(message)
        return 1.0

    def _exchange(self, timeout_s: float) -> None:
        assert self._link is not None
        for content in self._link.exchange(timeout_s):
            self._take(cwm.Frame.decode(content))

    def _take(self, msg: cwm.AnyMessage) -> None:
        if isinstance(msg, cwm.Ack):
            self._take_ack(msg)
        elif isinstance(msg, cwm.NotifyAck):
            self._take_notify_ack(msg)
        elif isinstance(msg, cwm.Restart):
            self.handle_restart(msg)
        elif isinstance(msg, cwm.Error):
            raise ConnectorError(msg.message)
        else:
            self.handle_invalid_message(msg)

    def _take_ack(self, msg: cwm.Ack) -> None:
        with self._changed:
            self.credits += msg.credits
            while self._queue and self.credits > 0:
                self._send(self._queue.popleft())
            self._changed.notify_all()
        for stream_id, point in msg.acks:
            known = self._streams.get(stream_id)
            if known is not None:
                stream = self._streams[stream_id] = known._replace(point_of_ref=point)
                self.stream_acked(stream)
        refused = list(self._refused.values())
        self._refused.clear()
        for stream in refused:
            self.notify(stream.id, stream.name, stream.point_of_ref)

    def _take_notify_ack(self, msg: cwm.NotifyAck) -> None:
        announced = self._streams.get(msg.stream_id)
        if announced is None:
            log.warning("an answer for stream %s, which was not announced", msg.stream_id)
            return
        point = msg.point_of_ref if msg.notify_success else announced.point_of_ref
        stream = self._streams[announced.id] = announced._replace(
            point_of_ref=point, is_open=msg.notify_success
        )
        self.stream_added(stream)
        if stream.is_open:
            self.stream_opened(stream)
        else:
            log.info("stream %s is in use elsewhere; it is announced again", stream.id)
            self._refused[stream.id] = stream

    # -- the connection ---------------------------------------------------------------------------

    def _open_link(self) -> None:
        link = _Link(*self._address)
        try:
            link.socket.sendall(cwm.Frame.encode(self.hello))
            answer = self._handshake(link)
            if isinstance(answer, cwm.Error):
                raise ConnectorError(answer.message)
            if not isinstance(answer, cwm.Ok):
                raise ProtocolError(f"{answer} is not an answer to HELLO.")
            link.socket.setblocking(False)
        except BaseException:
            link.close()
            raise
        with self._changed:
            self.credits = answer.initial_credits
            self._link = link

    def _handshake(self, link: _Link) -> cwm.AnyMessage:
        deadline = time.monotonic() + CONNECT_S_MAX
        while (rest := deadline - time.monotonic()) > 0:
            for content in link.exchange(rest):
                # nothing else arrives before the client sends more
                return cwm.Frame.decode(content)
        raise TimeoutError(f"no answer to HELLO within {CONNECT_S_MAX:g} s")

    def _announce_all(self) -> None:
        for stream in list(self._streams.values()):
            self.write(cwm.Notify(stream.id, stream.name, stream.point_of_ref))

    def _lose(self) -> None:
        """Close the connection and all streams."""
        with self._changed:
            link = self._link
            self._link = None
            self.credits = 0
            self._queue.clear()
            self._changed.notify_all()
        if link is not None:
            link.close()
        self._refused.clear()
        for stream in list(self._streams.values()):
            if stream.is_open:
                closed = self._streams[stream.id] = stream._replace(is_open=False)
                self.stream_closed(closed)

    def _reconnect(self) -> None:
        while not self._is_stopping:
            try:
                self._open_link()
            except OSError:
                time.sleep(RECONNECT_S)
                continue
            self.handle_restarted(self._streams)
            return

    def _close(self) -> None:
        with self._changed:
            link = self._link
            self._link = None
            self._is_stopping = True
            self._changed.notify_all()
        if link is not None:
            with contextlib.suppress(OSError):
                link.socket.shutdown(socket.SHUT_WR)
            link.close()
        self.stopped.set()

    def _is_open(self, stream_id: int) -> bool:
        stream = self._streams.get(stream_id)
        return stream is not None and stream.is_open

    def _send(self, packed: bytes) -> None:
        if self._link is not None:
            self.credits -= 1
            self._link.out += packed
