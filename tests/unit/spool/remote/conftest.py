"""Spools that are served over the network, and a network that breaks when it is asked to."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ingress.conftest import running as running  # a fixture
from wallaroo.ingress.process import Feeders, Feeding
from wallaroo.spool import Boundary, SpoolReader, folder_of
from wallaroo.spool.format import Chunk
from wallaroo.spool.remote import link as remote_module
from wallaroo.spool.remote.client import RemoteSpool
from wallaroo.spool.writer import SpoolWriter

NEVER = 1 << 62


class Served:
    """A range server and the root that it serves."""

    def __init__(self, root: Path):
        self.root, self.feeders, self.log = root, Feeders(), list[str]()
        self.feeders.start([], root, Feeding(log=self.log.append, serve_on="127.0.0.1"))
        assert self.feeders.range_address is not None
        self.address, self.secret = self.feeders.range_address, self.feeders.range_secret
        self._sources = 0

    def new_source(self) -> str:
        """Name a source that no test has used."""
        self._sources += 1
        return f"source {self._sources}"

    def fill(
        self, sizes: Sequence[int], segment_bytes_max: int = 1 << 26
    ) -> tuple[str, list[Boundary]]:
        """Write one chunk per size; return the source's name and all boundaries."""
        source = self.new_source()
        writer = SpoolWriter(
            self.folder(source), is_durable=False, segment_bytes_max=segment_bytes_max
        )
        boundaries = [writer.position]
        for number, size in enumerate(sizes):
            writer.append(
                bytes([number % 251]) * size,
                size,
                receipt_ns=number,
                connection=7,
                resume=b"%d" % number,
            )
            boundaries.append(writer.position)
        writer.publish()
        writer.close()
        return source, boundaries

    def folder(self, source: str) -> Path:
        return folder_of(self.root, source)

    def local(self, source: str) -> SpoolReader:
        return SpoolReader(self.folder(source))

    def remote(
        self, source: str, address: tuple[str, int] | None = None, **limits: Any
    ) -> RemoteSpool:
        return RemoteSpool(address or self.address, self.secret, source, **limits)

    def both(
        self, source: str, start: Boundary, end: Boundary, **limits: Any
    ) -> tuple[list[Chunk], list[Chunk]]:
        remote = self.remote(source, **limits)
        return list(self.local(source).chunks(start, end)), list(remote.chunks(start, end))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served"))
    yield served
    served.feeders.stop()


@pytest.fixture(autouse=True)
def no_connection_is_left() -> Iterator[None]:
    yield
    while remote_module._idle:
        remote_module._idle.popitem()[1].close()


class Proxy:
    """Between readers and a server; cuts connections after so many bytes of the server's, in
    order of connections.
    """

    def __init__(self, target: tuple[str, int], cuts: Sequence[int] = (), cuts_all_at: int = NEVER):
        self._target, self._cuts, self._cuts_all_at = target, list(cuts), cuts_all_at
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = ("127.0.0.1", self._listener.getsockname()[1])
        self.connections = 0
        self.seen = bytearray()  # what readers sent
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for sock in (client, server):  # else small pieces wait for an acknowledgement
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections += 1
                self._open += [client, server]
                cut = self._cuts.pop(0) if self._cuts else self._cuts_all_at
                threading.Thread(
                    target=_pump, args=(client, server, NEVER, self.seen), daemon=True
                ).start()
                threading.Thread(target=_pump, args=(server, client, cut), daemon=True).start()

    def break_all(self) -> None:
        """Break every connection that is open."""
        while self._open:
            _shut(self._open.pop())

    def close(self) -> None:
        """Listen no more."""
        _shut(self._listener)
        self._listener.close()
        self.break_all()


def _pump(
    source: socket.socket, target: socket.socket, count: int, seen: bytearray | None = None
) -> None:
    with contextlib.suppress(OSError):
        while count and (content := source.recv(min(65536, count))):
            if seen is not None:
                seen += content
            target.sendall(content)
            count -= len(content)
    _shut(source)
    _shut(target)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


class Impostor:
    """Says prepared words to each client, whatever that says."""

    def __init__(self, *words: bytes):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = ("127.0.0.1", self._listener.getsockname()[1])
        self._words = words
        threading.Thread(target=self._speak, daemon=True).start()

    def _speak(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                for word in self._words:
                    client.sendall(word)
                    client.recv(4096)
                client.close()

    def close(self) -> None:
        _shut(self._listener)
        self._listener.close()
