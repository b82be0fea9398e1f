"""The loop of the egress: the state machine's sockets and clock.

It waits for the committer, the receiver and the clock, passes their events to `machine`, and
executes the actions that the machine returns.  All decisions, and their invariants, are there.
These are the loop's:

* Before the first byte of a connection a second descriptor of it goes to the committer.  If the
  egress alone is killed, the next one takes that connection over and queries its progress from the
  kernel: no byte is lost or sent twice, even in the middle of an output.
* Bytes from the receiver are read to their end: closing a connection with unread bytes, or before
  the receiver has read everything, resets it and loses what is on its way.
* A release is synced before the committer learns of it, which then removes the output.
* The outbox's lock is held to the end, so the next run's first byte follows this connection's last.
* If another run takes the checkpoint over, the committer is treated as gone: no more of its
  messages are read, and the committed output that it had passed on is sent first.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from wallaroo.connectors.tcp.egress import states
from wallaroo.connectors.tcp.egress.connection import Connection, begin_connect, finish_connect
from wallaroo.connectors.tcp.egress.machine import EgressMachine
from wallaroo.connectors.tcp.outbox import skip_command
from wallaroo.connectors.tcp.pipe import EgressConfig, Message, Pipe
from wallaroo.connectors.tcp.progress import ProgressFile
from wallaroo.durable.ownership import Ownership
from wallaroo.errors import CheckpointError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.instrumentation.tracing import trace_point
from wallaroo.sinks.staging import Staged, StagedToken, read_staged

PLACE_S = 0.05  # between two reports of the place inside a batch
ENDING_S = 0.25  # between two reports of the end of a connection


class Reports:
    """The messages to the committer, without redundant ones."""

    def __init__(self, pipe: Pipe, lock: int, address: str):
        self._pipe = pipe
        self._lock = lock
        self._address = address
        self._waiting = ""
        self._ending = [-1, -1]
        self._due_at = 0.0

    def send(self, message: Message) -> None:
        """Send a message, unless it repeats a state or follows another one too soon."""
        if "waiting" in message:
            if message["waiting"] == self._waiting:
                return
            self._waiting = message["waiting"]
        if "ending" in message:
            ending = message["ending"]
            is_urgent = self._ending == [-1, -1] or not ending[0]
            if ending == self._ending or not (is_urgent or self._is_due(ENDING_S)):
                return
            self._ending = ending
            self._note_ending(*ending)
        self._pipe.send(**message)

    def place(self, accepted: int) -> None:
        """Report how far the output is, but not more often than it is read."""
        if self._is_due(PLACE_S) and not self._pipe.is_congested:
            self._pipe.send(accepted=accepted)

    def _is_due(self, seconds: float) -> bool:
        now = time.monotonic()
        if now < self._due_at:
            return False
        self._due_at = now + seconds
        return True

    def _note_ending(self, missing: int, sent: int) -> None:
        rest = f"has not acknowledged {missing} of {sent} bytes" if missing else "still reads"
        text = f"process {os.getpid()}; {self._address} {rest}"
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, text.encode(), 0)


READ_BYTES = 1 << 16
ASK_S = 0.5  # between two questions whether another run has taken over


class Egress:
    """One outbox's egress; ``run`` is its loop."""

    def __init__(self, config: EgressConfig, record: ProgressFile, pipe: Pipe, lock: int):
        self.machine = EgressMachine(config, record.progress, self._load)
        self._config = config
        self._record = record
        self._pipe = pipe
        self._reports = Reports(pipe, lock, config.address)
        self._owner = Ownership.from_text(config.owner)
        self._ask_at = 0.0  # whether the run still owns its checkpoint
        self._is_taken_over = False
        self._attempt: socket.socket | None = None
        self._connection: Connection | None = None
        if config.inherited_fd >= 0:
            self._take_over()

    def run(self) -> None:
        """Work until the committer has closed or ended, and the connection has ended."""
        self._settle()
        while self.machine.state is not states.State.DONE:
            for descriptor, events in self._poll():
                self._handle(descriptor, events)
            self._settle()
        self._record.sync()

    # -- inputs of the machine --------------------------------------------------------------------

    def _poll(self) -> list[tuple[int, int]]:
        poll = select.poll()
        if self._pipe.is_open and not self._is_taken_over:
            poll.register(0, select.POLLIN)
        if self._pipe.has_output:
            poll.register(1, select.POLLOUT)
        if self._attempt is not None:
            poll.register(self._attempt, select.POLLOUT)
        # poll would report an ended connection over and over
        if self._connection is not None and not self.machine.is_ended:
            poll.register(self._connection.sock, self._events(self._connection))
        return poll.poll(self.machine.timeout_s(time.monotonic()) * 1000)

    def _events(self, connection: Connection) -> int:
        events = select.POLLIN if self.machine.receiver is states.ReceiverState.WRITING else 0
        has_rest = connection.has_rest and self.machine.state is not states.State.DRAINING
        return events | (select.POLLOUT if has_rest or self.machine.has_output else 0)

    def _handle(self, descriptor: int, events: int) -> None:
        if descriptor == 0:
            self.receive_messages()
        elif descriptor == 1:
            self._pipe.flush()
        elif self._attempt is not None and descriptor == self._attempt.fileno():
            self._finish_dialing(self._attempt)
        elif self._connection is not None and descriptor == self._connection.sock.fileno():
            self._serve(self._connection, events)

    def receive_messages(self) -> None:
        """Pass the committer's messages to the machine."""
        for message in self._pipe.receive():
            actions = self.machine.receive_message(message)
            if "commit" in message:
                trace_point("egress.taken")
            self.execute(actions)

    def _finish_dialing(self, sock: socket.socket) -> None:
        self._attempt = None
        try:
            self._connection = finish_connect(sock, self._config.host, self._config.tls)
        except OSError as error:
            self.execute(self.machine.refuse(_reason(error), time.monotonic()))
        else:
            self.execute(self.machine.connect())

    def _serve(self, connection: Connection, events: int) -> None:
        if events & (select.POLLERR | select.POLLNVAL):
            self._lose(connection, connection.error() or "connection closed")
        elif events & select.POLLIN:
            self.read(connection)
        elif events & select.POLLHUP:
            self._lose(connection, connection.error() or "connection closed")
        if events & select.POLLOUT and self._connection is connection:
            self.execute(self.machine.send())

    def read(self, connection: Connection) -> None:
        """Pass bytes of the receiver to the machine."""
        try:
            chunk = connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(connection, _reason(error))
            return
        self.execute(self.machine.receive(chunk, connection.acked(), time.monotonic()))

    def _lose(self, connection: Connection, reason: str) -> None:
        self.execute(self.machine.lose(reason, connection.acked(), time.monotonic()))

    def _settle(self) -> None:
        now = time.monotonic()
        if now >= self._ask_at and not self._is_taken_over:
            self._ask_at = now + ASK_S
            self._is_taken_over = not self._owner.is_held
        if self._is_taken_over or not self._pipe.is_open:
            self.machine.close()
        self.settle(now)

    def settle(self, now: float) -> None:
        """Let the machine do everything that is due."""
        connection = self._connection
        if connection is None:
            self.execute(self.machine.settle(now))
            return
        error = connection.error() if self.machine.state is states.State.DRAINING else ""
        self.execute(self.machine.settle(now, connection.acked(), connection.has_rest, error))

    def _load(self, token: StagedToken) -> Staged:
        if token["file"]:
            self._pipe.send(alive=True)  # reading a large part takes a while
        staging = Path(self._config.staging)
        try:
            return read_staged(staging, token)
        except CheckpointError as error:
            batch = self.machine.queue.batch
            raise CheckpointError(
                f"{error} Or give that output up: {skip_command(staging, batch)}"
            ) from error

    # -- actions of the machine -------------------------------------------------------------------

    def execute(self, actions: Iterable[states.Action]) -> None:
        """Execute the machine's actions in order."""
        for action in actions:
            match action:
                case states.Dial():
                    self._dial()
                case states.Begin(start):
                    self._begin(self._open_connection, start)
                case states.Send(views):
                    self._send(self._open_connection, views)
                case states.HalfClose():
                    fault_point("egress.half_close")
                    self._open_connection.half_close()
                case states.Close(is_abandoned):
                    self._close(self._open_connection, is_abandoned)
                case states.Record(changes):
                    self._record.note(**changes)
                case states.Place(accepted, acked, is_reported):
                    self._record.note_place(accepted, acked)
                    if is_reported:
                        self._reports.place(accepted)
                case states.Release():
                    self._release(action)
                case states.Tell(message):
                    if "sent" in message:
                        fault_point("egress.report")
                    self._reports.send(message)

    @property
    def _open_connection(self) -> Connection:
        assert self._connection is not None
        return self._connection

    def _dial(self) -> None:
        try:
            self._attempt = begin_connect(self._config.host, self._config.port)
        except OSError as error:
            self.execute(self.machine.refuse(_reason(error), time.monotonic()))

    def _begin(self, connection: Connection, start: int) -> None:
        connection.begin(start)
        if self._config.is_resuming:
            return  # the receiver reports its offset: neither this connection nor its end matters
        self._record.note(local_port=connection.sock.getsockname()[1])
        fault_point("egress.hand_over")
        if self._config.handover_fd >= 0 and connection.can_be_continued:
            connection.hand_over(self._config.handover_fd)
            self._pipe.send(handed_over=True)

    def _send(self, connection: Connection, views: Sequence[memoryview]) -> None:
        try:
            if not views:
                connection.flush()
                return
            fault_point("egress.send")
            count = connection.send(views)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(connection, _reason(error))
            return
        t_ns = time.time_ns()
        fault_point("egress.sent")
        self.execute(self.machine.sent(count, t_ns))

    def _close(self, connection: Connection, is_abandoned: bool) -> None:
        self._connection = None
        if is_abandoned:
            connection.abandon()
        else:
            connection.close()

    def _release(self, release: states.Release) -> None:
        self._record.note(
            accepted=release.accepted,
            acked=release.acked,
            released_batch=release.batch,
            released_end=release.end,
            skipped=release.skipped,
        )
        self._record.sync()
        fault_point("egress.release")
        self._pipe.send(released=release.batch, accepted=release.accepted)

    def _take_over(self) -> None:
        """Continue the connection that a killed egress left, exactly where it stopped."""
        config = self._config
        sock = socket.socket(fileno=config.inherited_fd)
        sock.setblocking(False)
        connection = Connection(sock, config.inherited_start, config.inherited_base)
        accepted = connection.accepted()
        acked = connection.acked()
        if accepted is None or acked is None:
            connection.close()
            return
        self._connection = connection
        self.machine.take_over(accepted, acked, connection.is_ended, time.monotonic())


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
