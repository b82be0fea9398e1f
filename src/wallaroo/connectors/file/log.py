"""Files as a source log: one sequence of events, read in place.

Where it runs: the driver finds places between events, workers read the files.

A position's place is a file, an offset in its uncompressed bytes, and the checksum of the bytes
before it.  There is one partition, as files are one sequence: order is kept over all of them.

The invariants: the files and their lengths are those that `beginning` or `require` found in the
driver when the run began; so all processes see the same end.  A run continues after a position only
if the bytes before it are those that were read.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from wallaroo.connectors.file.cutting import Cutter, LineCutter, cutter_of
from wallaroo.connectors.file.files import (
    READ_BYTES,
    READ_ERRORS,
    FileEntry,
    FilePlace,
    OpenFile,
    find_files,
    index_of,
)
from wallaroo.connectors.file.reader import FilePart, read_part
from wallaroo.connectors.file.scanner import Mark, Scanner
from wallaroo.connectors.file.source import FileSourceConfig
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.instrumentation.tuning import DEFAULT
from wallaroo.sources.log import Head, LogContext, Position, Range, Records, SourceLog

PARTITION = ""  # the only one
# minimum lead of the scan over planned batches
AHEAD_BYTES = 32 * 1024 * 1024
# The same, in batches of the newest one's size: a batch takes a quarter of the backlog during the
# current one (`admission`), and should have room to grow.
BATCHES_AHEAD = 7
MARKS_AHEAD_MAX = 16_384  # the bound, in marks
NAMED_MAX = 5  # files in a warning
_log = logging.getLogger("wallaroo.run")


@dataclass(frozen=True, slots=True)
class FileSource:
    """The input of a file log, and how to cut it."""

    name: str
    path: str
    cutter: Cutter
    ahead_bytes: int = AHEAD_BYTES
    mark_bytes: int = DEFAULT.mark_bytes


class FileLog(SourceLog):
    """The log of a file source; see the module's docstring."""

    def __init__(self, source: FileSource, folder: str, files: tuple[FileEntry, ...] | None = None):
        """Create a log; relative paths begin in ``folder``, ``files`` are those the run found."""
        self._source = source
        self._folder = folder
        self._files = files
        self._lock = threading.Lock()  # a run's watch and its batches use the same log
        self._scanner: Scanner | None = None
        self._done = Position(None, 0)  # committed
        self._ahead_bytes = source.ahead_bytes

    def __reduce__(self) -> tuple[type[FileLog], tuple[object, ...]]:
        return FileLog, (self._source, self._folder, self._files)

    def beginning(self) -> Position:
        """Return the beginning of the first file.  Raises PeerError if there is no file."""
        self._files = self._found()
        return Position(None, 0)

    def require(self, position: Position) -> None:
        """Raise CheckpointError unless the bytes before the position are those that were read."""
        self._done = position
        if position.place is None:
            self._files = self._found()
            return
        if not isinstance(position.place, dict):
            raise CheckpointError(
                f"source '{self._source.name}': this checkpoint was written by a version that "
                f"copied files before it read them. Finish its input with that version, or start "
                f"over with an empty checkpoint directory."
            )
        place = FilePlace.from_json(position.place)
        self._files = self._found(place.file)
        self._check_after(place)
        self._warn_of_earlier(place)
        file = next((file for file in self._files if file.name == place.file), None)
        if file is not None:
            self._check_before(place, file)
        elif not place.is_done:
            raise CheckpointError(
                f"source '{self._source.name}': {place.file} was read up to byte {place.offset} "
                f"and is gone. {_PUT_BACK}"
            )

    def _warn_of_earlier(self, place: FilePlace) -> None:
        """Log that new files are not read because their place in the order was passed."""
        files = self._files or ()
        before = index_of(files, place.file)
        if 0 <= place.files_before < before:
            names = ", ".join(file.name for file in files[: min(before, NAMED_MAX)])
            _log.warning(
                "source '%s': input was read up to %s; files before it: %d then, %d now (%s%s). "
                "New ones among them are not read: give files that are to be read names that sort "
                "after %s.",
                *(self._source.name, place.file, place.files_before, before, names),
                *(", ..." if before > NAMED_MAX else "", place.file),
            )

    def _check_after(self, place: FilePlace) -> None:
        """Raise CheckpointError if files that were not read are gone.

        They are gone for a moment if their disk is not mounted: the input would end without them.
        """
        files = self._files or ()
        after = sum(file.name > place.file for file in files)
        if after < place.files_after:
            lost = f"{place.files_after} files after it waited to be read, and {after} are there"
        elif place.files_after < 0 and not files and self._source.path != place.file:
            lost = "there are no files now, and the version that read it did not record if more "
            lost += "were to be read"
        else:
            return
        raise CheckpointError(
            f"source '{self._source.name}': {self._source.path} was read up to {place.file}; "
            f"{lost}. Put them back (is the disk mounted?), or an empty file with a later path for "
            f"each that is not to be read."
        )

    def _found(self, removed: str = "") -> tuple[FileEntry, ...]:
        return find_files(self._source.name, self._source.path, self._folder, removed)

    def _check_before(self, place: FilePlace, file: FileEntry) -> None:
        if file.stamp == place.stamp:
            return
        try:
            size, checksum, end = _checksum(os.path.join(self._folder, file.name), place.offset)
        except READ_ERRORS as error:
            raise CheckpointError(
                f"source '{self._source.name}': {file.name} cannot be read again: {error}. "
                f"{_PUT_BACK}"
            ) from None
        if size < place.offset:
            raise CheckpointError(
                f"source '{self._source.name}': {file.name} has {size} bytes, and {place.offset} "
                f"were read before. {_PUT_BACK}"
            )
        if checksum != place.checksum:
            raise CheckpointError(
                f"source '{self._source.name}': {file.name} is not the file whose first "
                f"{place.offset} bytes were read before: their checksum differs. {_PUT_BACK}"
            )
        has_grown = place.is_done and file.stamp.size > place.stamp.size
        if has_grown and isinstance(self._source.cutter, LineCutter) and end not in (b"", b"\n"):
            _log.warning(
                "source '%s': %s ended inside a line at byte %d when it was read, and has grown: "
                "the line was processed without its end, which is read as a line of its own. Let "
                "a file that grows end with a newline when a run begins.",
                *(self._source.name, file.name, place.offset),
            )

    # -- planning ---------------------------------------------------------------------------------

    def head(self) -> Head:
        """Return the end of the scanned part, some way beyond the last batch.

        Raises PeerError if everything before a place that cannot be read is committed.
        """
        with self._lock:
            scanner = self._scanner or self._look(self._done)[0]
            scanner.scan_ahead(scanner.first, self._ahead_bytes)
            if scanner.failure and scanner.last.events <= self._done.events:
                raise PeerError(f"source '{self._source.name}': {scanner.failure}.")
            return Head(scanner.last.position, is_ended=scanner.is_ended)

    def backlog(self, position: Position) -> int:
        """Return the number of scanned events after a position."""
        with self._lock:
            scanner, start = self._look(position)
            scanner.scan_ahead(start, self._ahead_bytes)
            return scanner.last.events - start.events

    def advance(self, start: Position, events_max: int) -> Position:
        with self._lock:
            scanner, begin = self._look(start)
            end = scanner.furthest(begin, events_max)
            self._ahead_bytes = self._ahead_of(end.scanned - begin.scanned)
            return end.position

    def _ahead_of(self, batch_bytes: int) -> int:
        """Return how many bytes to scan ahead of batches of a size."""
        most = self._source.mark_bytes * MARKS_AHEAD_MAX
        return max(self._source.ahead_bytes, min(BATCHES_AHEAD * batch_bytes, most))

    def split(self, start: Position, end: Position, pieces: int) -> list[list[Range]]:
        with self._lock:
            scanner, begin = self._look(start)
            last = self._mark(end)
            scanner.scan_over(last.order)
            marks = [begin, *scanner.between(begin, last), last]
        size = -(-(last.events - begin.events) // pieces)
        lists: list[list[Range]] = [[] for _ in range(pieces)]
        for low, high in pairwise(marks):
            if high.events > low.events:
                piece = lists[(low.events - begin.events) // size]
                _add(piece, self._range(low, high))
        return [piece for piece in lists if piece]

    def committed(self, position: Position, released: Position | None) -> None:
        with self._lock:
            self._done = position
            if self._scanner is not None:
                self._scanner.forget_before(self._mark(position))

    def backlog_bytes(self, position: Position, head: Head) -> int:
        return self._bytes_before(head.position) - self._bytes_before(position)

    def close(self) -> None:
        with self._lock:
            if self._scanner is not None:
                self._scanner.close()

    def _look(self, position: Position) -> tuple[Scanner, Mark]:
        """Return a scanner with a mark at a position, and that mark.

        Marks are kept until they are committed, as the next batch is planned while one is under
        way: an earlier position would have everything after it scanned again.
        """
        mark = self._mark(position)
        scanner = self._scanner
        known = scanner.find(mark) if scanner is not None else None
        if scanner is not None and known is not None:
            return scanner, known
        if scanner is not None:
            scanner.close()
        self._scanner = Scanner(
            self._source.cutter, self._folder, self._files or (), mark, self._source.mark_bytes
        )
        return self._scanner, self._scanner.first

    def _mark(self, position: Position) -> Mark:
        if position.place is None:
            return Mark(position.events, 0, None, 0)
        files = self._files or ()
        place = FilePlace.from_json(position.place)
        index = index_of(files, place.file)
        if index == len(files) or files[index].name != place.file:
            return Mark(position.events, index - 1, place, 0)  # read to its end, and removed
        is_done = place.is_done and place.stamp == files[index].stamp
        return Mark(position.events, index, replace(place, is_done=is_done), 0)

    def _range(self, low: Mark, high: Mark) -> Range:
        """Return the range between two consecutive marks."""
        assert high.place is not None
        start = low.place if low.file == high.file and low.place else None
        path = os.path.join(self._folder, high.place.file)
        return Range(
            PARTITION,
            [path, start.offset if start else 0, start.checksum if start else 0],
            [high.place.offset, high.place.checksum],
            high.events - low.events,
        )

    def _bytes_before(self, position: Position) -> int:
        """Return the approximate number of bytes on disk before a position."""
        mark = self._mark(position)
        files = self._files or ()
        before = sum(file.stamp.size for file in files[: max(0, mark.file)])
        if mark.place is None or not 0 <= mark.file < len(files):
            return before
        return before + min(mark.place.offset, files[mark.file].stamp.size)

    # -- reading ----------------------------------------------------------------------------------

    def read(self, part: Range) -> Iterator[Records]:
        cutter = self._source.cutter
        file, offset, _ = part.start
        for run in read_part(self._source.name, FilePart(*part.start, *part.end), cutter):
            payloads = cutter.payloads(run)
            origin = partial(_origin, cutter, file, offset, run)
            yield Records(PARTITION, time.time_ns(), payloads, None, cutter.frames(run), origin)
            offset += len(run)


def _origin(cutter: Cutter, file: str, offset: int, run: bytes, number: int) -> dict[str, Any]:
    """Return the position of an event in its file, uncompressed."""
    return {"file": file, "byte": offset + cutter.start_of(run, number)}


_PUT_BACK = "Put the same file back, or start over with an empty checkpoint directory."


def _add(piece: list[Range], part: Range) -> None:
    """Append a range; merge it with the one before if it continues that one."""
    if piece and [piece[-1].start[0], *piece[-1].end] == part.start:
        before = piece.pop()
        part = Range(PARTITION, before.start, part.end, before.events + part.events)
    piece.append(part)


def _checksum(path: str, size: int) -> tuple[int, int, bytes]:
    """Return the number of a file's bytes up to ``size``, their checksum, and the last one."""
    file = OpenFile(path)
    checksum = 0
    last = b""
    try:
        while file.offset < size and (content := file.read(min(READ_BYTES, size - file.offset))):
            checksum = zlib.crc32(content, checksum)
            last = content[-1:]
        return file.offset, checksum, last
    finally:
        file.close()


def open_log(config: FileSourceConfig[Any], context: LogContext) -> FileLog:
    framing = config.wire_framing if config.form == "frames" else None
    cutter = cutter_of(framing, skips_empty=config.skip_empty)
    ahead = min(AHEAD_BYTES, context.mark_bytes * MARKS_AHEAD_MAX)
    source = FileSource(config.name, str(config.path), cutter, ahead, context.mark_bytes)
    return FileLog(source, os.getcwd())
