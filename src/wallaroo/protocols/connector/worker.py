"""The worker's end of a source connection.

A client's bytes in; messages, answers and errors out.

Where it runs: the ingress; pure.

The invariants of a session:

* A connection is in one of four states, and `_HANDLERS` lists the frames each may get.  Anything
  else is answered with ERROR, and nothing after it is read.
* A frame after the handshake costs the client one credit; sending a message without credits is an
  error. Wallaroo's own client announces streams regardless of credits and does not pay for the end
  of a stream: a NOTIFY may overdraw, and every end of a stream allows one more message.  Credits
  are refilled when they fall to ``refill`` or below, and none are granted while `is_paused`: the
  frames a client may send then are bounded by the credits it already has.
* A client retries a refused stream when it gets an ACK: `beat` sends one if nothing else does.
* A stream has one owner among all connections.  A message of a stream that the connection does not
  own is an error.  Ids of a stream rise; a message whose id was seen before is dropped silently:
  so a client that rewinds too far neither loses nor duplicates anything.
* An ACK is only sent for the ids that `acknowledge` was called with: the host calls it when the
  messages are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from wallaroo.protocols.connector import frames


class State(Enum):
    CONNECTED = auto()  # HELLO is awaited
    STREAMING = auto()
    FAILED = auto()  # ERROR was sent or received: close
    CLOSED = auto()  # RESTART was sent, or the client has disconnected


@dataclass(slots=True)
class Stream:
    """The state of a stream, across connections and runs."""

    name: bytes
    last: int = frames.NO_POINT  # id of the last message accepted; NO_POINT: none yet
    owner: object | None = None  # the session that may send it
    is_ended: bool = False


@dataclass(slots=True)
class Streams:
    """All streams of a source, by id.

    The host restores ``last`` from durable messages.
    """

    by_id: dict[int, Stream] = field(default_factory=dict)

    def claim(self, stream: int, name: bytes, owner: object) -> Stream | None:
        """Let ``owner`` send a stream; None if another connection does, or has its id."""
        claimed = self.by_id.setdefault(stream, Stream(name))
        if claimed.name != name or claimed.owner not in (None, owner):
            return None
        claimed.owner = owner
        claimed.is_ended = False
        return claimed

    def leave(self, owner: object) -> None:
        """Release the streams of a connection that has ended: another one may claim them."""
        for stream in self.by_id.values():
            if stream.owner is owner:
                stream.owner = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A new message for the host to store.

    An empty payload is not an event, but its id counts.
    """

    stream: int
    id: int
    event_time: int
    key: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a stream, acknowledged when all of it is durable."""

    stream: int
    last: int


Event = Taken | Ended


class Credits:
    """The number of frames a client may send; see the module's docstring."""

    def __init__(self, largest: int, refill: int):
        if not 0 <= refill < largest:
            raise ValueError(
                f"refill_credits is {refill}; it has to be below max_credits={largest}"
            )
        self.largest = largest
        self.is_paused = False  # whether credits are held back
        self._refill = refill
        self._left = 0  # below 0: overdrawn by announcements
        self._ends = 0  # ended streams on this connection

    @property
    def are_low(self) -> bool:
        """Return whether to grant the client more."""
        return self._left <= self._refill and not self.is_paused

    def begin(self) -> int:
        """Grant all credits, paused or not: a client cannot begin without; return how many."""
        self._left = self.largest
        return self.largest

    def spend(self, *, is_message: bool) -> bool:
        """Spend one; return False if a message was sent without a credit."""
        if is_message and self._left <= -self._ends:
            return False
        self._left -= 1
        return True

    def give(self) -> int:
        """Grant as many as are now allowed; return how many."""
        given = 0 if self.is_paused else self.largest - self._left
        self._left += given
        return given

    def note_end(self) -> None:
        """Note that a stream has ended, which allows a message more."""
        self._ends += 1


class SourceSession:
    """One connection of a source program; see the module's docstring."""

    def __init__(self, streams: Streams, cookie: bytes, credits_max: int, refill: int):
        self._streams = streams
        self._cookie = cookie
        self._credits = Credits(credits_max, refill)
        self._is_refused = False  # whether the client waits for an ACK to try a stream again
        self._splitter = frames.FrameSplitter()
        self._out: list[bytes] = []
        self._points: dict[int, int] = {}  # to be acknowledged with the next ACK
        self.state = State.CONNECTED
        self.failure = ""  # why the connection failed, for people
        self.program = ""  # the client's name for itself

    def feed(self, data: bytes) -> list[Event]:
        """Accept bytes; return the new events in them.  Never raises: faults are answered."""
        events: list[Event] = []
        try:
            for content in self._splitter.feed(data) if self._is_live else ():
                events += self._take(frames.decode(content))
                if not self._is_live:
                    return events
        except frames.MalformedFrameError as error:
            self._fail(str(error))
        self._refill_low()
        return events

    def pause(self) -> None:
        """Hold credits back until `resume`."""
        self._credits.is_paused = True

    def resume(self) -> None:
        """Grant the credits that were held back."""
        self._credits.is_paused = False
        self._refill_low()

    def _refill_low(self) -> None:
        if self.state is State.STREAMING and self._credits.are_low:
            self._answer()

    @property
    def _is_live(self) -> bool:
        return self.state in (State.CONNECTED, State.STREAMING)

    def acknowledge(self, stream: int, last: int) -> None:
        """Note that messages of a stream up to this id are durable; the next `flush` reports it."""
        known = self._streams.by_id.get(stream)
        if known is not None and known.owner is self and self.state is State.STREAMING:
            self._points[stream] = last

    def flush(self) -> None:
        """Send the acknowledgements since the last ACK."""
        if self._points and self.state is State.STREAMING:
            self._answer()

    def beat(self) -> None:
        """Send an ACK to a client whose stream was refused; to be called once in a while."""
        if self._is_refused and self.state is State.STREAMING:
            self._answer()

    def restart(self, address: bytes = b"") -> None:
        """Ask the client to connect again, elsewhere if an address is given, and to rewind."""
        if self.state is State.STREAMING:
            self._send(frames.Restart(address))
        self.state = State.CLOSED
        self._streams.leave(self)

    def close(self) -> None:
        """Note that the client has disconnected."""
        if self.state is not State.FAILED:
            self.state = State.CLOSED
        self._streams.leave(self)

    def data_to_send(self) -> bytes:
        """Return, once, the bytes to send."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    # -- one frame --------------------------------------------------------------------------------

    def _take(self, frame: frames.Frame) -> Iterator[Event]:
        handler = _HANDLERS.get((self.state, type(frame)))
        if handler is None:
            wanted = "HELLO first" if self.state is State.CONNECTED else "not a worker's frame"
            self._fail(f"unexpected {type(frame).__name__} frame: {wanted}")
            return
        is_message = type(frame) is frames.Message
        if self.state is State.STREAMING and not self._credits.spend(is_message=is_message):
            self._fail("a message was sent without a credit")
            return
        yield from handler(self, frame)

    def _hello(self, frame: frames.Hello) -> Iterator[Event]:
        if frame.version not in frames.VERSIONS:
            self._fail(f"unknown protocol version {frame.version.decode('utf-8', 'replace')!r}")
        elif frame.cookie != self._cookie:
            self._fail("the cookie is not this source's")
        else:
            self.program = f"{_text(frame.program)} {_text(frame.instance)}".strip()
            self.state = State.STREAMING
            self._send(frames.Ok(self._credits.begin()))
        yield from ()

    def _notify(self, frame: frames.Notify) -> Iterator[Event]:
        stream = self._streams.claim(frame.stream, frame.name, self)
        if stream is None:
            self._is_refused = True
            self._send(frames.NotifyAck(False, frame.stream, frame.point))
        else:
            self._send(frames.NotifyAck(True, frame.stream, stream.last))
        yield from ()

    def _message(self, frame: frames.Message) -> Iterator[Event]:
        stream = self._open_stream(frame.stream)
        if stream is None:
            self._fail(f"a message of stream {frame.stream}, which is not open on this connection")
            return
        if frame.id == frames.NO_POINT:
            self._fail(f"message id {frames.NO_POINT} is reserved")
            return
        if stream.last != frames.NO_POINT and frame.id <= stream.last:
            return
        stream.last = frame.id
        yield Taken(frame.stream, frame.id, frame.event_time, frame.key, frame.payload)

    def _end_of_stream(self, frame: frames.EndOfStream) -> Iterator[Event]:
        stream = self._open_stream(frame.stream)
        if stream is None:
            self._fail(f"the end of stream {frame.stream}, which is not open on this connection")
            return
        stream.is_ended = True
        self._credits.note_end()
        yield Ended(frame.stream, stream.last)

    def _open_stream(self, number: int) -> Stream | None:
        """Return a stream that this connection has announced and not ended."""
        stream = self._streams.by_id.get(number)
        is_open = stream is not None and stream.owner is self and not stream.is_ended
        return stream if is_open else None

    def _client_failed(self, frame: frames.Error) -> Iterator[Event]:
        self.state = State.FAILED
        self.failure = f"the client reports: {_text(frame.reason)}"
        self._streams.leave(self)
        yield from ()

    # -- answers ----------------------------------------------------------------------------------

    def _answer(self) -> None:
        given = self._credits.give()
        self._is_refused = False
        self._send(frames.Ack(given, tuple(self._points.items())))
        for stream, point in self._points.items():
            known = self._streams.by_id[stream]
            if known.is_ended and known.last == point:
                known.owner = None  # any connection may open it again
        self._points.clear()

    def _fail(self, reason: str) -> None:
        self._send(frames.Error(reason.encode()))
        self.failure = reason
        self.state = State.FAILED
        self._streams.leave(self)

    def _send(self, frame: frames.Frame) -> None:
        self._out.append(frames.encode(frame))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


_Handler = Callable[..., Iterator[Event]]
_HANDLERS: dict[tuple[State, type], _Handler] = {
    (State.CONNECTED, frames.Hello): SourceSession._hello,
    (State.CONNECTED, frames.Error): SourceSession._client_failed,
    (State.STREAMING, frames.Notify): SourceSession._notify,
    (State.STREAMING, frames.Message): SourceSession._message,
    (State.STREAMING, frames.EndOfStream): SourceSession._end_of_stream,
    (State.STREAMING, frames.Error): SourceSession._client_failed,
}
