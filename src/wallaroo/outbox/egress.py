"""The egress: one process per TCP sink that sends committed output, in order, over a connection that stays open.

Where it runs: a process of its own, started by the sink's committer: ``python -m wallaroo.outbox.egress CONFIG``.

The law:

* Only what the committer handed over is sent, in batch order; one egress at a time per outbox (a lock that dies with its
  process).
* A byte counts as sent when ``send`` took it.  After every send the place is recorded (``progress``), and before the first
  byte of a connection a second descriptor of it goes to the committer.  Killed alone, the next egress takes that connection
  over and asks the kernel how far it is: nothing lost, nothing twice, in the middle of an output too.  Killed together with
  the driver, at most the last slice (``SLICE_BYTES``) between its send and its record is sent again: rather twice than
  never.
* When a connection breaks, what the other side's kernel had not confirmed is sent again on the next one.  A new connection
  always begins where an output begins.  What a receiver's kernel confirmed and its process never read is lost, unless the
  receiver resumes.
* With ``is_resuming`` the receiver says at every connection how many bytes it has, and from time to time again: exactly
  once.
* Without a driver (end of stdin) it finishes the output in hand, records, and ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import socket
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from wallaroo.errors import WallarooError
from wallaroo.faults import fault_point
from wallaroo.outbox.connection import Connection, begin_connect
from wallaroo.outbox.pipe import EXIT_BROKEN, GREETING, OFFSET, EgressConfig, Message, Pipe
from wallaroo.outbox.progress import Progress, ProgressFile
from wallaroo.outbox.queue import Batch, SendQueue
from wallaroo.outbox.staging import read_staged

SLICE_BYTES = 128 * 1024  # per send: bounds what a double kill can repeat
RETRY_SECONDS = 0.25  # Wallaroo's figure
ACK_POLL_SECONDS = 0.01  # how often the kernel is asked for confirmations while some are missing
REPORT_SECONDS = 0.05  # how often the place is reported inside a batch
FINISH_SECONDS = 1.0  # how long an orderly end waits for the output in hand
SYNC_BYTES = 1 << 20  # durable mode: bytes sent between two fsyncs of the progress inside one batch


class Egress:
    """The loop: hear the committer, keep one connection, send, record, report."""

    def __init__(self, config: EgressConfig, progress: ProgressFile, pipe: Pipe):
        self._config, self._file, self._pipe = config, progress, pipe
        folder = Path(config.staging)
        self._queue = SendQueue(progress.progress.accepted, lambda token: read_staged(folder, token))
        self._acked = self._queue.offset  # without a connection there is nothing better to ask
        self._connecting: socket.socket | None = None
        self._connection: Connection | None = None
        self._greeting: bytearray | None = None  # of a resuming receiver, until it is complete
        self._acks = bytearray()
        self._waiting = ""
        self._retry_at = 0.0
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
        while self._connection and self._connection.start >= 0 and (rest := self._queue.rest_of_output()):
            if not self._may_send(self._connection, deadline):
                break
            self._send(rest)
        self._record(must_sync=True)
        if self._connection:
            self._shut(self._connection.sock)

    # -- one turn ---------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self._is_started and self._connection is None and self._connecting is None and time.monotonic() >= self._retry_at:
            self._begin_connect()
        for descriptor, events in self._poll():
            if descriptor == 0:
                self._obey()
            elif descriptor == 1:
                self._pipe.flush()
            elif self._connecting is not None and descriptor == self._connecting.fileno():
                self._finish_connect()
            elif self._connection is not None and descriptor == self._connection.sock.fileno():
                self._serve(events)
        self._release()

    def _poll(self) -> list[tuple[int, int]]:
        poll = select.poll()
        poll.register(0, select.POLLIN)
        if self._pipe.has_output:
            poll.register(1, select.POLLOUT)
        timeout = 1.0
        if self._connecting is not None:
            poll.register(self._connecting, select.POLLOUT)
        elif self._connection is not None:
            reads = 0 if self._connection.is_half_closed else select.POLLIN
            is_sending = self._queue.has_more() and self._greeting is None
            poll.register(self._connection.sock, reads | (select.POLLOUT if is_sending else 0))
            timeout = 1.0 if self._queue.is_empty() or self._config.is_resuming else ACK_POLL_SECONDS
        elif self._is_started:
            timeout = max(0.0, self._retry_at - time.monotonic())
        return poll.poll(timeout * 1000)

    def _obey(self) -> None:
        for message in self._pipe.hear():
            if "commit" in message:
                self._take(batch_of(message))
            elif "start" in message:
                self._is_started = True
            elif "close" in message:
                self._is_closing = True

    def _take(self, batch: Batch) -> None:
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

    def _begin_connect(self) -> None:
        try:
            self._connecting = begin_connect(self._config.host, self._config.port)
        except OSError as error:
            self._wait_for(error.strerror or str(error))

    def _finish_connect(self) -> None:
        assert self._connecting is not None
        sock, self._connecting = self._connecting, None
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0 and sock.getsockname() == sock.getpeername():
            code = errno.ECONNREFUSED  # a port in the ephemeral range can connect to itself while nobody listens
        if code:
            sock.close()
            self._wait_for(os.strerror(code))
            return
        self._connection, self._acks = Connection(sock), bytearray()
        self._greeting = bytearray() if self._config.is_resuming else None
        self._say_waiting("receiver to say how much it has" if self._config.is_resuming else "")

    def _adopt(self) -> None:
        config = self._config
        connection = Connection(socket.socket(fileno=config.kept), config.kept_start, config.kept_base)
        connection.sock.setblocking(False)
        accepted, acked = connection.accepted(), connection.acked()
        if accepted is None or acked is None:
            self._shut(connection.sock)
            return
        self._connection = connection
        self._queue.offset, self._acked = accepted, acked

    def _wait_for(self, reason: str) -> None:
        self._retry_at = time.monotonic() + RETRY_SECONDS
        self._say_waiting(f"{self._config.host}:{self._config.port} ({reason[:1].lower()}{reason[1:]})")

    def _say_waiting(self, text: str) -> None:
        if text != self._waiting:
            self._waiting = text
            self._pipe.say(waiting=text)

    def _lose(self, reason: str) -> None:
        """Leave a broken connection; go back to the first output the other side has not confirmed in full."""
        assert self._connection is not None
        connection, self._connection = self._connection, None
        self._greeting = None
        if connection.start >= 0 and not self._config.is_resuming:
            acked = connection.acked()
            place = self._queue.offset if acked is None else min(acked, self._queue.offset)
            if not self._queue.is_empty():
                self._queue.seek(self._queue.boundary(place))
            self._acked = min(place, self._queue.offset)
            self._record()
        self._shut(connection.sock)
        self._pipe.say(lost=reason)
        self._wait_for(reason)
        self._retry_at = time.monotonic() if connection.start >= 0 else self._retry_at

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
            self._connection.is_half_closed = True  # `nc` does that and reads on; if it is gone, the next send tells
        elif self._greeting is not None:
            return self._greet(chunk)
        elif self._config.is_resuming:
            self._note_acks(chunk)
        return True

    def _greet(self, chunk: bytes) -> bool:
        assert self._greeting is not None
        assert self._connection is not None
        self._greeting += chunk
        whole = len(GREETING) + OFFSET.size
        if not GREETING.startswith(self._greeting[: len(GREETING)]):
            self._lose("the receiver does not speak the resume protocol; start it with --resume, or drop resume=True")
            return False
        if len(self._greeting) < whole:
            return True
        (has,) = OFFSET.unpack_from(self._greeting, len(GREETING))
        if not self._queue.start <= has <= self._queue.end:
            held = f"{self._queue.start} to {self._queue.end}"
            self._lose(f"the receiver has {has} bytes, this outbox holds {held}; it belongs to another run")
            return False
        rest, self._greeting = bytes(self._greeting[whole:]), None
        self._queue.seek(has)
        self._connection.begin(has)
        self._acked = has
        self._say_waiting("")
        self._note_acks(rest)
        return True

    def _note_acks(self, chunk: bytes) -> None:
        self._acks += chunk
        whole = len(self._acks) // OFFSET.size * OFFSET.size
        if whole:
            (has,) = OFFSET.unpack_from(self._acks, whole - OFFSET.size)
            self._acked = max(self._acked, min(has, self._queue.offset))
            del self._acks[:whole]

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
        """Before the first byte: begin where an output begins, and give the connection into custody."""
        self._queue.seek(self._queue.boundary(self._queue.offset))
        connection.begin(self._queue.offset)
        fault_point("egress.keep")
        if self._config.keeper >= 0 and connection.is_counted:
            custody = json.dumps({"start": connection.start, "base": connection.base}).encode()
            with socket.socket(fileno=os.dup(self._config.keeper)) as keeper:
                socket.send_fds(keeper, [custody], [connection.sock.fileno()])
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
            counted = connection.acked() if connection is not None and connection.start >= 0 else None
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


def batch_of(message: Message) -> Batch:
    """The batch that a ``commit`` message hands over."""
    return Batch(message["commit"], message["start"], message["bytes"], message["outputs"], tuple(message["tokens"]))


def locked(path: Path, pipe: Pipe) -> int:
    """Take the outbox's lock, waiting for an egress of an earlier run to finish; return the descriptor that holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pipe.say(waiting="an earlier run's egress to finish")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def main(text: str) -> int:
    """Run one egress; 0 at an orderly end, ``EXIT_BROKEN`` where the outbox cannot be used."""
    config = EgressConfig(**json.loads(text))
    pipe = Pipe()
    lock = locked(Path(config.staging) / "lock", pipe)
    try:
        progress = ProgressFile(Path(config.staging) / "progress", config.is_durable)
        pipe.say(ready=asdict(progress.progress))
        egress = Egress(config, progress, pipe)
        egress.run()
    except (WallarooError, OSError) as error:  # the process's one gate: the committer tells the user
        pipe.say(broken=f"{error}")
        return EXIT_BROKEN
    finally:
        os.close(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
