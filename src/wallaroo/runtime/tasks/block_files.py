"""Block transport between levels through files on one host.

It is used if all tasks are on one host: Spark's shuffle then carries only the location of each
block, and its JVM does not touch the events.

The invariants:

* A file is written by one attempt of one task, under a fresh name, and read only once its blocks
  are named. So the records of any attempt that Spark passes on refer to complete blocks.
* Files belong to one batch and are removed with its folder; nothing is synced, as a repeated batch
  writes its own.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from wallaroo.engine.blocks.blocks import Block
from wallaroo.runtime.tasks.task import RunLevel

# bytes of packed events: opening and removing a file takes as long as Spark needs for a few of
# these blocks
FILED_BYTES_MIN = 16 * 1024


class Filed(NamedTuple):
    """A block whose packed events are in a file."""

    block: Block  # without its packed events
    path: str
    offset: int
    length: int


def through_files(
    folder: str,
    run: RunLevel,
    job: Any,
    level: int,
    index: int,
    records: Iterable[Any],
    *,
    filed_bytes_min: int = FILED_BYTES_MIN,
) -> Iterator[Any]:
    """Run a level on files of blocks; ``filed_bytes_min`` or more go into one file."""
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(OpenFiles())
        filing = stack.enter_context(Filing(Path(folder, uuid.uuid4().hex)))
        taken = _taken(records, opened) if level else records  # level 0 gets no blocks
        for record in run(job, level, index, taken):
            yield _given(record, filing, filed_bytes_min)


def _taken(records: Iterable[Any], opened: OpenFiles) -> Iterator[Any]:
    for consumer, record in records:
        yield consumer, opened.block(record) if isinstance(record, Filed) else record


def _given(record: Any, filing: Filing, filed_bytes_min: int) -> Any:
    if not isinstance(record, tuple) or not isinstance(record[1], Block):
        return record
    consumer, block = record
    if len(block.packed) < filed_bytes_min:
        return record
    return consumer, filing.filed(block)


class Filing:
    """Writer of blocks to a file that the first block creates."""

    def __init__(self, path: Path):
        self._path = path
        self._fd = -1
        self._size = 0

    def filed(self, block: Block) -> Block | Filed:
        """Write a block; return its location, or the block itself if that fails."""
        try:
            if self._fd < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            rest = memoryview(block.packed)
            offset = self._size
            while rest:
                written = os.pwrite(self._fd, rest, offset)
                offset += written
                rest = rest[written:]
        except OSError:  # most likely a full disk: Spark may still cope, or reports the error
            return block
        filed = Filed(block._replace(packed=b""), str(self._path), self._size, len(block.packed))
        self._size = offset
        return filed

    def __enter__(self) -> Filing:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class OpenFiles:
    """Reader of blocks from files, each opened once."""

    def __init__(self) -> None:
        self._fds: dict[str, int] = {}

    def block(self, filed: Filed) -> Block:
        """Return a block with its events."""
        fd = self._fds.get(filed.path)
        if fd is None:
            fd = self._fds[filed.path] = os.open(filed.path, os.O_RDONLY | os.O_CLOEXEC)
        packed = os.pread(fd, filed.length, filed.offset)
        if len(packed) != filed.length:
            raise OSError(f"{filed.path} has {len(packed)} of {filed.length} bytes of a block")
        return filed.block._replace(packed=packed)

    def __enter__(self) -> OpenFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._fds.values():
            os.close(fd)
