"""Scanning files for places between events, to plan batches.

Where it runs: driver.

The invariant: the places of marks depend on the files alone, not on the start of a scan, as long as
it began at a mark.  A read ends at a multiple of ``mark_bytes``, and a mark is at the end of the
last whole event before it.
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_right
from typing import NamedTuple

from wallaroo.connectors.file.cutting import PAYLOAD_BYTES_MAX, Cutter
from wallaroo.connectors.file.files import READ_ERRORS, FileEntry, FilePlace, OpenFile
from wallaroo.instrumentation.tuning import DEFAULT
from wallaroo.protocols.framing import FrameError
from wallaroo.sources.log import Position


class Mark(NamedTuple):
    """A place between two events."""

    events: int  # before it, from the log's beginning
    file: int  # its index
    place: FilePlace | None  # None: the beginning of the first file
    scanned: int  # bytes since the start of the scan

    @property
    def order(self) -> tuple[int, int]:
        """Return the sort key of marks."""
        return self.file, self.place.offset if self.place else 0

    @property
    def is_done(self) -> bool:
        """Return whether it is the end of its file."""
        return self.place is not None and self.place.is_done

    @property
    def position(self) -> Position:
        return Position(self.place.to_json() if self.place else None, self.events)


class Scanner:
    """The marks from one on.

    ``failure`` is the reason why there is no further one.
    """

    def __init__(
        self,
        cutter: Cutter,
        folder: str,
        files: tuple[FileEntry, ...],
        start: Mark,
        mark_bytes: int = DEFAULT.mark_bytes,
    ):
        self._mark_bytes = mark_bytes
        self._cutter = cutter
        self._folder = folder
        self._files = files
        self._marks = [start._replace(scanned=0)]
        self._file: OpenFile | None = None
        self._pending = b""  # read, and after the last mark
        self.failure = ""

    @property
    def last(self) -> Mark:
        """Return the furthest mark."""
        return self._marks[-1]

    @property
    def is_ended(self) -> bool:
        """Return whether nothing comes after the last mark."""
        return self.last.file >= len(self._files) - 1 and (self.last.is_done or not self._files)

    @property
    def first(self) -> Mark:
        """Return the oldest mark."""
        return self._marks[0]

    def find(self, wanted: Mark) -> Mark | None:
        """Return the mark at the same place, if there is one."""
        at = bisect_right(self._marks, wanted.order, key=lambda mark: mark.order) - 1
        mark = self._marks[at] if at >= 0 else None
        return mark if mark and mark[:2] == wanted[:2] and mark.order == wanted.order else None

    def forget_before(self, wanted: Mark) -> None:
        """Forget the marks before a place, if one is there."""
        mark = self.find(wanted)
        if mark is not None:
            del self._marks[: self._marks.index(mark)]

    def between(self, start: Mark, end: Mark) -> list[Mark]:
        """Return the marks after one and before another."""
        return [mark for mark in self._marks if start.order < mark.order < end.order]

    def furthest(self, start: Mark, events_max: int) -> Mark:
        """Return the last mark within ``events_max`` events of ``start``, at least one."""
        self.scan_to(start.events + events_max + 1)
        at = bisect_right(self._marks, start.events + events_max, key=lambda mark: mark.events) - 1
        if self._marks[at].events > start.events:
            return self._marks[at]
        return next((mark for mark in self._marks if mark.events > start.events), self._marks[at])

    def scan_to(self, events: int) -> None:
        """Scan until ``events`` events lie before the last mark, or the input ends."""
        while self.last.events < events and self._step():
            pass

    def scan_over(self, order: tuple[int, int]) -> None:
        """Scan until the last mark is at a place, or after it."""
        while self.last.order < order and self._step():
            pass

    def scan_ahead(self, start: Mark, bytes_min: int) -> None:
        """Scan at least ``bytes_min`` bytes from a mark, and then until there is an event."""
        while (
            self.last.scanned - start.scanned < bytes_min or self.last.events == start.events
        ) and self._step():
            pass

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
        self._pending = b""

    def _step(self) -> bool:
        """Add a mark; return whether there was one."""
        if self.failure or self.is_ended:
            return False
        index = self.last.file + (1 if self.last.is_done else 0)
        file = self._files[index]
        place = self.last.place
        if place is None or place.is_done:
            place = FilePlace(file.name, 0, 0, file.stamp)
        try:
            mark = self._next(index, file, place)
        except READ_ERRORS as error:
            self.failure = (
                f"cannot read {os.path.join(self._folder, file.name)} after byte {place.offset}: "
                f"{error}. Put a whole file there, then run again"
            )
            return False
        if mark is not None:
            self._marks.append(mark)
            if mark.is_done:
                self.close()
        return mark is not None

    def _next(self, index: int, file: FileEntry, place: FilePlace) -> Mark | None:
        if self._file is None:
            self._file = OpenFile(os.path.join(self._folder, file.name), file.stamp.size)
            self._file.go_to(place.offset)
        is_last = False
        while not (is_last or self.failure) and len(self._pending) <= PAYLOAD_BYTES_MAX:
            # up to the next multiple, twice as far if an event is that long
            wanted = max(self._mark_bytes, len(self._pending))
            wanted -= (place.offset + len(self._pending) + wanted) % self._mark_bytes
            wanted = wanted or self._mark_bytes
            fresh = self._file.read(wanted)
            is_last = len(fresh) < wanted
            part = self._pending + fresh
            end, events = self._cut(part, is_last, place)
            self._pending = part[end:]
            if end or (is_last and not self.failure):
                return Mark(
                    self.last.events + events,
                    index,
                    FilePlace(
                        file.name,
                        place.offset + end,
                        zlib.crc32(part[:end], place.checksum),
                        file.stamp,
                        is_last and not self._pending,
                        index,
                        len(self._files) - index - 1,
                    ),
                    self.last.scanned + end,
                )
        if not self.failure:
            self.failure = (
                f"{file.name}, byte {place.offset}: a line or frame is longer than "
                f"{PAYLOAD_BYTES_MAX} bytes"
            )
        return None

    def _cut(self, part: bytes, is_last: bool, place: FilePlace) -> tuple[int, int]:
        try:
            end, events = self._cutter.whole(part, is_last)
        except FrameError as error:
            self.failure = f"{place.file}, byte {place.offset + error.end}: {error}"
            return error.end, error.frames
        if is_last and end < len(part):
            self.failure = (
                f"{place.file} ends inside a frame: the last {len(part) - end} bytes, from byte "
                f"{place.offset + end} on, are not whole. First bytes "
                f"{part[end : end + 16].hex(' ')}"
            )
        return end, events
