"""Real ingress processes and real sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wallaroo.connectors.tcp.source import TCPSourceConfig
from wallaroo.ingress.process import Feeders, Feeding
from wallaroo.protocols.framing import Framing, frame_splitter
from wallaroo.sources.interface import SourceConfig
from wallaroo.spool import Boundary, SpoolReader, folder_of
from wallaroo.steps.kinds import Decoder


def _same(payload: bytes) -> bytes:
    return payload


same: Decoder[bytes] = Decoder(_same, "same")


def tcp(name: str = "In", **options: object) -> TCPSourceConfig:
    return TCPSourceConfig(name, "127.0.0.1", 0, same, **options)  # type: ignore[arg-type]


def wait_until(condition: Callable[[], object], timeout_s: float = 400.0) -> None:
    """Poll until the condition holds; fail after a time."""
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, "not in time"
        time.sleep(0.002)


class Source:
    """What a test sees of a source: its spool and its port."""

    def __init__(self, root: Path, name: str, framing: Framing):
        self.reader = SpoolReader(folder_of(root, name))
        self.framing = framing

    def payloads(self) -> list[bytes]:
        """Everything published so far."""
        chunks = self.reader.chunks(Boundary(), self.reader.head().position)
        return [
            payload
            for chunk in chunks
            if chunk.events  # the others state closed connections
            for payload in frame_splitter(self.framing)(chunk.frames)
        ]

    def wait_for(self, events: int) -> list[bytes]:
        """Wait for that many events, and be sure that there are no more."""
        wait_until(lambda: self.reader.head().position.events >= events)
        return self.payloads()


class Running:
    """Feeders started by a test, their log, and connections to them."""

    def __init__(self, root: Path):
        self.root, self.feeders, self.log = root, Feeders(), list[str]()

    def start(self, *sources: SourceConfig, **options: object) -> None:
        feeding = Feeding(log=self.log.append, **options)  # type: ignore[arg-type]
        self.feeders.start(sources, self.root, feeding)

    def connect(self, name: str = "In") -> socket.socket:
        return socket.create_connection(self.feeders.addresses[name], timeout=400)

    def source(self, name: str = "In", framing: Framing = Framing()) -> Source:  # noqa: B008  # frozen
        return Source(self.root, name, framing)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    run = Running(tmp_path)
    yield run
    run.feeders.stop()
