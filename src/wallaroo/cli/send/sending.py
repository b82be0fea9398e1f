"""A sender of frames to an application, from files, lines or numbers.

It sends as fast as the application reads, or by a schedule.

Where it runs: a process or thread of its own, in ``wallaroo send``, in demos and in tests.  Message
boundaries are found once; sending then cuts large slices and does no work per message.  Sending
ends when the other side has read everything and closed its end: only then is it certain that
nothing was refused, and the time is measured.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from wallaroo.errors import PeerError
from wallaroo.network.tls_sockets import Address
from wallaroo.protocols.framing import FrameError, Framing, frame_splitter, framer
from wallaroo.protocols.lines import split_lines

SLICE_BYTES = 256 * 1024  # per send, if no batch size is given
TICK_S = 0.01  # between sends, if a rate and no batch size is given
NUMBERS_PER_BLOCK = 100_000
CONNECT_RETRY_S = 0.1
PAYLOAD_BYTES_MAX = 1 << 30
U32 = Framing(max_size=PAYLOAD_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class Messages:
    """Bytes as sent over the wire, with the end of each message."""

    content: bytes
    ends: array[int]


Blocks = Callable[[], Iterable[Messages]]  # called again for each repetition


def of_frames(content: bytes, framing: Framing = U32) -> Messages:
    """Return framed messages.  Raises PeerError if the content ends with an incomplete frame."""
    try:
        payloads = frame_splitter(framing)(content)
    except FrameError as error:
        raise PeerError(
            f"byte {error.end}: {error}. Is this a file of frames with this header?"
        ) from None
    return _joined(content, framing.overhead, payloads)


def of_lines(content: bytes, *, keeps_empty: bool = False, framing: Framing = U32) -> Messages:
    r"""Frame each line, without its ``\n`` or ``\r\n``; leave out empty lines unless kept."""
    lines = split_lines(content)
    return of_payloads(lines if keeps_empty else [line for line in lines if line], framing)


def of_payloads(payloads: Sequence[bytes], framing: Framing = U32) -> Messages:
    return _joined(b"".join(map(framer(framing), payloads)), framing.overhead, payloads)


def of_numbers(last: int, framing: Framing = U32) -> Iterator[Messages]:
    """Yield frames of the decimal numbers 1 to ``last``, as text, block by block."""
    for first in range(1, last + 1, NUMBERS_PER_BLOCK):
        yield of_payloads(
            [b"%d" % number for number in range(first, min(last + 1, first + NUMBERS_PER_BLOCK))],
            framing,
        )


def of_bytes(content: bytes) -> Messages:
    """Return bytes unchanged, in slices that count as messages, as the boundaries are unknown."""
    ends = array("Q", range(SLICE_BYTES, len(content), SLICE_BYTES))
    if content:
        ends.append(len(content))
    return Messages(content, ends)


def _joined(content: bytes, overhead: int, payloads: Sequence[bytes]) -> Messages:
    return Messages(
        content, array("Q", itertools.accumulate([len(payload) + overhead for payload in payloads]))
    )


@dataclass(frozen=True, slots=True)
class SendOptions:
    """Options of a sender; ``repeat`` 0: forever; ``rate``: messages/s over all targets."""

    rate: float | None = None
    repeat: int = 1
    count: int | None = None
    batch_size: int | None = None
    duration_s: float | None = None
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 10.0  # for the other side to read everything and close


@dataclass(frozen=True, slots=True)
class Sent:
    """Amounts sent, and the seconds until all of it was read.

    ``lag_s`` is the largest delay of a batch.
    """

    messages: int
    size_bytes: int
    seconds: float
    lag_s: float
    is_read: bool = True  # whether the other side is known to have read everything


def slices(blocks: Blocks, options: SendOptions) -> Iterator[tuple[memoryview, int]]:
    """Yield slices to send, each with its number of messages."""
    left = options.count
    for _ in range(options.repeat) if options.repeat else itertools.repeat(None):
        is_empty = True
        for block in blocks():
            view = memoryview(block.content)
            total = len(block.ends)
            done = 0
            start = 0
            size = _batch_size(block, options) if total else 0
            while done < total and left != 0:
                number = min(size, total - done) if left is None else min(size, total - done, left)
                end = block.ends[done + number - 1]
                yield view[start:end], number
                is_empty = False
                start = end
                done = done + number
                left = None if left is None else left - number
        if left == 0 or is_empty:
            return


def _batch_size(block: Messages, options: SendOptions) -> int:
    if options.batch_size:
        return options.batch_size
    if options.rate:
        return max(1, round(options.rate * TICK_S))
    return max(1, SLICE_BYTES * len(block.ends) // max(1, len(block.content)))


def connect(target: Address, timeout_s: float) -> socket.socket:
    """Connect, retrying until the timeout.  Raises PeerError then."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            sock = socket.create_connection(target, timeout=max(0.1, timeout_s))
        except OSError as error:
            if time.monotonic() >= until:
                raise PeerError(
                    f"cannot connect to {target[0]}:{target[1]} within {timeout_s:g} s: "
                    f"{error.strerror or error}. "
                    "Is the application running, and does it listen there? "
                    "`wallaroo send --connect-timeout SECONDS` waits longer."
                ) from None
            time.sleep(CONNECT_RETRY_S)
        else:
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock


class Channel(Protocol):
    """Channel to a receiver; its calls raise PeerError if that refuses."""

    def put(self, part: memoryview, sent: int) -> None:
        """Send one slice, after ``sent`` messages."""

    def wait(self, seconds: float) -> None:
        """Wait until the next slice is due."""

    def finish(self, sent: int, timeout_s: float) -> bool:
        """Return whether everything is known to be read, after waiting for a limited time."""

    def drop(self) -> None:
        """Give up on messages that are not known to be read."""


class Connections:
    """Connections to targets; slices go to them in turn."""

    def __init__(self, sockets: Sequence[socket.socket], targets: Sequence[Address]):
        self._ends = list(zip(sockets, targets, strict=True))
        self._turns = itertools.cycle(self._ends)

    def put(self, part: memoryview, sent: int) -> None:
        sock, target = next(self._turns)
        try:
            sock.sendall(part)
        except OSError as error:
            raise _refused(target, sent, error) from None

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def finish(self, sent: int, timeout_s: float) -> bool:
        """Return whether all targets read everything and closed; raise if one reset."""
        until = time.monotonic() + timeout_s
        for sock, target in self._ends:
            try:
                sock.shutdown(socket.SHUT_WR)
                while True:
                    sock.settimeout(max(0.001, until - time.monotonic()))
                    if not sock.recv(4096):
                        break
            except TimeoutError:
                return False
            except OSError as error:
                raise _refused(target, sent, error) from None
        return True

    def drop(self) -> None:
        """Do nothing: closing the sockets does."""


# frozen
def send(targets: Sequence[Address], blocks: Blocks, options: SendOptions = SendOptions()) -> Sent:
    """Send all messages, batch by batch to one target after the other.

    Late batches are sent, never skipped.  Ctrl-C ends it early and is not an error.  Raises
    PeerError if a target is or becomes unavailable, or closes the connection because it refuses a
    message.
    """
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(connect(target, options.connect_timeout_s)) for target in targets
        ]
        return send_over(Connections(sockets, targets), blocks, options)


def send_over(channel: Channel, blocks: Blocks, options: SendOptions) -> Sent:
    """Send all messages over a channel, like `send`."""
    began = time.monotonic()
    until = began + options.duration_s if options.duration_s is not None else float("inf")
    messages = 0
    size_bytes = 0
    lag_s = 0.0
    is_read = False
    try:
        for part, number in slices(blocks, options):
            if options.rate:
                due = began + messages / options.rate
                early_s = min(due, until) - time.monotonic()
                if early_s > 0:
                    channel.wait(early_s)
                lag_s = max(lag_s, -early_s)
            if time.monotonic() >= until:
                break
            channel.put(part, messages)
            messages += number
            size_bytes += len(part)
        is_read = channel.finish(messages, options.read_timeout_s)
    except KeyboardInterrupt:
        pass
    finally:
        if not is_read:
            channel.drop()
    return Sent(messages, size_bytes, time.monotonic() - began, lag_s, is_read)


def _refused(target: Address, messages: int, error: OSError) -> PeerError:
    return PeerError(
        f"{target[0]}:{target[1]} closed the connection after at most {messages:,} messages "
        f"({error.strerror}): it ended, or it refused a message and read none after it. Its log "
        f"says which one and why."
    )
