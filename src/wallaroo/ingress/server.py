"""The ingress's loop: one thread, all sources, no work per event but walking frame headers.

Where it runs: ingress.
"""

from __future__ import annotations

import contextlib
import resource
import selectors
import time

from wallaroo.ingress.config import IngressConfig, IngressSource
from wallaroo.ingress.connection import ReadBuffer
from wallaroo.ingress.connector.listener import ConnectorListener
from wallaroo.ingress.listener import Listener, ListenerContext
from wallaroo.ingress.source_listener import SourceListener
from wallaroo.processes.child import Parent
from wallaroo.tls_sockets import Address

PUBLISH_S = 0.005  # under load: one publish (and fsync) for what came in this time
PAUSE_S = 0.001  # after a pass that read little, so that many small messages come with one read
LITTLE_BYTES = 64 * 1024
LOOK_S = 0.02  # between looks at a paused source's backlog
LOOK_AFTER_S = 1.0


class Ingress:
    """Reads all sources of an application that listen into their spools."""

    def __init__(self, config: IngressConfig, parent: Parent):
        _allow_many_files()
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
        )
        self._listeners = [_listener(source, context) for source in config.sources]
        for fileno in parent.filenos:
            self._selector.register(fileno, selectors.EVENT_READ, lambda buffer: self._look())

    def listen(self) -> tuple[dict[str, Address], dict[str, Address]]:
        """Open all ports; return the addresses by source name, and those for acknowledged
        senders.
        """
        both = {listener.source.name: listener.listen() for listener in self._listeners}
        return {name: plain for name, (plain, _) in both.items()}, {
            name: acked for name, (_, acked) in both.items() if acked
        }

    def run(self) -> None:
        """Read until the parent is gone or asks to stop."""
        looked_after_at = time.monotonic()
        try:
            while not self._parent.is_stopping:
                is_any_paused = any(listener.is_paused for listener in self._listeners)
                events = self._selector.select(LOOK_S if is_any_paused else LOOK_AFTER_S)
                began = time.monotonic()
                self._parent.beat()
                count = sum([key.data(self._buffer) for key, _ in events])
                self._publish(is_quiet=count < LITTLE_BYTES)
                if began - looked_after_at > LOOK_AFTER_S:
                    looked_after_at = began
                    for listener in self._listeners:
                        listener.look_after(began)
                if count < LITTLE_BYTES:
                    time.sleep(max(0.0, began + PAUSE_S - time.monotonic()))
        finally:
            with contextlib.ExitStack() as stack:  # an error of one does not keep another open
                for listener in self._listeners:
                    stack.callback(listener.close)

    def _publish(self, is_quiet: bool) -> None:
        now = time.monotonic()
        for listener in self._listeners:
            if listener.is_paused or (
                listener.is_changed and (is_quiet or now - listener.published_at >= PUBLISH_S)
            ):
                listener.look_at_backlog()
                if listener.is_changed:
                    listener.publish()

    def _look(self) -> int:
        self._parent.look()
        return 0


def _listener(source: IngressSource, context: ListenerContext) -> Listener:
    if source.connector is None:
        return SourceListener(source, context)
    return ConnectorListener(source, source.connector, context)


def _allow_many_files() -> None:
    """Have as many clients as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
