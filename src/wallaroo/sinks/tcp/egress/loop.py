"""The loop of the egress.

Where it runs: egress.

It accepts batches from its committer, keeps one connection, sends, records and reports.

The invariants:

* Only what the committer handed over is sent, in batch order.
* A connection begins where an output begins.  It resumes from what the receiver's kernel
  acknowledged (with ``is_resuming``: from the number of bytes the receiver reports), never from
  what our own kernel accepted: at least once, in order.
* Before the first byte of a connection a second descriptor of it goes to the committer.  If the
  egress alone is killed, the next one takes that connection over and asks the kernel how far it is:
  nothing lost, nothing twice, in the middle of an output too.
* Whatever the receiver writes is read, up to its end: closing a connection with unread bytes, or
  before the receiver has read everything, would reset it and lose what is on its way.
* At an orderly end, and if the driver is gone (end of stdin), the egress finishes the output in
  hand, ends its side of the connection, waits until the receiver has acknowledged everything and
  ended its own (`ending` has the bounds), records, and exits.  It keeps the outbox's lock
  meanwhile, so the next run's first byte comes after this connection's last one.  What is not
  acknowledged when it gives up is dropped from the connection, and the next run sends it again.
* What is released is on disk first: the committer removes what named it.
* What a receiver's kernel acknowledged and its process never read is lost if that process dies;
  with ``is_resuming`` it is not: exactly once.
"""

from __future__ import annotations

import os
import select
import socket
import time
from pathlib import Path

from wallaroo.errors import CheckpointError
from wallaroo.faults import fault_point
from wallaroo.sinks.pending import PendingBatch
from wallaroo.sinks.staging import Staged, StagedToken, read_staged
from wallaroo.sinks.tcp.egress.connection import Connection
from wallaroo.sinks.tcp.egress.dialer import Dialer
from wallaroo.sinks.tcp.egress.ending import Ending
from wallaroo.sinks.tcp.egress.pipe import EgressConfig, Message, Pipe
from wallaroo.sinks.tcp.egress.reports import Reports
from wallaroo.sinks.tcp.outbox import skip_command
from wallaroo.sinks.tcp.progress import ProgressFile
from wallaroo.sinks.tcp.queue import SendQueue
from wallaroo.tracing import trace_point

SLICE_BYTES = 128 * 1024  # per send, for which pings and the receiver's bytes have to wait
ACK_POLL_S = 0.01  # how often the kernel is asked for acknowledgements while some are missing
IDLE_POLL_S = 0.5
# Between two releases of what the receiver has, each after a sync.  Commits, which have that
# output, too, are retained for longer.
RELEASE_S = 0.25


class Releases:
    """The time at which the next release is due."""

    def __init__(self) -> None:
        self._due_at = 0.0

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the next release is due."""
        return max(0.0, self._due_at - time.monotonic())

    @property
    def is_due(self) -> bool:
        """Return whether the next release is due now."""
        return not self.seconds_left

    def note(self) -> None:
        """Note a release."""
        self._due_at = time.monotonic() + RELEASE_S


class Egress:
    """One outbox's egress; ``run`` is its loop."""

    def __init__(self, config: EgressConfig, record: ProgressFile, pipe: Pipe, lock: int):
        self._config = config
        self._record = record
        self._pipe = pipe
        self._reports = Reports(pipe, lock, f"{config.host}:{config.port}")
        self._acked = record.progress.acked
        self._queue = SendQueue(self._acked, record.progress.released_end, self._load)
        self._dialer = Dialer(config.host, config.port, config.tls)
        self._releases = Releases()
        self._connection: Connection | None = None
        self._is_started = False
        self._is_closing = False
        if config.inherited_fd >= 0:
            self._take_over()

    def run(self) -> None:
        """Work until the committer closes or is gone, and the connection has ended."""
        while not self._must_end() or self._connection is not None:
            self._turn()
        self._record.sync()

    def _must_end(self) -> bool:
        return self._is_closing or not self._pipe.is_open

    # -- one turn ---------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self._is_dialing_due():
            self._note_absent(self._dialer.dial())
        for descriptor, events in self._poll():
            if descriptor == 0:
                self._handle_commands()
            elif descriptor == 1:
                self._pipe.flush()
            elif self._dialer.sock is not None and descriptor == self._dialer.sock.fileno():
                self._connect()
            elif self._connection is not None and descriptor == self._connection.sock.fileno():
                self._serve(self._connection, events)
        self._settle()
        if self._connection is not None:
            self._end_in_order(self._connection)

    def _is_dialing_due(self) -> bool:
        is_absent = self._connection is None and self._dialer.sock is None
        return self._is_started and is_absent and not self._dialer.seconds_left()

    def _poll(self) -> list[tuple[int, int]]:
        poll = select.poll()
        if self._pipe.is_open:
            poll.register(0, select.POLLIN)
        if self._pipe.has_output:
            poll.register(1, select.POLLOUT)
        timeout = IDLE_POLL_S
        if self._dialer.sock is not None:
            poll.register(self._dialer.sock, select.POLLOUT)
        elif self._connection is not None:
            events = self._wanted(self._connection)
            if events or not self._connection.has_ended:  # both ended: poll would not wait
                poll.register(self._connection.sock, events)
            is_counting = not self._config.is_resuming and self._acked < self._queue.offset
            if is_counting or self._connection.ending is not None:
                timeout = ACK_POLL_S
            elif not self._queue.is_empty():
                timeout = min(timeout, self._releases.seconds_left)
        elif self._is_started:
            timeout = min(timeout, self._dialer.seconds_left())
        return poll.poll(timeout * 1000)

    def _wanted(self, connection: Connection) -> int:
        events = 0 if connection.is_half_closed else select.POLLIN
        if connection.has_ended:
            return events
        is_greeting = self._config.is_resuming and connection.start < 0
        has_more = self._queue.rest_of_output() if connection.ending else self._queue.has_more()
        has_more = bool(has_more and not is_greeting) or connection.has_rest
        return events | (select.POLLOUT if has_more else 0)

    def _handle_commands(self) -> None:
        for message in self._pipe.receive():
            if "commit" in message:
                self._take(message)
            elif "ping" in message:
                self._pipe.send(alive=True)
            elif "start" in message:
                self._is_started = True
            elif "close" in message:
                self._is_closing = True

    def _take(self, message: Message) -> None:
        batch = PendingBatch.from_json(message["commit"])
        released = self._record.progress.released_batch
        if batch.batch <= released:
            self._pipe.send(released=released, accepted=self._queue.offset)
        elif self._queue.add(batch):
            trace_point("egress.taken")
            self._record.note(
                last_batch=batch.batch, last_commit=batch.commit.id, last_end=message["end"]
            )
            if batch.end <= self._queue.offset:
                self._pipe.send(sent=batch.batch, t_ns=0)

    def _load(self, token: StagedToken) -> Staged:
        self._pipe.send(alive=True)  # to read a large part takes time
        staging = Path(self._config.staging)
        try:
            return read_staged(staging, token)
        except CheckpointError as error:
            raise CheckpointError(
                f"{error} Or give that output up: {skip_command(staging, self._queue.batch)}"
            ) from error

    def _serve(self, connection: Connection, events: int) -> None:
        if events & (select.POLLERR | select.POLLNVAL):
            self._lose(connection, _error_of(connection.sock) or "connection closed")
        elif events & select.POLLIN:
            self._read_receiver(connection)
        elif events & select.POLLHUP:
            if connection.has_ended:
                connection.is_half_closed = True
            else:
                self._lose(connection, _error_of(connection.sock) or "connection closed")
        if events & select.POLLOUT and self._connection is connection:
            rest = self._queue.rest_of_output() if connection.ending else SLICE_BYTES
            self._send(connection, min(rest, SLICE_BYTES))

    # -- beginning and ending a connection --------------------------------------------------------

    def _connect(self) -> None:
        answer = self._dialer.answer()
        if isinstance(answer, str):
            self._note_absent(answer)
            return
        self._connection = answer
        is_resuming = self._config.is_resuming
        self._reports.waiting("receiver to say how much it has" if is_resuming else "")

    def _note_absent(self, reason: str) -> None:
        if reason:
            self._reports.waiting(reason)

    def _take_over(self) -> None:
        """Continue the connection that a killed egress left, exactly at its place."""
        config = self._config
        connection = Connection(
            socket.socket(fileno=config.inherited_fd),
            config.inherited_start,
            config.inherited_base,
        )
        connection.sock.setblocking(False)
        accepted = connection.accepted()
        acked = connection.acked()
        if accepted is None or acked is None:
            connection.close()
            return
        self._connection = connection
        self._queue.offset = accepted
        self._acked = min(acked, accepted)
        if connection.is_ended:  # the killed one had ended its side: wait for the other one
            connection.has_ended = True
            connection.ending = Ending(time.monotonic())

    def _begin(self, connection: Connection) -> None:
        """Prepare the first byte: go to where an output begins, and hand a descriptor over."""
        self._queue.seek(self._queue.boundary(self._queue.offset))
        connection.begin(self._queue.offset)
        self._record.note(local_port=connection.sock.getsockname()[1])
        fault_point("egress.hand_over")
        if self._config.handover_fd >= 0 and connection.can_be_continued:
            connection.hand_over(self._config.handover_fd)
            self._pipe.send(handed_over=True)

    def _lose(self, connection: Connection, reason: str) -> None:
        """Leave a broken connection.

        Unless the receiver resumes, go back to the first output that was not acknowledged in full.
        """
        if connection.start >= 0 and not self._config.is_resuming:
            self._note_acked(connection)
        connection.close()
        self._leave(reason)
        self._reports.waiting(self._dialer.absent(reason, is_patient=connection.start < 0))

    def _note_acked(self, connection: Connection) -> None:
        acked = connection.acked()
        self._acked = min(self._queue.offset if acked is None else acked, self._queue.offset)

    def _leave(self, reason: str) -> None:
        self._connection = None
        if not self._config.is_resuming and not self._queue.is_empty():
            self._queue.seek(self._queue.boundary(self._acked))
        self._pipe.send(lost=reason)

    def _end_in_order(self, connection: Connection) -> None:
        now = time.monotonic()
        if connection.ending is None:
            if not self._must_end():
                return
            if connection.start < 0:  # nothing was sent on it
                connection.close()
                self._leave("ended")
                return
            connection.ending = Ending(now)
        is_all_sent = not self._queue.rest_of_output() and not connection.has_rest
        if not connection.has_ended and is_all_sent:
            fault_point("egress.half_close")
            connection.half_close()
        missing = self._queue.offset - self._acked
        connection.ending.note_missing(missing, now)
        self._reports.ending(missing, self._queue.offset - connection.start)
        if connection.has_ended and connection.is_half_closed and not missing:
            connection.close()
            self._leave("ended")
        elif connection.has_ended and (reason := _error_of(connection.sock)):
            self._lose(connection, reason)
        elif connection.ending.is_over(now):
            if missing:
                connection.abandon()
            else:
                connection.close()
            self._leave("ended")

    # -- reading what the receiver writes ---------------------------------------------------------

    def _read_receiver(self, connection: Connection) -> None:
        try:
            chunk = connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(connection, error.strerror or str(error))
            return
        if connection.ending is not None:
            connection.ending.note_received(time.monotonic())
        if not chunk:
            self._handle_end(connection)
        elif self._config.is_resuming:
            self._handle_offsets(connection, chunk)

    def _handle_end(self, connection: Connection) -> None:
        if connection.has_ended and self._config.is_resuming:
            connection.close()
            self._leave("ended")
        elif connection.has_ended or (connection.is_counted and not self._config.is_resuming):
            # `nc` does that and continues to read; if it is gone, the next send fails
            connection.is_half_closed = True
        else:
            self._lose(connection, "connection closed by the receiver")

    def _handle_offsets(self, connection: Connection, chunk: bytes) -> None:
        try:
            offsets = connection.said.feed(chunk)
        except ValueError as error:
            self._lose(connection, str(error))
            return
        for has in offsets:
            if connection.start >= 0:
                self._acked = max(self._acked, min(has, self._queue.offset))
            elif not self._resume_at(connection, has):
                return

    def _resume_at(self, connection: Connection, has: int) -> bool:
        """Resume from what the receiver has; return False if that cannot be."""
        if problem := self._problem_with(has):
            self._lose(connection, problem)
            return False
        skips = self._queue.skips()
        if skips:
            self._record.note(resolved_batch=skips[-1].batch)
        self._queue.seek(has)
        connection.begin(has)
        self._acked = has
        self._reports.waiting("")
        return True

    def _problem_with(self, has: int) -> str:
        queue = self._queue
        if not queue.start <= has <= queue.end:
            held = f"{queue.start} to {queue.end}"
            return (
                f"the receiver has {has} bytes, this outbox holds {held}; it belongs to another run"
            )
        resolved = self._record.progress.resolved_batch
        for skip in queue.skips():
            if skip.batch > resolved and has > skip.start:
                return (
                    f"the receiver has {has} bytes, and output was skipped at byte {skip.start}; "
                    f"cut what it holds to {skip.start} bytes and start it again"
                )
        return ""

    # -- sending ----------------------------------------------------------------------------------

    def _send(self, connection: Connection, limit: int) -> None:
        if connection.start < 0:
            self._begin(connection)
        views = self._queue.views(limit)
        if not views:
            connection.flush()
            return
        if self._queue.batch > self._record.progress.begun_batch:
            self._record.note(begun_batch=self._queue.batch)
        fault_point("egress.send")
        try:
            count = connection.send(views)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(connection, error.strerror or str(error))
            return
        now = time.time_ns()
        fault_point("egress.sent")
        for batch in self._queue.advance(count):
            fault_point("egress.report")
            self._pipe.send(sent=batch.batch, t_ns=now, accepted=self._queue.offset)

    def _settle(self) -> None:
        """Record what is acknowledged; release and report what is never to be sent again."""
        connection = self._connection
        has_begun = connection is not None and connection.start >= 0
        if connection is not None and has_begun and not self._config.is_resuming:
            self._note_acked(connection)
        known = self._record.progress
        # a resuming receiver has to agree to what was skipped before that is forgotten
        may_release = has_begun or not self._config.is_resuming
        is_due = self._releases.is_due or self._must_end()
        released = self._queue.release(self._acked) if may_release and is_due else []
        if not released:
            self._record.note_place(self._queue.offset, self._acked)
            if self._queue.has_more():
                self._reports.place(self._queue.offset)
            return
        self._record.note(
            accepted=self._queue.offset,
            acked=self._acked,
            released_batch=released[-1].batch,
            released_end=released[-1].end,
            skipped=known.skipped + sum(batch.skipped_bytes for batch in released),
        )
        self._record.sync()
        self._releases.note()
        fault_point("egress.release")
        self._pipe.send(released=released[-1].batch, accepted=self._queue.offset)


def _error_of(sock: socket.socket) -> str:
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return os.strerror(code) if code else ""
