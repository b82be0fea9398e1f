"""The log of a source that is fed: its spool, on this host or behind the driver's range server.

Where it runs: the driver and the planner plan with the spool's files; workers read them, or ask the
range server for them.

A position's place is a byte of the spool, at a chunk's boundary.  Ranges are cut across partitions,
which are connections: their events have one order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from pathlib import Path

from wallaroo.errors import CheckpointError
from wallaroo.range_server.client import RemoteSpool
from wallaroo.sources.connector_notes import event_times
from wallaroo.sources.log import Head, LogContext, Position, Range, Records, SourceLog
from wallaroo.spool.check import check_spool
from wallaroo.spool.connections import read_open
from wallaroo.spool.format import Boundary, Chunk, folder_of, segments_of
from wallaroo.spool.reader import SpoolReader
from wallaroo.spool.tail import read_released, write_tail

PARTITION = ""  # of ranges: all of them


@dataclass(frozen=True, slots=True)
class SpoolLog(SourceLog):
    """See the module's head."""

    source: str
    folder: Path
    checkpoint: str
    remote: RemoteSpool | None = None  # None: read the files
    has_times: bool = False  # chunks' notes hold the times of events

    def beginning(self) -> Position:
        return Position(0, 0)

    def head(self) -> Head:
        head = SpoolReader(self.folder).head()
        return Head(
            _position(head.position),
            head.is_ended,
            head.is_paused,
            head.connections,
            head.rejected,
        )

    def advance(self, start: Position, events_max: int) -> Position:
        return _position(SpoolReader(self.folder).advance(_boundary(start), events_max))

    def split(self, start: Position, end: Position, pieces: int) -> list[list[Range]]:
        parts = SpoolReader(self.folder).split(_boundary(start), _boundary(end), pieces)
        return [[part] for part in starmap(_range, parts)]

    def read(self, part: Range) -> Iterator[Records]:
        spool = self.remote or SpoolReader(self.folder)
        for chunk in spool.chunks(Boundary(part.start), Boundary(part.end)):
            times = partial(_times, chunk) if self.has_times else None
            yield Records(chunk.connection, chunk.receipt_ns, [], times, chunk.frames)

    def ended(self, partitions: Collection[str], position: Position) -> Collection[str]:
        """Return the connections that are closed and had their last event before the position."""
        found = read_open(self.folder) if partitions else None
        if found is None:
            return ()
        closed = found.are_closed([int(each) for each in partitions if each], position.events)
        return [str(each) for each in closed]

    def require(self, position: Position) -> None:
        """Raise CheckpointError unless the spool belongs to the checkpoint, reaches to the position
        and still holds what follows it.
        """
        wanted = _boundary(position)
        check_spool(self.folder, self.source, self.checkpoint, wanted)
        segments = segments_of(self.folder)
        head = SpoolReader(self.folder).head().position
        if wanted.byte < head.byte and (not segments or segments[0].start.byte > wanted.byte):
            oldest = segments[0].start.events if segments else head.events
            raise CheckpointError(
                f"source '{self.source}': input from event {wanted.events:,} on would be read again, "
                f"and its spool {self.folder} begins at event {oldest:,}"
            )

    def committed(self, position: Position, released: Position | None) -> None:
        """Write the tail."""
        kept_from = _boundary(released) if released is not None else Boundary()
        write_tail(self.folder, _boundary(position), kept_from)

    def rewind(self, position: Position) -> None:
        if self.folder.exists():
            back = _boundary(position)
            write_tail(self.folder, back, min(back, read_released(self.folder)))

    @property
    def wakes(self) -> bool:
        return True

    def backlog_bytes(self, position: Position, head: Head) -> int:
        return int(head.position.place) - int(position.place)


def open_spool(source: str, context: LogContext, *, has_times: bool = False) -> SpoolLog:
    """Return the log of the spool of a source."""
    server = context.server
    remote = (
        RemoteSpool(server.address, server.secret, source, server.certificate)
        if server is not None
        else None
    )
    folder = folder_of(context.spool_root, source)
    return SpoolLog(source, folder, context.checkpoint, remote, has_times)


def _times(chunk: Chunk) -> Sequence[int]:
    """When the events of a connector's chunk happened: where its program does not say, when they were
    received.
    """
    times = [time_ms * 1_000_000 or chunk.receipt_ns for time_ms in event_times(chunk.resume)]
    return times or [chunk.receipt_ns] * chunk.events


def _position(boundary: Boundary) -> Position:
    return Position(boundary.byte, boundary.events)


def _boundary(position: Position) -> Boundary:
    return Boundary(position.place, position.events)


def _range(low: Boundary, high: Boundary) -> Range:
    return Range(PARTITION, low.byte, high.byte, high.events - low.events)
