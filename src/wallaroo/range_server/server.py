"""``python -m wallaroo.range_server.server CONFIG.json``: serves ranges of all spools under a root
to the executors of other hosts.

Where it runs: range server, a process of its own on the driver's host; one thread for all
connections.  It only reads: however slow or many its readers are, and whatever becomes of it, the
writers of the spools do not notice.  The protocol stands in ``spool.wire``.

Ranges go from file to socket within the kernel.  Each connection is a conversation
(``conversation``); a turn of it sends one slice, so that all readers come forward.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import selectors
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from selectors import EVENT_READ

from wallaroo.errors import CheckpointError, PeerError
from wallaroo.processes.child import Parent, end_of, say
from wallaroo.range_server.session import GREETING_S_MAX, Conversation, TurnedAwayError, Waits
from wallaroo.range_server.wire import (
    ANSWER,
    CHALLENGE_BYTES,
    CLIENT_HELLO,
    LOST,
    MAGIC,
    NAME_BYTES_MAX,
    OK,
    REFUSED,
    REQUEST,
    SERVER_HELLO,
    VERSION,
    is_proof,
    proof_of,
)
from wallaroo.spool.format import Segment, corrupt
from wallaroo.spool.reader import SpoolReader, open_segment

# one per Python worker of the cluster, with room; a quarter of the files this process may have, if
# less
CONNECTIONS_MAX = 4096
LISTEN_BACKLOG = 512  # all workers of a cluster may come at once
TICK_S = 1.0  # between looks at clients that do not prove themselves

Address = tuple[str, int]
Part = tuple[Segment, int, int]


@dataclass(frozen=True, slots=True)
class RangeConfig:
    """What a range server is told."""

    root: str
    host: str
    port: int  # 0: any free one
    secret: str = field(repr=False)  # hexadecimal


def write_range_config(config: RangeConfig, path: Path) -> None:
    """Write a configuration that only this user can read."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        json.dump(asdict(config), file)


class RangeServer:
    """Serves the spools under a root to clients that know the secret."""

    def __init__(self, config: RangeConfig, parent: Parent):
        self._root, self._secret, self._parent = (
            Path(config.root),
            bytes.fromhex(config.secret),
            parent,
        )
        self._bind_to = (config.host, config.port)
        self._selector = selectors.DefaultSelector()
        self._conversations: dict[int, Conversation] = {}
        self._connections_max = _connections_max()
        self._is_full_told = False
        for fileno in parent.filenos:
            self._selector.register(fileno, EVENT_READ, parent.look)

    def listen(self) -> Address:
        """Open the port; return its address.  Raises PeerError if it cannot be had."""
        host, port = self._bind_to
        try:
            self._listener = socket.create_server((host, port), backlog=LISTEN_BACKLOG)
        except OSError as problem:
            raise PeerError(
                f"spool ranges cannot be served on {host}:{port}: {problem.strerror or problem}. "
                "Name an address of this host that executors reach, and a port that no other "
                "program uses (0: any)."
            ) from None
        self._listener.setblocking(False)
        self._selector.register(self._listener, EVENT_READ, self._accept)
        return host, self._listener.getsockname()[1]

    def run(self) -> None:
        """Serve until the parent is gone or asks to stop."""
        looked_at = time.monotonic()
        while not self._parent.is_stopping:
            self._parent.beat()
            for key, _ in self._selector.select(TICK_S):
                turn: Callable[[], object] = key.data
                turn()
            if time.monotonic() - looked_at > TICK_S:
                looked_at = time.monotonic()
                self._dismiss_silent(looked_at)

    def _accept(self) -> None:
        try:
            sock, address = self._listener.accept()
        except (
            OSError
        ):  # it left again, or the system is out of files; those that wait are looked at again
            return
        if len(self._conversations) >= self._connections_max and not self._make_room():
            sock.close()  # it tries again
            if not self._is_full_told:
                self._is_full_told = True
                _log(f"{self._connections_max} readers are busy; more have to wait")
            return
        self._is_full_told = False
        sock.setblocking(False)
        # a host that vanished does not hold its place
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        conversation = Conversation(sock, f"{address[0]}:{address[1]}")
        conversation.waits = self._converse(conversation)
        self._conversations[sock.fileno()] = conversation
        self._turn(conversation)

    def _make_room(self) -> bool:
        """Close the connection that has been idle longest, if any is; its client opens another one
        when it needs it.
        """
        for conversation in self._conversations.values():
            if conversation.is_idle:
                self._close(conversation)
                return True
        return False

    def _turn(self, conversation: Conversation) -> None:
        """Let a conversation go on until it has to wait; whatever ends it ends nothing else."""
        if conversation.is_closed:  # earlier in this pass
            return
        try:
            awaited = next(conversation.waits)
        except ConnectionError:  # the client's right; one that still wants something comes again
            self._close(conversation)
        except (TurnedAwayError, CheckpointError, OSError) as problem:
            _log(f"closed {conversation.peer}: {problem}")
            self._close(conversation)
        else:
            self._await(conversation, awaited)

    def _await(self, conversation: Conversation, awaited: int) -> None:
        turn = partial(self._turn, conversation)
        if not conversation.awaited:
            self._selector.register(conversation.socket, awaited, turn)
        elif conversation.awaited != awaited:
            self._selector.modify(conversation.socket, awaited, turn)
        conversation.awaited = awaited

    def _close(self, conversation: Conversation) -> None:
        if conversation.awaited:
            self._selector.unregister(conversation.socket)
        del self._conversations[conversation.socket.fileno()]
        conversation.waits.close()
        conversation.socket.close()

    def _dismiss_silent(self, now: float) -> None:
        for conversation in [other for other in self._conversations.values() if other.until < now]:
            _log(f"closed {conversation.peer}: it said nothing of use for {GREETING_S_MAX:.0f} s")
            self._close(conversation)

    def _converse(self, conversation: Conversation) -> Waits:
        yield from self._greet(conversation)
        conversation.until = float("inf")
        number = conversation.socket.fileno()
        while True:
            # the last in line to make room
            self._conversations[number] = self._conversations.pop(number)
            conversation.is_idle = True
            yield from conversation.receive(REQUEST.size)
            conversation.is_idle = False
            name_bytes, low, high = REQUEST.unpack(conversation.received)
            if not 0 < name_bytes <= NAME_BYTES_MAX:
                raise TurnedAwayError(f"it asked for a name of {name_bytes} bytes")
            yield from conversation.receive(name_bytes)
            yield from self._serve(
                conversation, conversation.received.decode("utf-8", "replace"), low, high
            )

    def _greet(self, conversation: Conversation) -> Waits:
        challenge = secrets.token_bytes(CHALLENGE_BYTES)
        yield from conversation.send(SERVER_HELLO.pack(MAGIC, VERSION, challenge))
        try:
            yield from conversation.receive(CLIENT_HELLO.size)
        except OSError:
            if conversation.received:
                raise TurnedAwayError(_not_hello(conversation)) from None
            raise  # a port scan, or a look whether somebody listens
        magic, version, other, proof = CLIENT_HELLO.unpack(conversation.received)
        if magic != MAGIC or version != VERSION:
            raise TurnedAwayError(_not_hello(conversation))
        if not is_proof(proof, b"client", self._secret, challenge, other):
            yield from conversation.answer(REFUSED, b"it refused this run's secret")
            raise TurnedAwayError("it does not know this run's secret")
        yield from conversation.answer(OK, proof_of(b"server", self._secret, challenge, other))

    def _serve(self, conversation: Conversation, name: str, low: int, high: int) -> Waits:
        if not name.endswith(".spool") or "/" in name or "\0" in name or low >= high:
            yield from conversation.answer(
                REFUSED, f"it has no range {low} to {high} of {name!r}".encode()
            )
            raise TurnedAwayError(
                f"it asked for {low} to {high} of {name!r}, which is no range of a spool"
            )
        try:
            parts = _checked_parts(self._root / name, low, high)
        except CheckpointError as problem:
            yield from conversation.answer(LOST, str(problem).encode())
            return
        yield from conversation.send(ANSWER.pack(OK, high - low))
        for segment, first, last in parts:
            fd = open_segment(segment)
            try:
                yield from conversation.send_file(fd, segment.offset(first), segment.offset(last))
            finally:
                os.close(fd)


def _checked_parts(folder: Path, low: int, high: int) -> list[Part]:
    """Return where a range lies.  Raises CheckpointError unless all of it is there."""
    parts = list(SpoolReader(folder).parts(low, high))
    for segment, _, last in parts:
        fd = open_segment(segment)
        size = os.fstat(fd).st_size
        os.close(fd)
        if size < segment.offset(last):
            raise corrupt(segment.path, size, "the file ends below the published head")
    return parts


def _not_hello(conversation: Conversation) -> str:
    return (
        f"it does not begin as a reader of this version does; first bytes "
        f"{conversation.received[:16].hex(' ')}"
    )


def _connections_max() -> int:
    """Have as many files as the system allows; return how many connections that makes safe."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return CONNECTIONS_MAX if most == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, most // 4)


def _log(what: str) -> None:
    print(f"range server: {what}", file=sys.stderr, flush=True)


def main(path: str) -> int:
    """Listen, say so, and serve until told to stop; return the exit code."""
    parent = Parent()

    def work() -> None:
        server = RangeServer(
            RangeConfig(**json.loads(Path(path).read_text(encoding="utf-8"))), parent
        )
        say("READY", {"address": server.listen()})
        server.run()

    return end_of("range server", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
