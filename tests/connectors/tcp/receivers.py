"""A receiver as tests need it: it writes back, holds still until it is released, serves connections
one after another or in parallel, and keeps the order in which it processed what arrived.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from pathlib import Path
from types import TracebackType

RECEIVE_BUFFER = 32 * 1024  # small: what is not read stays with the sender
CHUNK_BYTES = 4096
HEADER = struct.Struct(">I")
NUMBER = struct.Struct(">Q")

ESTABLISHED = "01"  # in /proc/net/tcp


class HeldReceiver:
    """Takes frames whose payload begins with a number; reads ``free_bytes`` and then holds still
    until `release`.

    ``answers``: it writes a line for every frame, and drops a connection it cannot write to, as a
    plain server loop does: what it had not read of that connection is lost.  With ``reads_on`` it
    reads such a connection to its end.
    """

    def __init__(
        self,
        *,
        answers: bool = True,
        reads_on: bool = False,
        is_parallel: bool = False,
        free_bytes: int = 0,
    ):
        self.numbers: list[int] = []  # in order of processing, over all connections
        self.connections = 0
        self._answers = answers
        self._reads_on = reads_on
        self._is_parallel = is_parallel
        self._free = free_bytes
        self.holds = threading.Event()  # set once it has read what it was to read
        self._go = threading.Event()
        self._progress = threading.Condition()
        self._is_closing = False
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(16)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def last(self) -> int:
        """The last number processed; -1 before the first."""
        with self._progress:
            return self.numbers[-1] if self.numbers else -1

    def release(self) -> None:
        """Read on, for good."""
        self._go.set()

    def __enter__(self) -> HeldReceiver:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closing = True
        self._go.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._is_closing:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self._is_parallel:
                self._start(self._serve, peer)
            else:
                self._serve(peer)

    def _serve(self, peer: socket.socket) -> None:
        rest = bytearray()
        with peer, contextlib.suppress(OSError):
            while True:
                if self._free <= 0:
                    self.holds.set()
                    self._go.wait()
                chunk = peer.recv(CHUNK_BYTES)
                if not chunk:
                    return
                self._free -= len(chunk)
                rest += chunk
                for number in self._cut(rest):
                    with self._progress:
                        self.numbers.append(number)
                        self._progress.notify_all()
                    if self._answers:
                        self._answer(peer)

    def _answer(self, peer: socket.socket) -> None:
        try:
            peer.sendall(b"ok\n")
        except OSError:
            if not self._reads_on:
                raise

    @staticmethod
    def _cut(rest: bytearray) -> list[int]:
        numbers, place = [], 0
        while len(rest) >= place + 4 and len(rest) >= place + 4 + (
            size := HEADER.unpack_from(rest, place)[0]
        ):
            numbers.append(NUMBER.unpack_from(rest, place + 4)[0])
            place += 4 + size
        del rest[:place]
        return numbers


def answers_under_way(port: int) -> int:
    """Return how many bytes of a receiver's answers are not read: on their way, or at the
    sender.
    """
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local, remote = (int(fields[place].split(":")[1], 16) for place in (1, 2))
        unsent, unread = (int(queue, 16) for queue in fields[4].split(":"))
        if remote == port:
            found += unread
        elif local == port and fields[3] == ESTABLISHED:
            found += unsent
    return found


def is_in_order(numbers: list[int]) -> bool:
    """Whether nothing is missing or out of order: every number is the one after the last, or a new
    beginning at most one after it (what is sent twice is sent from there on again).
    """
    last = -1
    beginnings = 0
    for number in numbers:
        if number > last + 1:
            return False
        beginnings += number != last + 1
        last = number
    return beginnings <= 1
