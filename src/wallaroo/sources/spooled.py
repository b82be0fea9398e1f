"""The log of a fed source, a spool, local or remote.

Where it runs: the driver plans with the spool's files; workers read them, or request them from the
driver's range server.

Batches and pieces end at chunks' boundaries (`spool.places`), unless these are far from the wanted
place: then inside a chunk, so that a chunk of slow events is neither the minimum of a batch nor one
task's work.  Ranges are cut across partitions, which are connections: their events have one order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise, starmap
from pathlib import Path
from typing import Any, Protocol

from wallaroo.errors import CheckpointError
from wallaroo.protocols.framing import Framing, end_of_frames
from wallaroo.sources.connector_notes import event_times
from wallaroo.sources.log import (
    REJECTED,
    SKIPPED,
    Head,
    LogContext,
    Position,
    Range,
    Records,
    SourceLog,
)
from wallaroo.spool.check import check_spool
from wallaroo.spool.connections import ClosedConnections, Statements, read_open
from wallaroo.spool.format import CHUNK_HEADER, Boundary, Chunk, SpoolHead, folder_of, segments_of
from wallaroo.spool.offsets import SpoolOffset
from wallaroo.spool.reader import SpoolReader
from wallaroo.spool.remote.client import RemoteSpool
from wallaroo.spool.tail import read_released, write_tail

NEAR = 0.5  # a boundary within this share of the wanted step, or piece, is good enough
PARTITION = ""  # the partition of all ranges


class SpoolChunks(Protocol):
    """The chunks of a spool's log, for reading."""

    def chunks(self, start: Boundary, end: Boundary) -> Iterator[Chunk]:
        """Yield the chunks of a range in order, checked."""


class SpoolPlaces(Protocol):
    """The head and the boundaries of a spool's log, for planning."""

    def head(self) -> SpoolHead:
        """Return the last published head."""

    def around(self, events: int, start: Boundary, end: Boundary) -> tuple[Boundary, Boundary]:
        """Return the last known boundary with at most ``events`` before it, and the next one."""


@dataclass(frozen=True, slots=True)
class SpoolLog(SourceLog):
    """The log of a fed source; see the module's docstring."""

    wakes = True
    source: str
    folder: Path
    checkpoint: str
    remote: SpoolChunks | None = None  # None: read the files
    has_times: bool = False  # chunks' notes hold the times of events
    framing: Framing | None = None  # None: chunks are not cut
    is_ended: bool = False  # it ends wherever it ends now
    _connections: Statements = field(default_factory=Statements, compare=False, repr=False)

    def beginning(self) -> Position:
        return Position(0, 0)

    @property
    def places(self) -> SpoolPlaces:
        """Return the source of the head and the boundaries: a reader of the files."""
        return SpoolReader(self.folder)

    def head(self) -> Head:
        head = self.places.head()
        counts = {SKIPPED: head.skipped, REJECTED: head.rejected}
        return Head(
            _position(head.position),
            head.is_ended or self.is_ended,
            head.is_paused,
            head.connections,
            error=head.error,
            is_away=not head.as_of_ns,
            as_of_ns=head.as_of_ns,
            counts={name: count for name, count in counts.items() if count},
        )

    def advance(self, start: Position, events_max: int) -> Position:
        reader = self.places
        head = reader.head().position
        first = boundary_of(start)
        if first.byte >= head.byte:
            return start
        wanted = start.events + events_max
        below, above = reader.around(wanted, first, head)
        is_near = below.byte > first.byte and below.events - start.events >= NEAR * events_max
        if below == above or is_near:
            return _position(below)
        if self.framing is not None:
            return _inside(below, above, wanted)
        return _position(below if below.byte > first.byte else above)

    def split(self, start: Position, end: Position, pieces: int) -> list[list[Range]]:
        if pieces == 1:
            return [[_range(start, end)]] if end.events > start.events else []
        reader = self.places
        head = reader.head().position
        total = end.events - start.events
        cuts = [start]
        for number in range(1, pieces):
            wanted = start.events + total * number // pieces
            below, above = reader.around(wanted, boundary_of(cuts[-1]), head)
            nearest = below if wanted - below.events <= above.events - wanted else above
            cut = _position(nearest)
            is_near = abs(nearest.events - wanted) * pieces <= (1 - NEAR) * total
            if self.framing is not None and not is_near:
                cut = _inside(below, above, wanted)
            if cuts[-1].events < cut.events < end.events:
                cuts.append(cut)
        if end.events > start.events:
            cuts.append(end)
        return [[part] for part in starmap(_range, pairwise(cuts))]

    def read(self, part: Range) -> Iterator[Records]:
        spool: SpoolChunks = self.remote or SpoolReader(self.folder)
        low = SpoolOffset.of(part.start)
        high = SpoolOffset.of(part.end)
        chunks = spool.chunks(Boundary(low.byte), Boundary(high.after))
        if self.framing is not None and (low.skip or high.skip):
            yield from self._read_inside(chunks, low, high, self.framing)
            return
        for chunk in chunks:
            if not chunk.events:
                yield _ended(chunk)
                continue
            times = partial(_times, chunk) if self.has_times else None
            origin = partial(_origin, chunk)
            yield Records(chunk.connection, chunk.receipt_ns, [], times, chunk.frames, origin)

    def _read_inside(
        self, chunks: Iterator[Chunk], low: SpoolOffset, high: SpoolOffset, framing: Framing
    ) -> Iterator[Records]:
        """Yield the records of a range that begins or ends inside of a chunk, or of several."""
        at = low.byte
        first = low.skip
        last: int | None = None  # events before the range's end, from ``high.byte`` on
        for chunk in chunks:
            if high.skip and at >= high.byte:
                last = high.skip if last is None else last
            if not (chunk.events or first or last == 0):
                yield _ended(chunk)
            begin = min(first, chunk.events)
            end = chunk.events if last is None else min(last, chunk.events)
            frames = chunk.frames
            if end < chunk.events:
                frames = frames[: end_of_frames(framing, frames, end)]
            if begin:
                frames = frames[end_of_frames(framing, frames, begin) :]
            if begin < end:
                times = partial(_times, chunk, begin, end) if self.has_times else None
                origin = partial(_origin, chunk)
                yield Records(chunk.connection, chunk.receipt_ns, [], times, frames, origin)
            first -= begin
            last = None if last is None else last - end
            at += CHUNK_HEADER.size + len(chunk.frames) + len(chunk.resume)

    def ended(self, partitions: Collection[str], position: Position) -> Collection[str]:
        """Return the closed connections whose last event is before the position."""
        if (stated := read_open(self.folder)) is not None:
            self._connections.add(stated)
        numbers = [int(each) for each in partitions if each]
        return [str(each) for each in self._connections.closed(numbers, position.events)]

    def require(self, position: Position) -> None:
        """Raise CheckpointError unless this checkpoint's spool reaches to the position."""
        if isinstance(position.place, dict):
            raise CheckpointError(
                f"source '{self.source}' is received by ingresses on other hosts, too, whose input "
                f"only a run with --ingress-listen can read. Give that option to the run; "
                f"`wallaroo state` commands cannot reach those hosts."
            )
        wanted = boundary_of(position)
        reached = Boundary(SpoolOffset.of(position.place).after, position.events)
        check_spool(self.folder, self.source, self.checkpoint, reached)
        segments = segments_of(self.folder)
        head = SpoolReader(self.folder).head().position
        if wanted.byte < head.byte and (not segments or segments[0].start.byte > wanted.byte):
            oldest = segments[0].start.events if segments else head.events
            raise CheckpointError(
                f"source '{self.source}': input from event {wanted.events:,} on would be read "
                f"again, and its spool {self.folder} begins at event {oldest:,}"
            )

    def committed(self, position: Position, released: Position | None) -> None:
        """Write the tail."""
        kept_from = boundary_of(released) if released is not None else Boundary()
        write_tail(self.folder, boundary_of(position), kept_from)

    def rewind(self, position: Position) -> None:
        if self.folder.exists():
            back = boundary_of(position)
            write_tail(self.folder, back, min(back, read_released(self.folder)))

    def backlog_bytes(self, position: Position, head: Head) -> int:
        return SpoolOffset.of(head.position.place).byte - SpoolOffset.of(position.place).byte


def open_spool(
    source: str,
    context: LogContext,
    framing: Framing | None = None,
    *,
    has_times: bool = False,
    is_ended: bool = False,
) -> SpoolLog:
    """Return the log of the spool of a source; ``is_ended``: nothing more will arrive."""
    server = context.server
    remote = (
        RemoteSpool(server.address, server.secret, source, server.certificate)
        if server is not None
        else None
    )
    folder = folder_of(context.spool_root, source)
    return SpoolLog(source, folder, context.checkpoint, remote, has_times, framing, is_ended)


def _times(chunk: Chunk, first: int = 0, last: int | None = None) -> Sequence[int]:
    """Return event times of a connector's chunk: the program's, else those of receipt."""
    times = [time_ms * 1_000_000 or chunk.receipt_ns for time_ms in event_times(chunk.resume)]
    return (times or [chunk.receipt_ns] * chunk.events)[first:last]


def _ended(chunk: Chunk) -> Records:
    return Records(PARTITION, chunk.receipt_ns, [], ended_of=ClosedConnections.of(chunk.frames))


def _origin(chunk: Chunk, number: int) -> dict[str, Any]:
    """Return the facts about the events of a chunk: when they were received."""
    received = datetime.fromtimestamp(chunk.receipt_ns / 1e9, UTC)
    return {"received": received.isoformat(timespec="milliseconds")}


def _position(boundary: Boundary) -> Position:
    return Position(boundary.byte, boundary.events)


def boundary_of(position: Position) -> Boundary:
    """Return the position's boundary, or the beginning of the chunk that it is in."""
    return SpoolOffset.of(position.place).boundary(position.events)


def _inside(below: Boundary, above: Boundary, events: int) -> Position:
    return Position(SpoolOffset(below.byte, events - below.events, above.byte).stored, events)


def _range(low: Position, high: Position) -> Range:
    return Range(PARTITION, low.place, high.place, high.events - low.events)
