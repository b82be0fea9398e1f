"""The feed of a file source: lines or frames of one file after the other.

Where it runs: feeder processes.

The invariants: files are read in the order of their paths, each once; ``resume`` names the file
that was read last, how many of its (uncompressed) bytes were read, and their checksum.  A feed that
continues in a file whose inode, time and size have changed reads those bytes again and refuses to
go on if they are not the same.
"""

from __future__ import annotations

import glob
import gzip
import json
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Protocol

from wallaroo.errors import PeerError
from wallaroo.framing import FrameError, Framing, frame_walker
from wallaroo.sources.feed import Run

READ_BYTES = 256 * 1024  # at once
PAYLOAD_BYTES_MAX = 1 << 30  # one line or frame
_LENGTH = struct.Struct(">I")
_OLD_RESUME = struct.Struct("<Q")  # the offset in the only file
RESUME_VERSION = 2

# (part of a file, whether it is the last one) -> (bytes taken, frames, events)
_Take = Callable[[bytes, bool], tuple[int, list[bytes], int]]


class Files(Protocol):
    """What a feed needs to know of a file source's configuration."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def form(self) -> str: ...

    @property
    def skip_empty(self) -> bool: ...

    @property
    def wire_framing(self) -> Framing: ...


@dataclass(frozen=True, slots=True)
class FilePosition:
    """How far the files of a source have been read."""

    file: str
    offset: int  # uncompressed bytes
    checksum: int | None  # of these bytes; None where it is not known
    stamp: tuple[
        int, int, int
    ]  # inode, time of change in ns, size: where they are the same, so is the file
    is_done: bool = False  # whether the offset was the file's end

    def packed(self) -> bytes:
        """Return the bytes of a ``resume``."""
        return json.dumps({"version": RESUME_VERSION, **asdict(self)}).encode()


def unpack_position(resume: bytes, path: str) -> FilePosition | None:
    """Read a ``resume``; None for the beginning.  An old one belongs to the only file."""
    if not resume:
        return None
    if len(resume) == _OLD_RESUME.size:
        return FilePosition(path, _OLD_RESUME.unpack(resume)[0], None, (0, 0, 0))
    fields = json.loads(resume)
    stamp = fields["stamp"]
    return FilePosition(
        fields["file"],
        fields["offset"],
        fields["checksum"],
        (stamp[0], stamp[1], stamp[2]),
        fields["is_done"],
    )


def find_files(source: Files) -> list[str]:
    """Return the files that a source's path names, in the order of their paths.  Raises PeerError
    if it is a folder or pattern and there are none.
    """
    path = source.path
    if Path(path).is_dir():
        entries = (entry for entry in os.scandir(path) if not entry.name.startswith("."))
        found = sorted(entry.path for entry in entries if entry.is_file())
    elif glob.has_magic(path) and not Path(path).exists():
        found = sorted(name for name in glob.glob(path, recursive=True) if Path(name).is_file())
    else:
        return [path]
    if not found:
        raise PeerError(
            f"source '{source.name}': there is no file in {Path(path).absolute()}. Name a file, a "
            f"folder with files in it, or a pattern such as 'logs/*.jsonl.gz'."
        )
    return found


class FileFeed:
    """Reads the files of a source from a position on."""

    def __init__(self, source: Files, resume: bytes):
        self._source = source
        self._files = find_files(source)
        self._take: _Take = self._lines
        if source.form == "frames":
            self._walk = frame_walker(source.wire_framing)
            self._take = self._frames
        self._pending = b""  # read and not yet taken
        start = unpack_position(resume, source.path)
        if start is not None:
            self._files = [file for file in self._files if file >= start.file]
        self._input = self._continued(start) if start else self._next_input()

    def next_run(self) -> Run | None:
        """Return the frames of the next part of a file, ``None`` after the last file."""
        while self._input is not None:
            run = self._next_of_file(self._input)
            if run is not None:
                return run
            self._input.close()
            self._input = self._next_input()
        return None

    def _next_of_file(self, file: _Input) -> Run | None:
        while True:
            wanted = max(READ_BYTES, len(self._pending))
            fresh = file.read(wanted)
            is_last = len(fresh) < wanted
            part = self._pending + fresh
            if not part:
                return None
            end, frames, events = self._take(part, is_last)
            file.took(part[:end], is_done=is_last and end == len(part))
            self._pending = part[end:]
            if events:
                return Run(b"".join(frames), events, file.position.packed())
            if len(self._pending) > PAYLOAD_BYTES_MAX:
                raise PeerError(
                    f"{self._place(file)}: a line or frame is longer than {PAYLOAD_BYTES_MAX} "
                    f"bytes."
                )

    def _next_input(self) -> _Input | None:
        return _Input(self._source.name, self._files.pop(0)) if self._files else None

    def _continued(self, start: FilePosition) -> _Input | None:
        if self._files[:1] != [start.file]:
            if start.is_done:
                return self._next_input()
            raise PeerError(
                f"source '{self._source.name}': {start.file} was read up to byte {start.offset} "
                f"and is gone. Put the same file back, or start over with an empty checkpoint "
                f"directory."
            )
        file = self._next_input()
        assert file is not None
        file.skip(start)
        return file

    def _lines(self, part: bytes, is_last: bool) -> tuple[int, list[bytes], int]:
        newline = part.rfind(b"\n")
        if newline < 0 and not is_last:
            return 0, [], 0
        is_open = is_last and newline != len(part) - 1  # the last line has no newline
        end = len(part) if is_open else newline + 1
        lines = part[: end if is_open else newline].split(b"\n")
        if b"\r" in part:
            lines = [line[:-1] if line.endswith(b"\r") else line for line in lines]
        if self._source.skip_empty:
            lines = [line for line in lines if line]
        return end, [_LENGTH.pack(len(line)) + line for line in lines], len(lines)

    def _frames(self, part: bytes, is_last: bool) -> tuple[int, list[bytes], int]:
        assert self._input is not None
        try:
            end, frames = self._walk(part, 0, len(part))
        except FrameError as error:
            if error.frames:
                return error.end, [part[: error.end]], error.frames
            raise PeerError(f"{self._place(self._input)}: {error}") from None
        if not frames and is_last:
            position = self._input.position
            raise PeerError(
                f"source '{self._source.name}': {position.file} ends inside a frame: the last "
                f"{len(part)} bytes, "
                f"from byte {position.offset} on, are not whole. First bytes {part[:16].hex(' ')}."
            )
        return end, [part[:end]], frames

    def _place(self, file: _Input) -> str:
        position = file.position
        return f"source '{self._source.name}': {position.file}, byte {position.offset}"


class _Input:
    """One open file, plain or compressed, and how far it has been taken."""

    def __init__(self, source: str, path: str):
        """Open a file.  Raises PeerError if it cannot be read."""
        self._source = source
        self._is_compressed = path.endswith(".gz")
        self._file: IO[bytes]
        try:
            plain = open(path, "rb")  # noqa: SIM115  # closed by close()
            found = os.fstat(plain.fileno())
            self._file = gzip.GzipFile(fileobj=plain) if self._is_compressed else plain  # type: ignore[assignment]  # it is one
            plain.read(0 if Path(path).is_file() else 1)
        except OSError as error:
            raise PeerError(
                f"source '{source}' cannot read {Path(path).absolute()}: {error.strerror}. Give it "
                f"readable regular files."
            ) from None
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        self.position = FilePosition(path, 0, 0, stamp)

    def read(self, count: int) -> bytes:
        """Read on; fewer bytes than asked for only at the end.  Raises PeerError."""
        try:
            return self._file.read(count)
        except (OSError, EOFError, zlib.error) as error:
            raise PeerError(
                f"source '{self._source}' cannot read {self.position.file} after byte "
                f"{self.position.offset}: {error}. Put a whole file there, then run again."
            ) from None

    def took(self, content: bytes, *, is_done: bool) -> None:
        """Note that these bytes were taken."""
        position = self.position
        checksum = None if position.checksum is None else zlib.crc32(content, position.checksum)
        self.position = FilePosition(
            position.file, position.offset + len(content), checksum, position.stamp, is_done
        )

    def skip(self, start: FilePosition) -> None:
        """Go to a position.  Raises PeerError if what is before it is not what was read then."""
        is_same = start.checksum is not None and start.stamp == self.position.stamp
        if is_same and not self._is_compressed:
            self._file.seek(start.offset)
            self.position = start
            return
        while self.position.offset < start.offset:
            content = self.read(min(READ_BYTES, start.offset - self.position.offset))
            if not content:
                raise PeerError(
                    f"source '{self._source}': {start.file} has {self.position.offset} bytes, and "
                    f"{start.offset} were read before. Put the same file back, or start over with "
                    f"an empty checkpoint directory."
                )
            self.took(content, is_done=False)
        if start.checksum not in (None, self.position.checksum):
            raise PeerError(
                f"source '{self._source}': {start.file} is not the file whose first {start.offset} "
                f"bytes were read before: their checksum differs. Put the same file back, or start "
                f"over with an empty checkpoint directory."
            )

    def close(self) -> None:
        """Close the file."""
        self._file.close()
