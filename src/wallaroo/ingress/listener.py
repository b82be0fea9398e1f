"""The listener of one source, for any protocol: port and spool."""

from __future__ import annotations

import selectors
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from wallaroo.durable.levels import Durability, is_synced
from wallaroo.errors import PeerError
from wallaroo.ingress.acks import StreamNumbers
from wallaroo.ingress.config import IngressSource
from wallaroo.ingress.connection import ReadBuffer
from wallaroo.ingress.source_store import open_store
from wallaroo.network.connection_budget import Budget, Visitor
from wallaroo.network.replica import Replica
from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import Address, Socket, TlsSocket, server_context
from wallaroo.spool.writer import SpoolWriter

OnClient = Callable[[Socket, str], object]

LISTEN_BACKLOG = 1024
ACCEPTS_MAX = 64  # per pass; the connected clients are served in between


class Ports:
    """The sockets that accept clients of one source.

    They pause while all that may be connected have proved themselves, and while the system has no
    file descriptors for more.
    """

    def __init__(
        self,
        name: str,
        host: str,
        selector: selectors.BaseSelector,
        log: Callable[[str], None],
        budget: Budget,
        tls: TLS | None = None,
    ):
        """Prepare to listen.  Raises PeerError if the files of ``tls`` cannot be used."""
        self._name = name
        self._host = host
        self._selector = selector
        self._log = log
        self._budget = budget
        self._context = server_context(tls) if tls is not None else None
        self._listeners: list[tuple[socket.socket, OnClient]] = []
        self._is_waiting = False  # whether it waits for others to disconnect

    def open(self, port: int, on_client: OnClient) -> Address:
        """Listen on a port (0: any); return the address; raise PeerError if it is unavailable."""
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                self._host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(LISTEN_BACKLOG)
        except OSError as error:
            raise PeerError(
                f"source '{self._name}' cannot listen on {self._host}:{port}: "
                f"{error.strerror or error}. "
                "Stop the program that uses the port, or give the source another one."
            ) from None
        listener.setblocking(False)
        self._listeners.append((listener, on_client))
        self._watch(listener, on_client)
        return self._host, listener.getsockname()[1]

    def retry(self) -> None:
        """Accept again after a forced pause."""
        if self._is_waiting:
            self._is_waiting = False
            for listener, on_client in self._listeners:
                self._watch(listener, on_client)

    def close(self) -> None:
        for listener, _ in self._listeners:
            listener.close()

    def _watch(self, listener: socket.socket, on_client: OnClient) -> None:
        self._selector.register(
            listener, selectors.EVENT_READ, partial(self._accept, listener, on_client)
        )

    def _accept(self, listener: socket.socket, on_client: OnClient, buffer: ReadBuffer) -> int:
        for _ in range(0 if self._is_waiting else ACCEPTS_MAX):
            if self._budget.is_full:
                self._pause(f"{self._budget.most} are connected")
                break
            try:
                sock, address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                break
            except OSError as error:
                self._budget.close_oldest()
                self._pause(str(error.strerror))
                break
            sock.setblocking(False)
            client = TlsSocket(sock, self._context) if self._context is not None else sock
            on_client(client, f"{address[0]}:{address[1]}")
        return 0

    def _pause(self, why: str) -> None:
        self._log(f"cannot accept more clients: {why}; new ones wait")
        self._is_waiting = True
        for listener, _ in self._listeners:
            self._selector.unregister(listener)


HELD_BYTES = 256 * 1024  # so many are published without waiting for the run
SILENT_S = 0.25  # between two publications while clients are connected but silent


@dataclass(frozen=True, slots=True)
class ListenerContext:
    """The state shared by all listeners of an ingress."""

    selector: selectors.BaseSelector
    is_stopping: Callable[[float], bool]
    is_durable: bool
    checkpoint: str
    backlog_bytes_max: int
    handshake_s: float
    budget: Budget  # the process's connections
    replica: Replica | None = None


class Listener(ABC):
    """The reader of one source's clients, into its spool."""

    def __init__(
        self,
        source: IngressSource,
        context: ListenerContext,
        streams_of: Callable[[SpoolWriter], StreamNumbers] = StreamNumbers,
    ):
        self.source = source
        self.is_changed = True  # whether there is something to publish
        self.published_at = 0.0
        self.read_ns = 0  # when the clients' sockets are known to have been read last
        self.unanswered_events = 0  # stored so far, from clients that wait for no acknowledgement
        self._selector = context.selector
        self._store = open_store(
            Path(source.folder),
            is_durable=is_synced(source.durability, context.is_durable),
            checkpoint=context.checkpoint,
            backlog_bytes_max=context.backlog_bytes_max,
            is_stopping=context.is_stopping,
            log=self._log,
            streams_of=streams_of,
            awaits_commits=source.durability is Durability.STORE,
            replica=context.replica,
        )
        self._budget = context.budget
        self._crowded_out = 0  # connections that made room since the last report
        self._ports = Ports(
            source.name, source.host, self._selector, self._log, context.budget, source.tls
        )

    @property
    def is_paused(self) -> bool:
        """Return whether the backlog is at its bound and nothing is read."""
        return self._store.is_paused

    def note_read(self, clock_ns: int) -> None:
        """Note that all sockets that were readable at a reading of the clock have been read."""
        if not self.is_paused:
            self.read_ns = clock_ns

    @property
    def may_wait(self) -> bool:
        """Return whether what is not published yet is little, and no client waits for an answer."""
        return not self._is_answering() and self._store.writer.unpublished_bytes < HELD_BYTES

    def is_due(self, now: float) -> bool:
        """Return whether clients are to be reported as silent (``now``: monotonic)."""
        return self._connected() > 0 and now - self.published_at >= SILENT_S

    @abstractmethod
    def listen(self) -> tuple[Address, Address | None]:
        """Open the ports; return clients' address, then acknowledged senders'.

        Raises PeerError if one is not available.
        """

    def publish(self) -> None:
        """Make appended frames visible and, if durable, safe; then answer the clients."""
        self._store.connections = self._connected()
        self._store.as_of_ns = self.read_ns if self._store.connections else 0
        self._store.publish()
        self.published_at = time.monotonic()
        self.is_changed = False
        self._store.answers.look()
        self._answer_all()

    @property
    def is_awaiting_commits(self) -> bool:
        """Return whether a client waits for the commit of its input."""
        return self._store.answers.are_awaited

    def look_at_commits(self) -> None:
        """Answer clients whose input was committed."""
        if self._store.answers.look():
            self._answer_all()

    def look_at_backlog(self) -> None:
        """Stop reading when the backlog is at its bound; resume when it is well below."""
        is_at_bound = self._store.backlog.is_at_bound()
        if is_at_bound is None or is_at_bound == self._store.is_paused:
            return
        self._store.is_paused = is_at_bound
        self.is_changed = True
        if is_at_bound:
            self._pause_all()
        else:
            self._resume_all()

    def look_after(self, now: float) -> None:
        """Do the tasks that are due about once a second (``now``: monotonic)."""
        self._look_after_clients(now)
        if self._crowded_out:
            self._log(
                f"closed {self._crowded_out} connections that had sent nothing whole, to make "
                f"room for others"
            )
            self._crowded_out = 0
        self.publish()
        self._store.remove_consumed()
        self._ports.retry()

    @abstractmethod
    def close(self) -> None:
        """Publish and close everything."""

    @abstractmethod
    def _connected(self) -> int:
        """Return the number of connected clients."""

    @abstractmethod
    def _is_answering(self) -> bool:
        """Return whether a client may wait for the acknowledgement of its messages."""

    @abstractmethod
    def _answer_all(self) -> None:
        """Send clients the acknowledgements that are now safe."""

    @abstractmethod
    def _pause_all(self) -> None:
        """Stop reading from clients."""

    @abstractmethod
    def _resume_all(self) -> None:
        """Read from all clients again."""

    @abstractmethod
    def _look_after_clients(self, now: float) -> None:
        """Close clients that did not finish their handshake in time."""

    def _enter(self, close: Callable[[], object]) -> Visitor:
        """Count a connection; ``close`` ends it if it has to make room."""

        def crowd_out() -> None:
            self._crowded_out += 1
            close()

        visitor = self._budget.enter(crowd_out)
        assert visitor is not None  # a port accepts none if the budget is full
        return visitor

    def _log(self, what: str) -> None:
        print(f"ingress: source '{self.source.name}': {what}", file=sys.stderr, flush=True)
