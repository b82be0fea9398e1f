"""The egress at work: it hears its committer, keeps one connection, sends, records, reports.

Where it runs: egress.

The law:

* Only what the committer handed over is sent, in batch order.
* A byte counts as sent when ``send`` took it.  After every send the place is recorded
  (``progress``), and before the first byte of a connection a second descriptor of it goes to the
  committer.  Killed alone, the next egress takes that connection over and asks the kernel how far
  it is: nothing lost, nothing twice, in the middle of an output too.  Killed together with the
  driver, at most the last slice (``SLICE_BYTES``) between its send and its record is sent again:
  rather twice than never.
* When a connection breaks, what the other side's kernel had not confirmed is sent again on the next
  one.  A new connection always begins where an output begins.  What a receiver's kernel confirmed
  and its process never read is lost, unless the receiver resumes.
* With ``is_resuming`` the receiver says at every connection how many bytes it has, and from time to
  time again: exactly once.
* Without a driver (end of stdin) it finishes the output in hand, records, and ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from dataclasses import replace
from pathlib import Path

from wallaroo.faults import fault_point
from wallaroo.sinks.pending import PendingBatch
from wallaroo.sinks.staging import read_staged
from wallaroo.sinks.tcp.connection import Connection
from wallaroo.sinks.tcp.dialer import Dialer
from wallaroo.sinks.tcp.pipe import EgressConfig, Pipe
from wallaroo.sinks.tcp.progress import Progress, ProgressFile
from wallaroo.sinks.tcp.queue import SendQueue
from wallaroo.sinks.tcp.resume import ResumeStream

SLICE_BYTES = 128 * 1024  # per send: bounds what a double kill can repeat
ACK_POLL_SECONDS = 0.01  # how often the kernel is asked for confirmations while some are missing
REPORT_SECONDS = 0.05  # how often the place is reported inside a batch
FINISH_SECONDS = 1.0  # how long an orderly end waits for the output in hand
SYNC_BYTES = 1 << 20  # durable mode: bytes sent between two fsyncs of the progress inside one batch


class Egress:
    """One outbox's egress; ``run`` is its loop."""

    def __init__(self, config: EgressConfig, progress: ProgressFile, pipe: Pipe):
        self._config, self._file, self._pipe = config, progress, pipe
        folder = Path(config.staging)
        self._queue = SendQueue(
            progress.progress.accepted, lambda token: read_staged(folder, token)
        )
        # a resuming receiver has what it confirmed; else, without a connection, there is nothing
        # better to ask than what was sent
        self._acked = progress.progress.acked if config.is_resuming else self._queue.offset
        self._dialer = Dialer(config.host, config.port)
        self._connection: Connection | None = None
        self._resume = ResumeStream()  # of the connection, where the receiver resumes
        self._waiting = ""
        self._reported_at = 0.0
        self._unsynced = 0
        self._is_started = self._is_closing = False
        if config.kept >= 0:
            self._adopt()

    def run(self) -> None:
        """Work until the committer closes or is gone."""
        while self._pipe.is_open and not self._is_closing:
            self._turn()
        deadline = time.monotonic() + FINISH_SECONDS
        while (
            self._connection
            and self._connection.start >= 0
            and (rest := self._queue.rest_of_output())
        ):
            if not self._may_send(self._connection, deadline):
                break
            self._send(rest)
        self._record(must_sync=True)
        if self._connection:
            self._shut(self._connection.sock)

    # -- one turn ---------------------------------------------------------------------------------

    def _turn(self) -> None:
        dialer = self._dialer
        if (
            self._is_started
            and self._connection is None
            and dialer.sock is None
            and not dialer.seconds_left()
        ):
            reason = dialer.dial()
            if reason:
                self._say_waiting(reason)
        for descriptor, events in self._poll():
            if descriptor == 0:
                self._obey()
            elif descriptor == 1:
                self._pipe.flush()
            elif dialer.sock is not None and descriptor == dialer.sock.fileno():
                self._connect()
            elif self._connection is not None and descriptor == self._connection.sock.fileno():
                self._serve(events)
        self._release()

    def _poll(self) -> list[tuple[int, int]]:
        poll = select.poll()
        poll.register(0, select.POLLIN)
        if self._pipe.has_output:
            poll.register(1, select.POLLOUT)
        timeout = 1.0
        if self._dialer.sock is not None:
            poll.register(self._dialer.sock, select.POLLOUT)
        elif self._connection is not None:
            reads = 0 if self._connection.is_half_closed else select.POLLIN
            is_greeting = self._config.is_resuming and self._connection.start < 0
            is_sending = self._queue.has_more() and not is_greeting
            poll.register(self._connection.sock, reads | (select.POLLOUT if is_sending else 0))
            timeout = (
                1.0 if self._queue.is_empty() or self._config.is_resuming else ACK_POLL_SECONDS
            )
        elif self._is_started:
            timeout = self._dialer.seconds_left()
        return poll.poll(timeout * 1000)

    def _obey(self) -> None:
        for message in self._pipe.hear():
            if "commit" in message:
                self._take(PendingBatch.from_json(message["commit"]))
            elif "start" in message:
                self._is_started = True
            elif "close" in message:
                self._is_closing = True

    def _take(self, batch: PendingBatch) -> None:
        if self._queue.add(batch) and batch.end <= self._queue.offset:
            self._pipe.say(sent=batch.batch, t_ns=0)

    def _serve(self, events: int) -> None:
        assert self._connection is not None
        if events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            code = self._connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._lose(os.strerror(code) if code else "connection closed")
            return
        if events & select.POLLIN and not self._hear_receiver():
            return
        if events & select.POLLOUT:
            self._send(SLICE_BYTES)

    # -- connecting -------------------------------------------------------------------------------

    def _connect(self) -> None:
        answer = self._dialer.answer()
        if isinstance(answer, str):
            self._say_waiting(answer)
            return
        self._connection, self._resume = answer, ResumeStream()
        self._say_waiting("receiver to say how much it has" if self._config.is_resuming else "")

    def _adopt(self) -> None:
        config = self._config
        connection = Connection(
            socket.socket(fileno=config.kept), config.kept_start, config.kept_base
        )
        connection.sock.setblocking(False)
        accepted, acked = connection.accepted(), connection.acked()
        if accepted is None or acked is None:
            self._shut(connection.sock)
            return
        self._connection = connection
        self._queue.offset, self._acked = accepted, acked

    def _say_waiting(self, text: str) -> None:
        if text != self._waiting:
            self._waiting = text
            self._pipe.say(waiting=text)

    def _lose(self, reason: str) -> None:
        """Leave a broken connection; go back to the first output the other side has not confirmed
        in full.
        """
        assert self._connection is not None
        connection, self._connection = self._connection, None
        if connection.start >= 0 and not self._config.is_resuming:
            acked = connection.acked()
            place = self._queue.offset if acked is None else min(acked, self._queue.offset)
            if not self._queue.is_empty():
                self._queue.seek(self._queue.boundary(place))
            self._acked = min(place, self._queue.offset)
            self._record()
        self._shut(connection.sock)
        self._pipe.say(lost=reason)
        self._say_waiting(self._dialer.absent(reason, is_patient=connection.start < 0))

    @staticmethod
    def _shut(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)  # the committer's descriptor would keep it open
        sock.close()

    # -- hearing the receiver ---------------------------------------------------------------------

    def _hear_receiver(self) -> bool:
        """Read what the receiver writes; False where the connection is gone."""
        assert self._connection is not None
        try:
            chunk = self._connection.sock.recv(1 << 16)
        except BlockingIOError:
            return True
        except OSError as error:
            self._lose(error.strerror or str(error))
            return False
        if not chunk:
            if self._config.is_resuming or not self._connection.is_counted:
                self._lose("connection closed by the receiver")
                return False
            # `nc` does that and reads on; if it is gone, the next send tells
            self._connection.is_half_closed = True
        elif self._config.is_resuming:
            return self._heed(chunk)
        return True

    def _heed(self, chunk: bytes) -> bool:
        assert self._connection is not None
        try:
            offsets = self._resume.feed(chunk)
        except ValueError as error:
            self._lose(str(error))
            return False
        for has in offsets:
            if self._connection.start >= 0:
                self._acked = max(self._acked, min(has, self._queue.offset))
            elif not self._resume_at(self._connection, has):
                return False
        return True

    def _resume_at(self, connection: Connection, has: int) -> bool:
        if not self._queue.start <= has <= self._queue.end:
            held = f"{self._queue.start} to {self._queue.end}"
            self._lose(
                f"the receiver has {has} bytes, this outbox holds {held}; it belongs to another run"
            )
            return False
        self._queue.seek(has)
        connection.begin(has)
        self._acked = has
        self._say_waiting("")
        return True

    # -- sending ----------------------------------------------------------------------------------

    @staticmethod
    def _may_send(connection: Connection, deadline: float) -> bool:
        poll = select.poll()
        poll.register(connection.sock, select.POLLOUT)
        return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))

    def _send(self, limit: int) -> None:
        connection = self._connection
        assert connection is not None
        if connection.start < 0:
            self._begin(connection)
        views = self._queue.views(limit)
        if not views:
            return
        fault_point("egress.send")
        try:
            count = connection.sock.sendmsg(views)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(error.strerror or str(error))
            return
        now = time.time_ns()
        fault_point("egress.sent")
        complete = self._queue.advance(count)
        self._unsynced += count
        self._record(must_sync=bool(complete))
        for batch in complete:
            fault_point("egress.report")
            self._pipe.say(sent=batch.batch, t_ns=now, accepted=self._queue.offset)

    def _begin(self, connection: Connection) -> None:
        """Before the first byte: begin where an output begins, and give the connection into
        custody.
        """
        self._queue.seek(self._queue.boundary(self._queue.offset))
        connection.begin(self._queue.offset)
        fault_point("egress.keep")
        if self._config.keeper >= 0 and connection.is_counted:
            connection.give_into_custody(self._config.keeper)
            self._pipe.say(kept=True)

    def _record(self, must_sync: bool = False) -> None:
        known = self._file.progress
        wanted = replace(known, accepted=self._queue.offset, acked=self._acked)
        if wanted != known:
            self._file.write(wanted)
        if must_sync or self._unsynced >= SYNC_BYTES:
            self._unsynced = 0
            self._file.sync()

    def _release(self) -> None:
        """Forget what the other side has confirmed, and say so; report the place now and then."""
        connection = self._connection
        if not self._config.is_resuming:
            counted = (
                connection.acked() if connection is not None and connection.start >= 0 else None
            )
            if counted is not None:
                self._acked = min(counted, self._queue.offset)
            elif connection is not None:
                self._acked = self._queue.offset
        last = self._queue.release(self._acked)
        if last is not None:
            self._file.write(Progress(self._queue.offset, self._acked, last.batch, last.end))
            self._file.sync()
            fault_point("egress.release")
            self._pipe.say(released=last.batch, accepted=self._queue.offset)
        elif self._queue.has_more() and time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self._reported_at = time.monotonic()
            self._pipe.say(accepted=self._queue.offset)
