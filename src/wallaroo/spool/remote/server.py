"""``python -m wallaroo.spool.remote.server``: the server of spool ranges.

Where it runs: range server, a process of its own on the driver's host; one thread for all
connections.  It serves ranges of all spools under a root to the executors of other hosts.  It only
reads spools: neither slow or numerous readers nor its own failure affect the writers of the spools.
If the hosts share no folder, it also serves the files of the checkpoint (``remote.files``).  The
protocol is in ``remote.wire``.

Ranges go from file to socket within the kernel.  Each connection is a session
(``session``); each time it is resumed it sends one slice, so that all readers make progress.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import selectors
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from selectors import EVENT_READ

from wallaroo.errors import CheckpointError, PeerError
from wallaroo.network.connection_budget import Budget, connections_max
from wallaroo.network.hmac_auth import CHALLENGE_BYTES, sign, verify
from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import Address, TlsSocket, server_context
from wallaroo.processes.child import Parent, configuration, end_of, say
from wallaroo.processes.open_files import allow_many_files
from wallaroo.spool.format import Segment, corrupt
from wallaroo.spool.reader import SpoolReader, open_segment
from wallaroo.spool.remote import wire
from wallaroo.spool.remote.files import CheckpointFiles
from wallaroo.spool.remote.session import AUTHENTICATION_S_MAX, ProtocolError, RangeSession, Waiting

CONNECTIONS_MAX = 4096  # one per Python worker of the cluster, with room
DESCRIPTORS = 2  # a connection has its socket, and the file that it is sent
LISTEN_BACKLOG = 512  # all workers of a cluster may connect at the same time
FULL = "full"  # key of reports that are not repeated
SILENT = "silent"
TICK_S = 1.0  # between checks for clients that do not prove themselves

Part = tuple[Segment, int, int]


@dataclass(frozen=True, slots=True)
class RangeConfig:
    """The spools that a range server serves, its address, and its secret."""

    root: str
    host: str
    port: int  # 0: any free one
    secret: str = field(repr=False)  # hexadecimal
    tls: TLS | None = None
    connections_max: int = CONNECTIONS_MAX
    tick_s: float = TICK_S
    authentication_s: float = AUTHENTICATION_S_MAX
    checkpoint: str = ""  # the folder whose files are served; empty: none
    is_synced: bool = False  # whether files that are added to it survive a power cut


class RangeServer:
    """The server of a root's spools, for clients that know the secret."""

    def __init__(self, config: RangeConfig, parent: Parent):
        self._root = Path(config.root)
        is_served = bool(config.checkpoint)
        self._files = (
            CheckpointFiles(Path(config.checkpoint), config.is_synced) if is_served else None
        )
        self._secret = bytes.fromhex(config.secret)
        self._parent = parent
        self._bind_to = (config.host, config.port)
        self._context = server_context(config.tls) if config.tls is not None else None
        self._selector = selectors.DefaultSelector()
        self._sessions: dict[int, RangeSession] = {}
        allow_many_files()
        self._budget = Budget(connections_max(config.connections_max, DESCRIPTORS))
        self._config = config
        self._listener: socket.socket | None = None
        self._reported: set[str] = set()
        for fileno in parent.filenos:
            self._selector.register(fileno, EVENT_READ, parent.look)

    def listen(self) -> Address:
        """Open the port; return its address.  Raises PeerError if it is not available."""
        host, port = self._bind_to
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family, backlog=LISTEN_BACKLOG)
        except OSError as error:
            raise PeerError(
                f"spool ranges cannot be served on {host}:{port}: {error.strerror or error}. "
                "Name an address of this host that executors reach, and a port that no other "
                "program uses (0: any)."
            ) from None
        listener.setblocking(False)
        self._listener = listener
        self._selector.register(listener, EVENT_READ, self._accept)
        return host, listener.getsockname()[1]

    def run(self) -> None:
        """Serve until the parent ends or asks to stop."""
        looked_at = time.monotonic()
        while not self._parent.is_stopping:
            self._parent.beat()
            for key, _ in self._selector.select(self._config.tick_s):
                turn: Callable[[], object] = key.data
                turn()
            if time.monotonic() - looked_at > self._config.tick_s:
                looked_at = time.monotonic()
                self._budget.close_late(looked_at)

    def _accept(self) -> None:
        try:
            assert self._listener is not None
            sock, address = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # the system is out of files; those that wait are retried
            self._budget.close_oldest()
            return
        session = RangeSession(sock, f"{address[0]}:{address[1]}")
        close = partial(self._turn_away, session)
        visitor = self._budget.enter(close, self._config.authentication_s)
        if visitor is None and self._make_room():
            visitor = self._budget.enter(close, self._config.authentication_s)
        if visitor is None:
            sock.close()  # it tries again
            self._log_once(FULL, f"{self._budget.most} readers are busy; more have to wait")
            return
        self._reported.discard(FULL)
        sock.setblocking(False)
        # a host that vanished does not hold its place
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is not None:
            session.socket = TlsSocket(sock, self._context)
        session.visitor = visitor
        session.waits = self._serve_session(session)
        self._sessions[session.socket.fileno()] = session
        self._resume(session)

    def _make_room(self) -> bool:
        """Close the longest idle reader, if any; it reconnects."""
        for session in self._sessions.values():
            if session.is_idle:
                self._close(session)
                return True
        return False

    def _resume(self, session: RangeSession) -> None:
        """Resume a session until it has to wait; an error that ends it ends nothing else."""
        if session.is_closed:  # earlier in this pass
            return
        try:
            awaited = next(session.waits)
        except ConnectionError:  # the client may; one that still needs a range connects again
            self._close(session)
        except (ProtocolError, CheckpointError, OSError) as error:
            _log(f"closed {session.peer}: {error}")
            self._close(session)
        else:
            self._await(session, awaited)

    def _await(self, session: RangeSession, awaited: int) -> None:
        turn = partial(self._resume, session)
        if not session.awaited:
            self._selector.register(session.socket, awaited, turn)
        elif session.awaited != awaited:
            self._selector.modify(session.socket, awaited, turn)
        session.awaited = awaited

    def _close(self, session: RangeSession) -> None:
        if session.awaited:
            self._selector.unregister(session.socket)
        session.visitor.leave()
        del self._sessions[session.socket.fileno()]
        session.waits.close()
        session.socket.close()

    def _turn_away(self, session: RangeSession) -> None:
        """Close a connection that did not authenticate in time, or gives way to others."""
        self._log_once(
            SILENT, f"closed {session.peer}: it sent nothing useful; others are not logged"
        )
        self._close(session)

    def _log_once(self, kind: str, what: str) -> None:
        if kind not in self._reported:
            self._reported.add(kind)
            _log(what)

    def _serve_session(self, session: RangeSession) -> Waiting:
        yield from self._authenticate(session)
        session.visitor.prove()
        session.visitor.within(math.inf)
        number = session.socket.fileno()
        while True:
            # last in line to be closed
            self._sessions[number] = self._sessions.pop(number)
            session.is_idle = True
            yield from session.receive(wire.REQUEST.size)
            session.is_idle = False
            kind, name_bytes, low, high = wire.REQUEST.unpack(session.received)
            if not 0 < name_bytes <= wire.NAME_BYTES_MAX:
                raise ProtocolError(f"it asked for a name of {name_bytes} bytes")
            yield from session.receive(name_bytes)
            name = session.received.decode("utf-8", "replace")
            if kind == wire.RANGE:
                yield from self._serve(session, name, low, high)
            else:
                yield from self._serve_file(session, kind, name, high)

    def _authenticate(self, session: RangeSession) -> Waiting:
        challenge = secrets.token_bytes(CHALLENGE_BYTES)
        yield from session.send(wire.SERVER_HELLO.pack(wire.MAGIC, wire.VERSION, challenge))
        try:
            yield from session.receive(wire.CLIENT_HELLO.size)
        except OSError:
            if session.received:
                raise ProtocolError(_not_hello(session)) from None
            raise  # a port scan, or a probe of the port
        magic, version, other, proof = wire.CLIENT_HELLO.unpack(session.received)
        if magic != wire.MAGIC or version != wire.VERSION:
            raise ProtocolError(_not_hello(session))
        if not verify(proof, b"client", self._secret, challenge, other):
            yield from session.answer(wire.REFUSED, b"it refused this run's secret")
            raise ProtocolError("it does not know this run's secret")
        yield from session.answer(wire.OK, sign(b"server", self._secret, challenge, other))

    def _serve(self, session: RangeSession, name: str, low: int, high: int) -> Waiting:
        if not name.endswith(".spool") or "/" in name or "\0" in name or low >= high:
            yield from session.answer(
                wire.REFUSED, f"it has no range {low} to {high} of {name!r}".encode()
            )
            raise ProtocolError(
                f"it asked for {low} to {high} of {name!r}, which is not a range of a spool"
            )
        try:
            parts = _checked_parts(self._root / name, low, high)
        except CheckpointError as error:
            yield from session.answer(wire.LOST, str(error).encode())
            return
        yield from session.send(wire.ANSWER.pack(wire.OK, high - low))
        for segment, first, last in parts:
            fd = open_segment(segment)
            try:
                yield from session.send_file(fd, segment.offset(first), segment.offset(last))
            finally:
                os.close(fd)

    def _serve_file(self, session: RangeSession, kind: int, name: str, size: int) -> Waiting:
        """Answer a request for files of the checkpoint."""
        files = self._files
        if files is None or kind not in (wire.READ, wire.NAMES, wire.PUBLISH):
            yield from session.answer(wire.REFUSED, b"it serves no files of a checkpoint")
            raise ProtocolError(f"it asked for {name!r}, and no such files are served")
        try:
            if kind == wire.READ:
                yield from self._serve_content(session, files.readable(name))
            elif kind == wire.NAMES:
                yield from session.answer(wire.OK, json.dumps(files.names(name)).encode())
            else:
                yield from files.receive(session, name, size)
                yield from session.answer(wire.OK, b"")
        except FileNotFoundError as error:
            yield from session.answer(wire.ABSENT, str(error.filename).encode())
        except PeerError as error:
            _log(str(error))
            yield from session.answer(wire.FULL, str(error).encode())
        except ProtocolError as error:
            yield from session.answer(wire.REFUSED, str(error).encode())
            raise

    def _serve_content(self, session: RangeSession, path: Path) -> Waiting:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            yield from session.send(wire.ANSWER.pack(wire.OK, size))
            yield from session.send_file(file.fileno(), 0, size)


def _checked_parts(folder: Path, low: int, high: int) -> list[Part]:
    """Return the parts of a range.  Raises CheckpointError unless all of it is there."""
    parts = list(SpoolReader(folder).parts(low, high))
    for segment, _, last in parts:
        fd = open_segment(segment)
        size = os.fstat(fd).st_size
        os.close(fd)
        if size < segment.offset(last):
            raise corrupt(segment.path, size, "the file ends below the published head")
    return parts


def _not_hello(session: RangeSession) -> str:
    return (
        f"it does not begin as a reader of this version does; first bytes "
        f"{session.received[:16].hex(' ')}"
    )


def _log(what: str) -> None:
    print(f"range server: {what}", file=sys.stderr, flush=True)


def main() -> int:
    """Listen, report it, and serve until a stop is requested; return the exit code."""
    parent = Parent.of_process()

    def work() -> None:
        server = RangeServer(configuration(RangeConfig), parent)
        say("READY", {"address": server.listen()})
        server.run()

    return end_of("range server", work)


if __name__ == "__main__":
    sys.exit(main())
