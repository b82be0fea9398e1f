"""Printed lines of this host's workers, on the driver's terminal.

Where it runs: driver, in a thread of its own.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import threading
from pathlib import Path

from wallaroo.processes import console
from wallaroo.processes.console import Entry
from wallaroo.runtime.user_output.settings import STRUCTURED

READ_BYTES = 64 * 1024
LINE_BYTES_MAX = 1024 * 1024  # a longer line is split


class Collector:
    """A listener at a Unix socket in ``folder``.

    ``address`` is empty if it cannot listen there.
    """

    def __init__(self, folder: Path) -> None:
        self.address = ""
        self._selector = selectors.DefaultSelector()
        self._halves: dict[socket.socket, bytes] = {}
        self._numbers: dict[socket.socket, int] = {}
        self._workers: dict[int, int] = {}  # by process: a worker has several connections
        self._listener = socket.socket(socket.AF_UNIX)
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._collect, name="wallaroo-output", daemon=True)
        try:
            path = str(folder / "output")
            self._listener.bind(path)
            self._listener.listen(128)
        except OSError:  # a folder with a long name: workers write to their own stderr
            return
        self.address = path

    def start(self) -> None:
        """Print the lines that workers send, from now on."""
        if not self.address:
            return
        for part in (self._listener, self._wake):
            part.setblocking(False)
            self._selector.register(part, selectors.EVENT_READ)
        self._thread.start()

    def close(self) -> None:
        """Print the lines sent so far, then stop listening."""
        self._woken.close()
        if self._thread.ident is not None:
            self._thread.join()
            while self._accept():
                pass
        for connection in list(self._halves):
            while connection in self._halves and self._read(connection):
                pass
            if connection in self._halves:
                self._drop(connection)
        for part in (self._listener, self._wake):
            part.close()
        self._selector.close()

    def _collect(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._wake:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._read(key.fileobj)

    def _accept(self) -> bool:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # nothing waits, or it is already gone
            return False
        connection.setblocking(False)
        pid = _pid_of(connection)
        self._numbers[connection] = self._workers.setdefault(pid, len(self._workers) + 1)
        self._halves[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ)
        return True

    def _read(self, connection: socket.socket) -> bool:
        """Print the lines that are available; return whether there were any."""
        try:
            received = connection.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            received = b""
        if not received:
            self._drop(connection)
            return False
        *lines, half = (self._halves[connection] + received).split(b"\n")
        if len(half) > LINE_BYTES_MAX:
            lines.append(half)
            half = b""
        self._halves[connection] = half
        self._print(connection, lines)
        return True

    def _drop(self, connection: socket.socket) -> None:
        half = self._halves.pop(connection)
        if half:
            self._print(connection, [half])
        del self._numbers[connection]
        self._selector.unregister(connection)
        connection.close()

    def _print(self, connection: socket.socket, lines: list[bytes]) -> None:
        for line in lines:
            console.write(_entry(line, self._numbers[connection]))


def _pid_of(connection: socket.socket) -> int:
    """Return the process that connected, or a unique number if it is unknown."""
    if not hasattr(socket, "SO_PEERCRED"):
        return -connection.fileno()
    size = struct.calcsize("3i")
    pid, _, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return int(pid)


def _entry(line: bytes, worker: int) -> Entry:
    if line.startswith(STRUCTURED):
        return Entry(**json.loads(line[len(STRUCTURED) :]), worker=worker)
    return Entry(line.decode(errors="backslashreplace"), worker=worker)
