"""Sources of a user's own, as docs/sources.md writes them: numbers that a file says how many there
are of.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import wallaroo
from wallaroo.errors import PeerError
from wallaroo.sources import At, PollingSource, Push, ReplayableSource

POLLED_MAX = 7


class Numbers(ReplayableSource[str]):
    """Partition ``a`` has the numbers up to what ``folder/a`` says, and so on."""

    def __init__(self, name: str, folder: Path, is_bounded: bool = True):
        super().__init__(name)
        self.folder = folder
        self.is_bounded = is_bounded

    def partitions(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def end(self, partition: str) -> int:
        return int((self.folder / partition).read_text())

    def read(self, partition: str, start: int, end: int) -> Iterable[str]:
        for number in range(start, end):
            yield f"{partition}{number}"

    def is_ended(self) -> bool:
        return self.is_bounded


class Sparse(Numbers):
    """Few offsets have an event."""

    def read(self, partition: str, start: int, end: int) -> Iterable[str]:
        for number in range(-(-start // 10_000_000) * 10_000_000, end, 10_000_000):
            yield f"{partition}{number}"


class Identified(Numbers):
    """The same, in a system that has a name of its own."""

    def identity(self) -> dict[str, str | int]:
        return {"name of the system": "first"}


class Worded(Numbers):
    """Its ends are texts."""

    def end(self, partition: str) -> Any:
        return (self.folder / partition).read_text()


class Unreadable(Numbers):
    """Its partitions can be counted, not read."""

    def read(self, partition: str, start: int, end: int) -> Iterable[str]:
        raise ValueError("no such table")


class Polled(PollingSource[str]):
    """The numbers up to what a file says; ends at a negative one."""

    every_s = 0.01

    def __init__(self, name: str, file: Path):
        super().__init__(name)
        self.file = file

    def poll(self, position: Any) -> tuple[list[str], int] | None:
        start = position or 0
        limit = int(self.file.read_text())
        end = min(abs(limit), start + POLLED_MAX)
        if limit < 0 and start >= end:
            return None
        return [str(number) for number in range(start, end)], end


class Broken(Polled):
    """Asks a server that is not there."""

    def poll(self, position: Any) -> tuple[list[str], int] | None:
        raise PeerError("the server of tickets does not answer; start it")


@wallaroo.encoder
def line(event: str) -> bytes:
    return event.encode() + b"\n"


def copying(source: Any, out: Path) -> wallaroo.Application:
    """An application that writes what it reads."""
    stream = wallaroo.source(source.name, source)
    sink = wallaroo.FileSinkConfig(out, encoder=line)
    return wallaroo.build_application("copy", stream.to_sink(sink))


def counted(after: int | None) -> Iterator[str]:
    """``number 1`` to ``number 30``."""
    for number in range((after or 0) + 1, 31):
        yield f"number {number}"


async def ticked(after: int | None) -> AsyncIterator[At]:
    """``tick 10``, ``tick 20``, ... to ``tick 300``, at their numbers."""
    for number in range((after or 0) + 10, 310, 10):
        await asyncio.sleep(0)
        yield At(f"tick {number}", number)


def failing(after: int | None) -> Iterator[str]:
    """One event, then an error."""
    yield "the only one"
    raise ValueError("the feed broke")


def pushing(push: Push) -> None:
    """Thirty events from a thread of its own, as client libraries have one."""

    def live() -> None:
        for number in range(30):
            push(f"pushed {number}")
        push.end()

    threading.Thread(target=live).start()
