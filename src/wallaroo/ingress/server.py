"""The ingress's loop: one thread for all sources.

The only work per event is walking frame headers.  While the run pauses between two batches, input
that no sender wants acknowledged is appended to its spool as it arrives, but published, which syncs
it, only shortly before the next batch.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Iterable

from wallaroo.ingress.config import IngressConfig, IngressSource
from wallaroo.ingress.connection import ReadBuffer
from wallaroo.ingress.listener import SILENT_S, Listener, ListenerContext
from wallaroo.ingress.source_listener import SourceListener
from wallaroo.network.connection_budget import Budget, connections_max
from wallaroo.network.tls_sockets import Address
from wallaroo.processes.child import Parent
from wallaroo.processes.open_files import allow_many_files
from wallaroo.spool.waking import run_pauses_until

PUBLISH_S = 0.005  # under load: one publish (and fsync) for everything that arrived in this time
HELD_S = 0.05  # maximum between two publications, however long the run pauses
LEAD_S = 0.002  # before a batch begins, to the time that two publications took
LEAD_DECAY = 0.9  # factor of the longest publication, with each that is shorter
PAUSE_S = 0.001  # after a pass that read little, so that many small messages arrive in one read
BUSY_PAUSE_S = 0.004  # the same, if there were many: each pass has a publication (and fsync)
SPARSE_S = 0.004  # after a pass that waited so long for its input, the next one does not pause
LITTLE_BYTES = 64 * 1024
CONNECTIONS_MAX = 1 << 16
MANY_EVENTS = 64  # in a pass
LOOK_S = 0.02  # between polls of a paused source's backlog
LOOK_AFTER_S = 1.0


class Ingress:
    """The loop that reads an application's listening sources into their spools."""

    def __init__(self, config: IngressConfig, parent: Parent):
        allow_many_files()
        self._parent = parent
        self._selector = selectors.DefaultSelector()
        self._buffer = ReadBuffer()
        self._publication_s = 0.0  # about the longest of the newest ones
        # monotonic, when input is published that waits for a batch; None: there is none
        self._held_until: float | None = None
        context = ListenerContext(
            selector=self._selector,
            is_stopping=parent.look,
            is_durable=config.is_durable,
            checkpoint=config.checkpoint,
            backlog_bytes_max=config.backlog_bytes_max,
            handshake_s=config.handshake_s,
            replica=config.replica,
            budget=Budget(connections_max(CONNECTIONS_MAX)),
        )
        self._listeners = [_listener(source, context) for source in config.sources]
        for fileno in parent.filenos:
            self._selector.register(fileno, selectors.EVENT_READ, lambda buffer: self._look())

    def listen(self) -> tuple[dict[str, Address], dict[str, Address]]:
        """Open all ports; return the addresses by source name, and those for acknowledged ones."""
        both = {listener.source.name: listener.listen() for listener in self._listeners}
        return {name: plain for name, (plain, _) in both.items()}, {
            name: acked for name, (_, acked) in both.items() if acked
        }

    def run(self) -> None:
        """Read until the parent ends or asks to stop."""
        looked_after_at = time.monotonic()
        try:
            while not self._parent.is_stopping:
                asked_ns = time.time_ns()
                asked = time.monotonic()
                events = self._selector.select(self._wait_s())
                began = time.monotonic()
                before = self._unanswered_events()
                self._parent.beat()
                count = sum([key.data(self._buffer) for key, _ in events])
                for listener in self._listeners:
                    listener.note_read(asked_ns)
                self._publish(is_quiet=count < LITTLE_BYTES)
                if began - looked_after_at > LOOK_AFTER_S:
                    looked_after_at = began
                    for listener in self._listeners:
                        listener.look_after(began)
                if began - asked > SPARSE_S:
                    continue  # messages this far apart do not arrive together
                until = began + pause_s(count, self._unanswered_events() - before)
                if self._held_until is not None:
                    until = min(until, self._held_until)
                time.sleep(max(0.0, until - time.monotonic()))
        finally:
            with contextlib.ExitStack() as stack:  # an error of one does not leave another open
                for listener in self._listeners:
                    stack.callback(listener.close)

    def _wait_s(self) -> float:
        held_s = None
        if self._held_until is not None:
            held_s = max(0.0, self._held_until - time.monotonic())
        return wait_s(self._listeners, held_s)

    def _unanswered_events(self) -> int:
        return sum([listener.unanswered_events for listener in self._listeners])

    def _publish(self, is_quiet: bool) -> None:
        now = time.monotonic()
        batch_at = run_pauses_until() - LEAD_S - 2 * self._publication_s
        held: list[float] = []
        for listener in self._listeners:
            is_due = listener.is_due(now)
            held_until = now
            if listener.is_changed and not (is_due or listener.is_paused):
                held_until = publication_at(listener, now, batch_at, is_quiet)
            if held_until > now:
                held.append(held_until)
            elif is_due or listener.is_paused or listener.is_changed:
                listener.look_at_backlog()
                if is_due or listener.is_changed:
                    listener.publish()
                    took_s = listener.published_at - now
                    self._publication_s = max(took_s, LEAD_DECAY * self._publication_s)
                continue
            if listener.is_awaiting_commits:
                listener.look_at_commits()
        self._held_until = min(held, default=None)

    def _look(self) -> int:
        self._parent.look()
        return 0


def publication_at(listener: Listener, now: float, batch_at: float, is_quiet: bool) -> float:
    """Return when a listener's new input is due to be published; a time before ``now``: at once.

    ``batch_at``: just before the run's next batch begins.  ``is_quiet``: little was read.
    """
    due = now if is_quiet else listener.published_at + PUBLISH_S
    if listener.may_wait:
        due = max(due, min(batch_at, listener.published_at + HELD_S))
    return due


def wait_s(listeners: Iterable[Listener], held_s: float | None = None) -> float:
    """Return how many seconds to wait for input before unpublished input is published.

    ``held_s``: so long some of it is held back; None: none is.
    """
    is_looking = any(listener.is_paused or listener.is_awaiting_commits for listener in listeners)
    seconds = LOOK_S if is_looking else SILENT_S
    if any(listener.is_changed for listener in listeners):
        return min(seconds, PUBLISH_S if held_s is None else held_s)
    return seconds


def pause_s(read_bytes: int, events: int) -> float:
    """Return the seconds between passes; ``events``: those of unacknowledged senders."""
    if read_bytes >= LITTLE_BYTES:
        return 0.0
    return BUSY_PAUSE_S if events >= MANY_EVENTS else PAUSE_S


def _listener(source: IngressSource, context: ListenerContext) -> Listener:
    if source.connector is None:
        return SourceListener(source, context)
    from wallaroo.ingress.connector_listener import ConnectorListener

    return ConnectorListener(source, source.connector, context)
