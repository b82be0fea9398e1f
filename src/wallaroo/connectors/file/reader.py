"""Reading and checking a part of a file.

Where it runs: workers.

The invariant: a part's bytes have the checksum that they had when the batch was planned, or the
last of them are not passed on.  So a batch that is processed again sees the same events, on any
host.
"""

from __future__ import annotations

import os
import socket
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from wallaroo.connectors.file.cutting import Cutter
from wallaroo.connectors.file.files import READ_BYTES, READ_ERRORS, OpenFile
from wallaroo.errors import CheckpointError, PeerError

OPEN_MAX = 8  # files that a worker keeps open: a compressed one can only be read forwards


@dataclass(frozen=True, slots=True)
class FilePart:
    """The bytes of a file from one place to another, uncompressed."""

    path: str
    start: int
    start_checksum: int  # covers all bytes before
    end: int
    end_checksum: int


def read_part(source: str, part: FilePart, cutter: Cutter) -> Iterator[bytes]:
    """Yield runs of whole events.  Raises PeerError, and CheckpointError for a changed file."""
    try:
        file = _opened(part)
        yield from _runs(source, part, file, cutter)
    except READ_ERRORS as error:
        raise PeerError(
            f"source '{source}': host '{socket.gethostname()}' cannot read {part.path}: "
            f"{getattr(error, 'strerror', None) or error}. Workers read files themselves: put it "
            f"where every host finds it under this path."
        ) from None
    _keep(part.path, file)


def _runs(source: str, part: FilePart, file: OpenFile, cutter: Cutter) -> Iterator[bytes]:
    checksum = part.start_checksum
    pending = b""
    offset = part.start
    while offset < part.end:
        fresh = file.read(min(max(READ_BYTES, len(pending)), part.end - offset))
        offset += len(fresh)
        checksum = zlib.crc32(fresh, checksum)
        is_last = offset == part.end
        if not fresh or (is_last and checksum != part.end_checksum):
            raise _changed(source, part)
        run = pending + fresh
        end = len(run) if is_last else cutter.whole(run, False)[0]
        pending = run[end:]
        if end:
            yield run[:end]


def _changed(source: str, part: FilePart) -> CheckpointError:
    return CheckpointError(
        f"source '{source}': {part.path} has changed since it was looked at: its bytes "
        f"{part.start} to {part.end} are not the same. Put the file back and run again; files may "
        f"grow while they are read, but not change."
    )


_files: OrderedDict[str, OpenFile] = OrderedDict()  # this process's


def _opened(part: FilePart) -> OpenFile:
    file = _files.pop(part.path, None)
    if file is not None and (file.offset > part.start or file.inode != os.stat(part.path).st_ino):
        file.close()
        file = None
    file = file or OpenFile(part.path)
    file.go_to(part.start)
    return file


def _keep(path: str, file: OpenFile) -> None:
    _files[path] = file
    while len(_files) > OPEN_MAX:
        _, oldest = _files.popitem(last=False)
        oldest.close()
