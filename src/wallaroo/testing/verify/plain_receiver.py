"""A plain TCP receiver that behaves badly, and never loses output.

Where it runs: the verifier, a thread per connection.

Invariant: whole lines of each connection are written out, in order; an incomplete line at the end
of a connection is dropped, as the next connection begins at the beginning of an output.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import BinaryIO

BEHAVIOURS = (
    "silent",  # reads, and writes nothing
    "talking",  # answers everything it reads
    "slow",  # reads little at a time, with pauses, through a small buffer
    "stalling",  # occasionally reads nothing for seconds
    "half-closing",  # closes its side immediately and continues to read
    "dying",  # resets its connection every few seconds
)
SLOW_BYTES = 4096
SLOW_S = 0.005
BUFFER_BYTES = 16 * 1024
STALL_EVERY_BYTES = 1 << 20
STALL_S = 4.0
DIE_EVERY_S = 3.0
# it dies after receiving nothing for this long: bytes that its kernel has acknowledged and it has
# not read would be lost, and no sender of plain TCP could know
LULL_S = 0.05
RESET = struct.pack("ii", 1, 0)  # for SO_LINGER: closes without waiting


class PlainReceiver:
    """A listener within a ``with`` block, serving connections in parallel."""

    def __init__(self, out: BinaryIO, behaviour: str, die_every_s: float = DIE_EVERY_S):
        self.count = 0  # bytes of whole lines
        self._out = out
        self._behaviour = behaviour
        self._die_every_s = die_every_s
        self._writing = threading.Lock()
        self._listener = socket.socket()
        self._connections: list[socket.socket] = []
        self.deaths = 0

    @property
    def address(self) -> tuple[str, int]:
        """Return the host and port it listens on."""
        host, port = self._listener.getsockname()
        return host, port

    def __enter__(self) -> PlainReceiver:
        if self._behaviour in ("slow", "stalling"):
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        threading.Thread(target=self._accept, name="plain receiver", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        for one in (self._listener, *self._connections):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed at the end
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        if self._behaviour == "dying":
            self._serve_until_death(connection)
            return
        rest = b""
        stall_at = STALL_EVERY_BYTES
        received = 0
        with contextlib.suppress(OSError):
            if self._behaviour == "half-closing":
                connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(SLOW_BYTES if self._behaviour == "slow" else 1 << 16):
                received += len(chunk)
                rest = self._write(rest + chunk)
                if self._behaviour == "talking":
                    # the peer does not read, which does not matter
                    with contextlib.suppress(BlockingIOError):
                        connection.send(b"ok\n", socket.MSG_DONTWAIT)
                elif self._behaviour == "slow":
                    time.sleep(SLOW_S)
                elif self._behaviour == "stalling" and received >= stall_at:
                    stall_at += STALL_EVERY_BYTES
                    time.sleep(STALL_S)
        connection.close()

    def _serve_until_death(self, connection: socket.socket) -> None:
        rest = b""
        dies_at = time.monotonic() + self._die_every_s
        connection.settimeout(LULL_S)
        with contextlib.suppress(OSError):
            while True:
                try:
                    if not (chunk := connection.recv(1 << 16)):
                        break
                except TimeoutError:
                    if time.monotonic() < dies_at:
                        continue
                    self.deaths += 1
                    break
                rest = self._write(rest + chunk)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.close()

    def _write(self, content: bytes) -> bytes:
        """Write the whole lines; return the rest."""
        end = content.rfind(b"\n") + 1
        with self._writing, contextlib.suppress(ValueError):  # the file may be closed at the end
            self._out.write(content[:end])
            self._out.flush()  # it is checked while this receiver still runs
            self.count += end
        return content[end:]
