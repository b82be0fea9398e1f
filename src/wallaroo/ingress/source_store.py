"""The spool of one TCP source, and its acknowledged streams' counts.

The invariant: frames passed to ``append`` are in the spool when it returns, even if the disk is
full: it waits, and so do the clients, because nothing more is read meanwhile.  While the disk is
full, published frames stay published, no others are, and consumed segments are removed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from wallaroo.ingress.acks import StreamNumbers
from wallaroo.network.replica import Replica
from wallaroo.spool import SpoolFullError
from wallaroo.spool.connections import NUMBERS, ClosedConnections, OpenConnections, write_open
from wallaroo.spool.tail import CommitWaits
from wallaroo.spool.writer import SpoolWriter

LOOK_S = 0.02  # between two polls of the backlog
LOOK_FRACTION = 1 / 16  # share of the backlog's bound: poll sooner after this much has arrived
RESUME_FRACTION = 0.75  # share of the backlog's bound: below it a paused source reads again
FULL_RETRY_S = 0.25
CLOSED_S = 0.05  # between two notes of connections that have closed


class ConnectionNumbers:
    """Numbers for a source's connections, open ones, and closed ones to log.

    ``has_events``: the log has some, of an earlier process's connections.
    """

    def __init__(
        self, folder: Path, following: int, *, has_events: bool, closed_s: float = CLOSED_S
    ) -> None:
        self._folder = folder
        self._closed_s = closed_s
        self._following = following  # the next connection's
        self._first = following
        self._open: set[int] = set()
        self.has_sent: set[int] = set()  # those of them that the log has events of
        self._unstated: set[int] = set()  # closed, but not stated in the log
        self.is_stated = not has_events  # nothing is to be stated before the log's next event
        self._has_closed = True  # the connections of an earlier process
        self._noted_at = 0.0

    def opened(self) -> int:
        """Return the number of a new connection."""
        number = self._following
        self._following = (number + 1) % NUMBERS
        self._open.add(number)
        return number

    def closed(self, connection: int) -> None:
        """Note that a connection has closed."""
        self._open.discard(connection)
        self._has_closed = True
        if connection in self.has_sent:
            self.has_sent.remove(connection)
            self._unstated.add(connection)
            self.is_stated = False

    def statement(self) -> bytes:
        """Return the statement due before the log's next event."""
        return ClosedConnections(self._first, frozenset(self._unstated)).stored

    def appended(self, connection: int) -> None:
        """Note that the log has the statement, and an event of a connection."""
        self.has_sent.add(connection)
        self._unstated.clear()
        self.is_stated = True

    def note_closed(self, events: int) -> None:
        """Publish, if it is due, the connections closed before the log's event ``events``."""
        now = time.monotonic()
        if not self._has_closed or now - self._noted_at < self._closed_s:
            return
        self._noted_at = now
        found = OpenConnections(events, self._following, frozenset(self._open))
        with contextlib.suppress(OSError):  # only a hint: the next one follows
            write_open(self._folder, found)
            self._has_closed = False


class Backlog:
    """The comparison of a spool's unread input with its bound."""

    def __init__(self, writer: SpoolWriter, bytes_max: int) -> None:
        self._writer = writer
        self._bytes_max = bytes_max
        self._look_at = 0.0
        self._look_byte = 0

    def is_at_bound(self) -> bool | None:
        """Return whether the backlog is at its bound; None if unknown.

        It is unknown if the next poll is not due yet, or if a paused source is still near its
        bound.
        """
        now = time.monotonic()
        byte = self._writer.position.byte
        if now < self._look_at and byte < self._look_byte:
            return None  # it opens a file, so not at every publication
        self._look_at = now + LOOK_S
        self._look_byte = byte + int(self._bytes_max * LOOK_FRACTION)
        backlog = self._writer.backlog_bytes()
        if backlog > self._bytes_max:
            return True
        return False if backlog < self._bytes_max * RESUME_FRACTION else None


class Answers:
    """The acknowledgements of one source.

    They are immediate, or follow the commit of their frames.
    """

    def __init__(self, writer: SpoolWriter, streams: StreamNumbers, *, awaits_commits: bool):
        self._writer = writer
        self._counts = streams.counts
        self._waits = CommitWaits(writer.folder) if awaits_commits else None
        self._changed = set(streams.counts)  # since the last publication
        self._committed: dict[bytes, int] = {}

    def note(self, stream: bytes) -> None:
        """Note that frames of a stream were appended."""
        self._changed.add(stream)

    def published(self) -> None:
        """Note that everything appended was published."""
        if self._waits is not None and self._changed:
            counts = {stream: self._counts[stream] for stream in self._changed}
            self.after_commit(partial(self._committed.update, counts))
        self._changed.clear()

    def after_commit(self, answer: Callable[[], object]) -> None:
        """Call ``answer`` as soon as published frames may be acknowledged."""
        if self._waits is None:
            answer()
        else:
            self._waits.add(self._writer.position, answer)

    @property
    def are_awaited(self) -> bool:
        """Return whether an answer waits for a commit."""
        return bool(self._waits)

    def look(self) -> bool:
        """Return whether awaited input was committed."""
        return self._waits is not None and self._waits.look()

    def count_of(self, stream: bytes, *, is_first: bool) -> int | None:
        """Return how many frames of a stream may be acknowledged; None: wait.

        The first answer to a sender decides where it continues: it names all that is here.
        """
        count = self._counts.get(stream, 0)
        if self._waits is None or not count:
            return count
        committed = self._committed.get(stream)
        return None if is_first and committed != count else committed


class SourceStore:
    """The writer of one spool, which retries while the disk is full."""

    def __init__(
        self,
        writer: SpoolWriter,
        backlog_bytes_max: int,
        is_stopping: Callable[[float], bool],
        log: Callable[[str], None],
        streams: StreamNumbers,
        *,
        awaits_commits: bool = False,
    ):
        self.is_paused = False
        self.connections = 0
        self.rejected = 0
        self.as_of_ns = 0  # all sockets were read then; 0: there is none
        self.streams = streams
        self.writer = writer
        has_events = writer.position.events > 0
        self._numbers = ConnectionNumbers(writer.folder, writer.following, has_events=has_events)
        self.backlog = Backlog(writer, backlog_bytes_max)
        self._is_stopping = is_stopping
        self._log = log
        self._error = ""
        self.answers = Answers(writer, streams, awaits_commits=awaits_commits)

    def opened(self) -> int:
        """Return the number of a new connection."""
        return self._numbers.opened()

    def closed(self, connection: int) -> None:
        """Note that a connection has closed."""
        self._numbers.closed(connection)

    def note_closed(self) -> None:
        """Publish, if it is due, which connections have closed."""
        self._numbers.note_closed(self.writer.position.events)

    def append(
        self, frames: bytes | bytearray | memoryview, events: int, connection: int, stream: bytes
    ) -> None:
        """Append whole frames, of an acknowledged stream if it has a name.

        Raises SpoolFullError if the process is to stop before there is room, and SpoolDiskError.
        """
        resume = self.streams.resume_after(stream, events) if stream else b""
        self.append_with(frames, events, connection, resume)
        if stream:
            self.streams.add(stream, events)
            self.answers.note(stream)

    def append_with(
        self, frames: bytes | bytearray | memoryview, events: int, connection: int, resume: bytes
    ) -> None:
        """Append whole frames and a position to resume from.  Raises as ``append`` does."""
        receipt_ns = time.time_ns()
        numbers = self._numbers
        closed = b"" if numbers.is_stated else numbers.statement()
        self._until_stored(
            lambda: self.writer.append(frames, events, receipt_ns, connection, resume, closed)
        )
        if closed or connection not in numbers.has_sent:
            numbers.appended(connection)

    def publish(self) -> None:
        """Make appended frames visible and, if durable, safe.  Raises as ``append`` does."""
        self._until_stored(self._publish)
        self.answers.published()
        self.note_closed()

    def remove_consumed(self) -> None:
        """Remove consumed segments; later if there is no room to store their counts."""
        with contextlib.suppress(SpoolFullError):
            self.streams.remove_consumed()

    def close(self) -> None:
        """Close the spool without publishing."""
        self.writer.close()

    def _until_stored(self, attempt: Callable[[], object]) -> None:
        while True:
            try:
                attempt()
            except SpoolFullError as error:
                self._report_full(str(error))
                if self._is_stopping(FULL_RETRY_S):
                    raise
            else:
                self._error = ""
                return

    def _publish(self) -> None:
        self.writer.publish(
            is_paused=self.is_paused,
            connections=self.connections,
            rejected=self.rejected,
            error=self._error,
            as_of_ns=self.as_of_ns,
        )

    def _report_full(self, error: str) -> None:
        if not self._error:
            self._log(error)
        self._error = error
        try:
            self._publish()
        except SpoolFullError:
            self.writer.report(
                error,
                is_paused=self.is_paused,
                connections=self.connections,
                rejected=self.rejected,
            )
        else:
            self.remove_consumed()


def open_store(
    folder: Path,
    *,
    is_durable: bool,
    checkpoint: str,
    backlog_bytes_max: int,
    is_stopping: Callable[[float], bool],
    log: Callable[[str], None],
    streams_of: Callable[[SpoolWriter], StreamNumbers] = StreamNumbers,
    awaits_commits: bool = False,
    replica: Replica | None = None,
) -> SourceStore:
    """Open a source's spool.  Raises PeerError or CheckpointError."""
    writer = SpoolWriter(folder, is_durable=is_durable, checkpoint=checkpoint, replica=replica)
    try:
        streams = streams_of(writer)
        return SourceStore(
            writer, backlog_bytes_max, is_stopping, log, streams, awaits_commits=awaits_commits
        )
    except BaseException:
        writer.close()
        raise
