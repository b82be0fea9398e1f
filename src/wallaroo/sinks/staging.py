"""Staged output, as a file or inside the token.

Where it runs: workers write, committers and the egress read.

Staged output is what one attempt of one task wrote for one sink in one batch.

The format (big endian), the same in a file and inside a token::

    "WLOB" u16 version   body   u32 length of every output   u64 body bytes
    u64 outputs   u32 crc32 of all before   "BOLW"

The invariant: a token exists only after the whole file does (and, in durable mode, is on disk with
its directory entry).  A file without a token is an orphan: it was written by an attempt that died
or lost.  Names carry the attempt, so no attempt ever writes into another's file.  Files are private
to the user: they are output that is not committed yet.
"""

from __future__ import annotations

import base64
import mmap
import os
import struct
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import quote

from wallaroo.durable.disk_errors import cause_of
from wallaroo.durable.ownership import UNOWNED, Ownership
from wallaroo.durable.whole_file import PRIVATE_FILE, sync_folder, write_all
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.interface import SinkWriter, WriteContext

HEAD = struct.Struct(">4sH")
TAIL = struct.Struct(">QQI4s")
MAGIC = b"WLOB"
CIGAM = b"BOLW"
VERSION = 1
BUFFER_BYTES = 1 << 20  # bytes gathered before they are written to the file
SUFFIX = ".out"
WAYS_ON = (
    "Restore it from a backup of the checkpoint, or begin with another --checkpoint folder; this "
    "one stays as it is."
)


class StagedToken(TypedDict):
    """The place of staged output; JSON-able.

    Exactly one of ``file`` and ``inline`` is not empty.
    """

    file: str  # name in the staging directory
    inline: str  # base64 of the file's content
    bytes: int
    outputs: int
    crc: int


@dataclass(frozen=True, slots=True)
class Staged:
    """Staged output, read back: the bytes, and the lengths of outputs."""

    body: memoryview
    lengths: array[int]

    def ends(self) -> Iterator[int]:
        """Return the offsets in ``body`` at which an output ends, ascending."""
        return accumulate(self.lengths)

    def outputs(self) -> Iterator[memoryview]:
        """Yield the outputs, in order."""
        start = 0
        for end in self.ends():
            yield self.body[start:end]
            start = end


def _index(lengths: array[int]) -> bytes:
    if sys.byteorder == "big":
        return lengths.tobytes()
    swapped = array("I", lengths)
    swapped.byteswap()
    return swapped.tobytes()


class StagedWriter(SinkWriter):
    """The writer of one attempt's outputs.

    It creates a file only beyond ``inline_bytes_max``.
    """

    def __init__(self, context: WriteContext):
        self._folder = context.staging
        self._is_durable = context.is_durable
        self._inline_bytes_max = context.inline_bytes_max
        self._name = (
            f"{context.batch:012d}-{context.task:05d}-{quote(context.attempt, safe='')}{SUFFIX}"
        )
        self._buffer: list[bytes] = [HEAD.pack(MAGIC, VERSION)]
        self._buffered = 0  # body bytes in the buffer
        self._bytes = 0  # body bytes in all
        self._crc = 0
        self._lengths = array("I")
        self._file: int | None = None

    def write(self, outputs: Sequence[bytes]) -> None:
        self._lengths.extend(map(len, outputs))
        piece = b"".join(outputs)
        self._buffer.append(piece)
        self._buffered += len(piece)
        self._bytes += len(piece)
        if self._buffered >= BUFFER_BYTES:
            self._flush()

    def prepare(self) -> StagedToken | None:
        """Finish; return the token, or None if nothing was written."""
        if not self._lengths:
            self.abort()
            return None
        self._buffer.append(_index(self._lengths))
        tail = struct.pack(">QQ", self._bytes, len(self._lengths))
        self._buffer.append(tail)
        joined = b"".join(self._buffer)
        crc = zlib.crc32(joined, self._crc)
        self._buffer = [joined, struct.pack(">I4s", crc, CIGAM)]
        token = StagedToken(
            file="", inline="", bytes=self._bytes, outputs=len(self._lengths), crc=crc
        )
        if self._file is None and self._bytes <= self._inline_bytes_max:
            token["inline"] = base64.b64encode(b"".join(self._buffer)).decode()
        else:
            token["file"] = self._name
            self._finish_file()
        return token

    def abort(self) -> None:
        self._buffer.clear()
        if self._file is not None:
            os.close(self._file)
            self._file = None
            (self._folder / self._name).unlink(missing_ok=True)

    def _flush(self) -> None:
        piece = b"".join(self._buffer)
        self._crc = zlib.crc32(piece, self._crc)
        self._write(piece)
        self._buffer.clear()
        self._buffered = 0

    def _write(self, piece: bytes) -> None:
        with disk_errors(self._folder / self._name):
            fault_point("outbox.write")
            if self._file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                self._file = os.open(self._folder / self._name, flags, PRIVATE_FILE)
            write_all(self._file, piece)

    def _finish_file(self) -> None:
        self._write(b"".join(self._buffer))
        self._buffer.clear()
        assert self._file is not None
        with disk_errors(self._folder / self._name):
            if self._is_durable:
                fault_point("outbox.fsync")
                os.fsync(self._file)
            os.close(self._file)
            self._file = None
            if self._is_durable:
                fault_point("outbox.sync_folder")
                sync_folder(self._folder)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn errors of the disk into a PeerError that names the file."""
    try:
        yield
    except OSError as error:
        raise PeerError(
            f"Output cannot be staged: {path}: {cause_of(error, path)}. Nothing is lost. Free or "
            f"mount the disk and run again."
        ) from error


def _parsed(raw: memoryview, token: StagedToken, where: str) -> Staged:
    def broken(what: str) -> CheckpointError:
        return CheckpointError(
            f"Staged output {where} {what}. It was committed, so it cannot be made again. {WAYS_ON}"
        )

    if len(raw) < HEAD.size + TAIL.size:
        raise broken(f"is cut off after {len(raw)} bytes")
    magic, version = HEAD.unpack_from(raw)
    if magic != MAGIC:
        raise broken("does not begin as staged output does")
    if version > VERSION:
        raise CheckpointError(
            f"Staged output {where} has format {version}; this version of wallaroo reads up to "
            f"{VERSION}. Run the version that wrote it."
        )
    count, outputs, crc, cigam = TAIL.unpack_from(raw, len(raw) - TAIL.size)
    if cigam != CIGAM or len(raw) != HEAD.size + count + 4 * outputs + TAIL.size:
        raise broken("is cut off or has grown")
    if zlib.crc32(raw[:-8]) != crc or crc != token["crc"]:
        raise broken("does not match its checksum")
    lengths = array("I")
    lengths.frombytes(raw[HEAD.size + count : -TAIL.size])
    if sys.byteorder == "little":
        lengths.byteswap()
    return Staged(raw[HEAD.size : HEAD.size + count], lengths)


def read_staged(folder: Path, token: StagedToken) -> Staged:
    """Read and verify ``token``'s output.  Raises CheckpointError if missing or damaged."""
    if token["inline"]:
        return _parsed(memoryview(base64.b64decode(token["inline"])), token, "in the commit file")
    path = folder / token["file"]
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"Staged output {path} cannot be read: {error}. It was committed, so it cannot be "
            f"produced again. {WAYS_ON}"
        ) from error
    return _parsed(memoryview(mapped), token, str(path))


def is_staged_token(token: Any) -> bool:
    """Return whether a token is a `StagedToken`; writers of users' own may have any other."""
    if not isinstance(token, dict) or token.keys() != StagedToken.__required_keys__:
        return False
    file = token["file"]
    return isinstance(file, str) and Path(file).name == file


def remove_staged(folder: Path, tokens: Sequence[Any]) -> None:
    """Remove the files of tokens, if they exist; inline tokens have none."""
    for token in tokens:
        if token and token.get("file"):
            fault_point("outbox.remove")
            (folder / token["file"]).unlink(missing_ok=True)


def remove_orphans(folder: Path, kept: set[str], owner: Ownership = UNOWNED) -> None:
    """Remove staged files that are not in ``kept``; call only while no task is running.

    ``owner`` is asked between listing and removal: output staged by another run is on no list.
    """
    there = list(folder.glob(f"*{SUFFIX}"))
    owner.require()
    for path in there:
        if path.name not in kept:
            fault_point("outbox.orphan")
            path.unlink(missing_ok=True)
