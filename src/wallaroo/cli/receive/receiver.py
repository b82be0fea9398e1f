"""A TCP receiver that counts, prints, keeps or saves an application's output.

Where it runs: a thread of its own, in `wallaroo receive`, in demos and in tests.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from wallaroo.connectors.tcp.pipe import GREETING, OFFSET
from wallaroo.errors import PeerError, WallarooError
from wallaroo.network.reachability import parse_address

CHUNK_BYTES = 256 * 1024  # per recv
ACK_S = 0.05  # a resuming receiver makes its file durable and reports it at most this often
FORMS = ("raw", "frames", "lines")

Cutter = Callable[[bytearray], list[bytes]]  # removes whole messages from the front of the buffer


def line_cutter() -> Cutter:
    """Return a cutter at newlines; the newline is not part of the message."""

    def cut(buffer: bytearray) -> list[bytes]:
        end = buffer.rfind(b"\n") + 1
        if not end:
            return []
        lines = bytes(buffer[: end - 1]).split(b"\n")
        del buffer[:end]
        return lines

    return cut


def frame_cutter(header_length: int, length_fmt: str) -> Cutter:
    """Return a cutter of frames whose header, dropped, has the length ``length_fmt``."""
    header = struct.Struct(length_fmt)
    if header.size != header_length:
        raise ValueError(
            f"length_fmt {length_fmt!r} reads {header.size} bytes, the header has {header_length}."
        )
    unpack_from = header.unpack_from

    def cut(buffer: bytearray) -> list[bytes]:
        whole = bytes(buffer)
        place = 0
        end = len(buffer)
        messages = []
        while place + header_length <= end:
            begin = place + header_length
            after = begin + unpack_from(whole, place)[0]
            if after > end:
                break
            messages.append(whole[begin:after])
            place = after
        del buffer[:place]
        return messages

    return cut


@dataclass(slots=True)
class OutputTotals:
    """Totals of the data received so far, over all connections."""

    bytes: int = 0
    messages: int = 0  # frames or lines; stays 0 in raw form
    connections: int = 0
    cut_off: int = 0  # connections that ended inside a message
    first_ns: int = 0
    last_ns: int = 0


@dataclass(slots=True)
class _Peer:
    sock: socket.socket
    buffer: bytearray = field(default_factory=bytearray)


class KeptOutput:
    """Received data, written to ``out`` and kept if requested."""

    def __init__(self, out: BinaryIO | None, is_keeping: bool):
        self.payloads: list[bytes] = []
        self.timestamps: list[tuple[int, int]] = []
        self._out = out
        self._is_keeping = is_keeping

    def take(self, pieces: Sequence[bytes | memoryview], end: bytes) -> None:
        """Accept messages, or raw bytes; write ``end`` after each."""
        if self._is_keeping:
            self.payloads.extend(map(bytes, pieces))
        if self._out is not None and pieces:
            self._out.write(end.join(pieces) + end)

    def note(self, now_ns: int, count: int) -> None:
        """Note the time at which ``count`` messages or bytes had arrived."""
        if self._is_keeping:
            self.timestamps.append((now_ns, count))

    def save(self) -> None:
        """Flush and fsync everything written."""
        if self._out is not None:
            self._out.flush()
            os.fsync(self._out.fileno())


class ResumePoint:
    """Number of bytes received, and of those on disk and reported."""

    def __init__(self, kept: KeptOutput, has: int):
        self.has = has
        self._kept = kept
        self._acked = has
        self._ack_at = 0.0

    @property
    def is_behind(self) -> bool:
        """Return whether there are bytes that have not been reported."""
        return self._acked < self.has

    @property
    def is_due(self) -> bool:
        """Return whether to report them now."""
        return self.is_behind and time.monotonic() >= self._ack_at

    def save(self) -> bytes:
        """Make everything durable; return the offset to report to senders."""
        self._kept.save()
        self._acked = self.has
        self._ack_at = time.monotonic() + ACK_S
        return OFFSET.pack(self.has)


class Receiver:
    """A receiver of any number of connections.

    ``form`` is ``raw`` (bytes as they come), ``frames`` (a header, then the payload) or ``lines``.
    Messages and raw chunks are written to ``out`` (messages each with a newline) and, with
    ``is_keeping``, kept in ``payloads``; ``timestamps`` has one (wall clock ns, messages or raw
    bytes so far) per chunk.  With ``is_resuming`` (raw only) it reports to the sender how many
    bytes it has: at every connection and after it made them durable in ``out``; ``resume_at`` is
    the number it already had.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        form: str = "raw",
        header_length: int = 4,
        length_fmt: str = ">I",
        out: BinaryIO | None = None,
        is_keeping: bool = True,
        is_resuming: bool = False,
        resume_at: int = 0,
    ):
        if is_resuming and form != "raw":
            raise ValueError("resuming counts raw bytes; use it with form='raw'.")
        cutters = {
            "raw": None,
            "lines": line_cutter(),
            "frames": frame_cutter(header_length, length_fmt),
        }
        self._cut = cutters[form]
        self._kept = KeptOutput(out, is_keeping)
        self._resume = ResumePoint(self._kept, resume_at) if is_resuming else None
        self.totals = OutputTotals()
        self.error: OSError | None = None  # from writing to ``out``; the receiver has stopped
        self._progress = threading.Condition()
        self._is_closing = False
        self._selector = selectors.DefaultSelector()
        self._listener = self._listening(host, port)
        self._wake, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)

    @property
    def payloads(self) -> list[bytes]:
        """Return the messages or chunks that were kept."""
        return self._kept.payloads

    @property
    def timestamps(self) -> list[tuple[int, int]]:
        """Return a pair of wall clock ns and count so far for each chunk."""
        return self._kept.timestamps

    @property
    def address(self) -> tuple[str, int]:
        """Return the host and port it listens on."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    @property
    def count(self) -> int:
        """Return the number of messages so far, of bytes in raw form."""
        return self.totals.messages if self._cut else self.totals.bytes

    def start(self) -> Receiver:
        self._thread.start()
        return self

    def wait_for(self, count: int, seconds: float) -> bool:
        """Wait for ``count`` messages (bytes in raw form); return whether they arrived."""
        deadline = time.monotonic() + seconds
        with self._progress:
            while (
                self.count < count
                and self.error is None
                and (rest := deadline - time.monotonic()) > 0
            ):
                self._progress.wait(rest)
            return self.count >= count

    def close(self) -> None:
        """Stop; drop open connections."""
        self._is_closing = True
        self._waker.send(b"x")
        if self._thread.is_alive():
            self._thread.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Peer):
                key.data.sock.close()
        self._selector.close()
        for sock in (self._listener, self._wake, self._waker):
            sock.close()

    def __enter__(self) -> Receiver:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- the thread

    @staticmethod
    def _listening(host: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            raise PeerError(
                f"Cannot listen on {host}:{port}: {error.strerror or error}. "
                f"Choose another port, or end the program that uses it."
            ) from error

    def _run(self) -> None:
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        scratch = bytearray(CHUNK_BYTES)
        try:
            while not self._is_closing:
                is_behind = self._resume is not None and self._resume.is_behind
                for key, _ in self._selector.select(ACK_S if is_behind else None):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif (
                        isinstance(key.data, _Peer) and key.data.sock.fileno() >= 0
                    ):  # not replaced by a newer one a moment ago
                        self._receive(key.data, scratch)
                if self._resume is not None and self._resume.is_due:
                    self._report(self._resume.save())
        except OSError as error:
            with self._progress:
                self.error = error
                self._progress.notify_all()

    def _peers(self) -> list[_Peer]:
        return [
            key.data for key in self._selector.get_map().values() if isinstance(key.data, _Peer)
        ]

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        sock.setblocking(False)
        if self._resume is not None:
            # the sender resumes after the bytes received; bytes in flight are sent again
            for older in self._peers():
                self._drop(older)
            sock.send(GREETING + self._resume.save())
        self.totals.connections += 1
        self._selector.register(sock, selectors.EVENT_READ, _Peer(sock))

    def _receive(self, peer: _Peer, scratch: bytearray) -> None:
        try:
            size = peer.sock.recv_into(scratch)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if not size:
            self._drop(peer)
            return
        now = time.time_ns()
        messages = 0
        if self._cut is None:
            if self._resume is not None:
                self._resume.has += size
            self._kept.take([memoryview(scratch)[:size]], b"")
        else:
            peer.buffer += memoryview(scratch)[:size]
            cut = self._cut(peer.buffer)
            messages = len(cut)
            self._kept.take(cut, b"\n")
        with self._progress:
            totals = self.totals
            totals.bytes += size
            totals.messages += messages
            totals.first_ns = totals.first_ns or now
            totals.last_ns = now
            self._kept.note(now, self.count)
            self._progress.notify_all()

    def _drop(self, peer: _Peer) -> None:
        self._selector.unregister(peer.sock)
        peer.sock.close()
        if peer.buffer:
            self.totals.cut_off += 1

    def _report(self, offset: bytes) -> None:
        for peer in self._peers():
            with contextlib.suppress(OSError):  # a dead connection is noticed by its next read
                peer.sock.send(offset)


def listen_address(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``.  Raises WallarooError."""
    address = parse_address(text)
    if address is None:
        raise WallarooError(
            f"{text!r} is not of the form HOST:PORT. Write for example 127.0.0.1:7002."
        )
    return address
