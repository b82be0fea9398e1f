"""Driver side of one generation of resident tasks.

A generation lasts from the start of its tasks to their end.

The invariant: a generation has one number of tasks, each of which owns the same key groups for its
lifetime. If one task is lost the generation is over, and the next one has another address, so tasks
of an earlier generation cannot reach the driver.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import queue
import secrets
import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wallaroo.engine.report import TaskReport
from wallaroo.errors import PeerError
from wallaroo.instrumentation.tracing import trace_point
from wallaroo.network.proved_connections import (
    IDENTIFY_S,
    SECRET_BYTES,
    Address,
    DriverEndpoint,
    TaskListener,
)
from wallaroo.network.tls import Pem
from wallaroo.runtime.resident.framing import (
    AWAITING,
    LOST,
    Ahead,
    Epoch,
    Hello,
    Welcome,
    packed_for_tasks,
    receive,
    send,
)
from wallaroo.runtime.tasks.job import BatchJob

LOOK_S = 0.1  # while tasks start: between two checks that they still can
START_S = 120.0  # for all tasks to start, on a crowded machine
LOSS_S = 0.5  # once a task is lost: for the others to report the cause
# maximum size of a message to a task that does not read yet: it fits the socket buffer, so that
# driver and task never wait for each other
UNREAD_BYTES_MAX = 32 * 1024


def _nothing_ahead(epoch: Epoch) -> None:
    """Return None: no epoch is planned ahead."""


class LostTaskError(Exception):
    """The loss of a task, at its start or in an epoch.

    ``reports``: those of the other tasks.
    """

    reports: Sequence[TaskReport] = ()


class Arrival(NamedTuple):
    """An authenticated task."""

    hello: Hello
    connection: socket.socket


@dataclass(frozen=True, slots=True)
class MeetingPoint:
    """Driver's address for a generation's tasks: a path or a host."""

    address: str  # the path, or the host on which to listen
    reachable_as: str = ""  # the name by which tasks reach that host; "": it is a path
    pem: Pem | None = None  # with which driver and tasks listen; None: without TLS

    def listen(self) -> TaskListener:
        """Begin to listen.  Raises PeerError."""
        try:
            listener = TaskListener(
                self.address, secrets.token_bytes(SECRET_BYTES), self.reachable_as
            )
        except OSError as error:
            fix = f"See that this host has the address {self.address}."
            if not self.reachable_as:
                fix = "Set TMPDIR to a folder with a shorter name."
            raise PeerError(
                f"the tasks cannot be reached through {self.address}: {error.strerror or error}. "
                f"{fix}"
            ) from error
        listener.secure(self.pem)
        return listener


class ResidentTasks:
    """A generation of ``count`` tasks, which connect to this process."""

    def __init__(self, meeting_point: MeetingPoint, count: int):
        self.count = count
        self._pem = meeting_point.pem
        self._connections: dict[int, socket.socket] = {}
        self._waiting: dict[int, int] = {}  # tasks without a report, by descriptor
        self._awaiting: set[int] = set()  # those among them that wait for others
        self._waiting_since = 0.0
        self._arrived: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._listener = meeting_point.listen()
        self._listener.begin(self._receive_hello)

    @property
    def endpoint(self) -> DriverEndpoint:
        return self._listener.endpoint

    def welcome(
        self, common: BatchJob, look: Callable[[], None], replicas: tuple[tuple[int, ...], ...] = ()
    ) -> None:
        """Wait until all tasks have connected to the driver and to each other.

        ``look`` raises if they can no longer connect; ``replicas`` is the `Welcome`'s.
        """
        addresses: dict[int, Address] = {}
        until = time.monotonic() + START_S
        while len(self._connections) < self.count:
            look()
            if time.monotonic() > until:
                raise LostTaskError(f"{self.count - len(addresses)} tasks did not start")
            try:
                hello, connection = self._arrived.get(timeout=LOOK_S)
            except queue.Empty:
                continue
            if hello.address == LOST:
                connection.close()
                raise LostTaskError(f"task {hello.index} ended while it started")
            self._connections[hello.index] = connection
            addresses[hello.index] = hello.address
        self._listener.close()  # tasks that connect later are useless
        ordered = tuple(addresses[index] for index in range(self.count))
        welcome = pickle.dumps(Welcome(common, ordered, self._pem, replicas))
        self._send_all(itertools.repeat(welcome, self.count))
        self._gather()

    def _receive_hello(self, connection: socket.socket) -> None:
        """Receive a task's hello, in the thread of the connection."""
        connection.settimeout(IDENTIFY_S)
        try:
            hello: Hello = pickle.loads(receive(connection))
        except (EOFError, OSError):  # the task has ended; Spark's second attempt at it reports that
            connection.close()
        else:
            self._arrived.put(Arrival(hello, connection))

    def run(
        self, epoch: Epoch, plan_ahead: Callable[[Epoch], Ahead | None] = _nothing_ahead
    ) -> list[TaskReport]:
        """Run one epoch; return all reports.

        Raises LostTaskError.  ``plan_ahead`` is called while the tasks work, and returns what they
        may start on after reporting.
        """
        self._send_all(packed_for_tasks(epoch, self.count))
        trace_point("epoch.sent")
        ahead = plan_ahead(epoch)
        if ahead is not None:
            self._send_ahead(list(packed_for_tasks(ahead, self.count)))
        return self._gather()

    def _send_ahead(self, messages: Sequence[bytes]) -> None:
        if max(map(len, messages)) > UNREAD_BYTES_MAX:
            return
        for index, message in enumerate(messages):
            with contextlib.suppress(OSError):  # a lost task is noticed by its missing report
                send(self._connections[index], message)
        trace_point("ahead.sent")

    def _send_all(self, messages: Iterable[bytes]) -> None:
        """Send a message to each task."""
        for index, message in enumerate(messages):
            connection = self._connections[index]
            connection.settimeout(None)
            try:
                send(connection, message)
            except OSError as error:
                raise LostTaskError(f"task {index} has gone") from error

    def _gather(self) -> list[TaskReport]:
        """Return the reports of all tasks.

        Raises LostTaskError if a task is lost, unless an error in another task's report explains
        that; the others get ``LOSS_S`` to report it: they may be waiting for the lost one, or busy
        for long.
        """
        by_task: dict[int, tuple[TaskReport, ...]] = {}
        self._awaiting = set()
        self._waiting_since = time.monotonic()
        lost: LostTaskError | None = None
        until: float | None = None
        waiting = {one.fileno(): index for index, one in self._connections.items()}
        self._waiting = waiting
        with select.epoll() as arriving:  # unlike poll, it does not ask every task again
            for descriptor in waiting:
                arriving.register(descriptor, select.EPOLLIN)
            while waiting:
                ready = arriving.poll(None if until is None else max(0.0, until - time.monotonic()))
                if not ready:
                    break
                for descriptor, _ in ready:
                    index = waiting[descriptor]
                    try:
                        message = pickle.loads(receive(self._connections[index]))
                        if message == AWAITING:
                            self._awaiting.add(index)
                            continue
                        by_task[index] = message
                    except (EOFError, OSError):
                        lost = LostTaskError(f"task {index} has gone")
                        until = until or time.monotonic() + LOSS_S
                        self._waiting = {}
                    arriving.unregister(descriptor)
                    del waiting[descriptor]
                    trace_point("epoch.reported")
        reports = [report for index in sorted(by_task) for report in by_task[index]]
        if lost is not None and all(report.error is None for report in reports):
            lost.reports = reports
            raise lost
        return reports

    def late(self, seconds: float) -> set[int]:
        """Return the tasks that all others wait for, if they do so for this long; for any thread.

        Without a report of who waits for whom these are all whose own report is missing.
        """
        if time.monotonic() - self._waiting_since < seconds:
            return set()
        waiting = set(self._waiting.values())
        return waiting - self._awaiting or waiting

    def drop(self, index: int) -> None:
        """Count a task as lost that neither answers nor disconnects; for any thread."""
        with contextlib.suppress(OSError):
            self._connections[index].shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let the tasks end."""
        self._listener.close()
        while not self._arrived.empty():
            self._arrived.get().connection.close()
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


class Losses:
    """Bound on lost tasks.

    A batch that loses tasks repeatedly is to blame.
    """

    def __init__(self, count_max: int, seconds: float):
        self._count_max = count_max
        self._seconds = seconds
        self._at: list[float] = []

    def note(self) -> bool:
        """Record a loss; return whether to continue."""
        now = time.monotonic()
        self._at = [at for at in self._at if now - at < self._seconds] + [now]
        return len(self._at) <= self._count_max
