"""The ingress's loop: one thread for all sources.

The only work per event is walking frame headers.
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

PUBLISH_S = 0.005  # under load: one publish (and fsync) for everything that arrived in this time
PAUSE_S = 0.001  # after a pass that read little, so that many small messages arrive in one read
BUSY_PAUSE_S = 0.004  # the same, if they were many: each pass has a publication (and fsync)
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
                events = self._selector.select(wait_s(self._listeners))
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
                until = began + pause_s(count, self._unanswered_events() - before)
                time.sleep(max(0.0, until - time.monotonic()))
        finally:
            with contextlib.ExitStack() as stack:  # an error of one does not leave another open
                for listener in self._listeners:
                    stack.callback(listener.close)

    def _unanswered_events(self) -> int:
        return sum([listener.unanswered_events for listener in self._listeners])

    def _publish(self, is_quiet: bool) -> None:
        now = time.monotonic()
        for listener in self._listeners:
            is_due = listener.is_due(now)
            if (
                is_due
                or listener.is_paused
                or (listener.is_changed and (is_quiet or now - listener.published_at >= PUBLISH_S))
            ):
                listener.look_at_backlog()
                if is_due or listener.is_changed:
                    listener.publish()
            elif listener.is_awaiting_commits:
                listener.look_at_commits()

    def _look(self) -> int:
        self._parent.look()
        return 0


def wait_s(listeners: Iterable[Listener]) -> float:
    """Return how many seconds to wait for input before unpublished input is published."""
    if any(listener.is_changed for listener in listeners):
        return PUBLISH_S
    is_looking = any(listener.is_paused or listener.is_awaiting_commits for listener in listeners)
    return LOOK_S if is_looking else SILENT_S


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
