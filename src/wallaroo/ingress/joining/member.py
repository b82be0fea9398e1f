"""An ingress that has joined a run on another host: `wallaroo ingress`.

Where it runs: a terminal or service of that host, for as long as it is to receive.

It runs the ingress and the range server as a driver does, on a folder of its own.  While the run is
unavailable it continues to receive and acknowledge, until the backlog is at its bound.

The invariants:

* A folder belongs to one host and one checkpoint: its id is in each position of the run's commits,
  and a spool that lacks committed input is refused before it is read or listened for.
* The tail follows the run's commits alone: nothing is removed that a commit may read again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from wallaroo.durable.folders import make_private
from wallaroo.durable.levels import Durability
from wallaroo.durable.locks import LockedError, lock_file
from wallaroo.durable.whole_file import write_whole
from wallaroo.errors import CheckpointError, InUseError, PeerError, PipelineError
from wallaroo.ingress.config import IngressSource
from wallaroo.ingress.joining import messages
from wallaroo.ingress.process import Feeders, Feeding
from wallaroo.network.key_files import KeyFile, read_key
from wallaroo.network.proved_connections import DriverEndpoint, connect
from wallaroo.network.reachability import require_encrypted
from wallaroo.network.replica_link import Fields, read_message, write_message
from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import Address
from wallaroo.sources.interface import SourceConfig
from wallaroo.sources.joined.hosts import Committed
from wallaroo.sources.log import Position
from wallaroo.sources.spooled import SpoolLog
from wallaroo.spool import SpoolReader, folder_of, write_tail
from wallaroo.spool.connections import OpenConnections, read_open
from wallaroo.spool.format import Boundary, SpoolHead, index_entries, segments_of
from wallaroo.spool.writer import SpoolWriter

IDENTITY = "ingress.json"
LOCK = "lock"
CONNECT_S = 2.0
RETRY_S = 0.5
LOOK_S = 0.1
REPORT_S = 60.0  # between two reports that the run cannot be reached
NEWS_S = 0.5  # between two reports of an unchanged head
_ERRORS = (OSError, EOFError, msgspec.MsgspecError)


@dataclass(frozen=True, slots=True)
class MemberOptions:
    addresses: tuple[Address, ...]  # the run's, and those of standbys
    key: Path
    folder: Path
    name: str = ""  # empty: the folder's, else the host's
    host: str = ""  # to listen on; empty: as the source says
    ports: Mapping[str, int] = field(default_factory=dict)  # by source, where others are wanted
    ack_ports: Mapping[str, int] = field(default_factory=dict)
    ranges: Address | None = None  # None: any port of the address that reaches the run
    tls: TLS | None = None  # the range server's
    is_leaving: bool = False


class _Received(Feeders):
    """The processes of an ingress host: the ingress and the range server."""

    def __init__(self, sources: tuple[IngressSource, ...]):
        super().__init__()
        self._sources = sources

    def _listening(
        self, sources: Sequence[SourceConfig], spool_root: Path
    ) -> tuple[IngressSource, ...]:
        return tuple(
            replace(source, folder=str(folder_of(spool_root, source.name)))
            for source in self._sources
        )


@dataclass(frozen=True, slots=True)
class _Identity:
    """The content of a folder's identity."""

    name: str
    id: str
    has_left: bool = False


class _Reported:
    """The part of one source's spool that was reported to the driver."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._head: SpoolHead | None = None
        self._open: OpenConnections | None = None
        self._sent_at = 0.0

    def news(self, source: str, committed: Boundary) -> tuple[Fields, bytes] | None:
        """Return the message that is due, if any."""
        connections = read_open(self._folder)  # read before the head, which is then newer
        head = SpoolReader(self._folder).head()
        now = time.monotonic()
        if head == self._head and now - self._sent_at < NEWS_S:
            return None
        if self._head is None:
            boundaries = list(_boundaries(self._folder, committed, head.position))
        else:
            boundaries = [head.position]
        is_same = connections == self._open
        self._head = head
        self._open = connections
        self._sent_at = now
        return messages.head_message(source, head, None if is_same else connections, boundaries)


class Member:
    """An ingress host; ``report`` prints a line."""

    def __init__(
        self, options: MemberOptions, is_stopping: threading.Event, report: Callable[[str], None]
    ):
        self._options = options
        self._is_stopping = is_stopping
        self._report = report
        self._feeders: _Received | None = None
        self._terms: messages.Terms | None = None
        self._identity = _Identity("", "")
        self._has_joined = False
        self._away_since: float | None = None
        self._reported_at = float("-inf")
        self._wakes = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    @property
    def _root(self) -> Path:
        return self._options.folder / "spool"

    def run(self) -> None:
        """Receive until a stop is requested, or leave.  Raises PeerError or CheckpointError."""
        key = read_key(self._options.key, messages.WRITER)
        with self._held():
            try:
                while not self._is_stopping.is_set():
                    link = self._connected(key)
                    if link is None:
                        continue
                    try:
                        if self._joined(link, bytes.fromhex(key.secret)):
                            return
                    except _ERRORS as error:
                        self._note_away(error)
                    finally:
                        link.close()
                    self._pause()
            finally:
                if self._feeders is not None:
                    self._feeders.stop()

    # -- the folder -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the folder, and a socket by which its processes wake this one."""
        folder = self._options.folder
        make_private(folder, is_durable=True)
        try:
            lock = lock_file(folder / LOCK)
        except LockedError as error:
            raise InUseError(
                f"{folder} is in use by another `wallaroo ingress`. Stop that one (SIGTERM) first."
            ) from error
        scratch = tempfile.mkdtemp(prefix="wallaroo-ingress-")
        try:
            self._identity = self._own_identity()
            self._wakes.setblocking(False)
            self._wakes.bind(f"{scratch}/wake")
            yield
        finally:
            self._wakes.close()
            shutil.rmtree(scratch, ignore_errors=True)
            os.close(lock)

    def _own_identity(self) -> _Identity:
        path = self._options.folder / IDENTITY
        wanted = self._options.name
        if path.exists():
            identity: _Identity = msgspec.json.decode(path.read_bytes(), type=_Identity)
            if wanted not in ("", identity.name):
                raise CheckpointError(
                    f"{path.parent} is the folder of ingress '{identity.name}', not of '{wanted}'. "
                    f"Leave --name out, or give a folder of its own."
                )
            if identity.has_left and not self._options.is_leaving:
                raise CheckpointError(
                    f"{path.parent} belongs to an ingress that has left for good. Give an empty "
                    f"folder."
                )
            return identity
        others = sorted({entry.name for entry in path.parent.iterdir()} - {LOCK})
        if others:
            raise CheckpointError(
                f"{path.parent} holds {others[0]} and no {IDENTITY}: it is not the folder of an "
                f"ingress. Give an empty one."
            )
        return self._written(_Identity(wanted or socket.gethostname(), secrets.token_hex(8)))

    def _written(self, identity: _Identity) -> _Identity:
        content = msgspec.json.encode(identity)
        path = self._options.folder / IDENTITY
        write_whole(path, content, is_durable=True, points="ingress.identity")
        return identity

    # -- the run ----------------------------------------------------------------------------------

    def _connected(self, key: KeyFile) -> socket.socket | None:
        """Return a connection to the run, or None."""
        for address in self._options.addresses:
            endpoint = DriverEndpoint(address, bytes.fromhex(key.secret), key.certificate)
            try:
                return connect(endpoint, CONNECT_S)
            except EOFError as error:
                if self._terms is None:
                    host, port = address
                    raise PeerError(
                        f"{host}:{port} closes connections without the run's key: is --key a "
                        f"copy of ingress.key in its checkpoint's folder?"
                    ) from error
                self._note_away(error)
            except OSError as error:
                self._note_away(error)
            if self._is_stopping.is_set():
                return None
        self._pause()
        return None

    def _note_away(self, error: BaseException) -> None:
        now = time.monotonic()
        self._away_since = now if self._away_since is None else self._away_since
        if now - self._reported_at < REPORT_S:
            return
        self._reported_at = now
        why = getattr(error, "strerror", None) or str(error) or "the connection ended"
        going_on = " Clients are served meanwhile." if self._feeders is not None else ""
        self._report(f"the run cannot be reached ({why}); trying again.{going_on}")

    def _pause(self) -> None:
        until = time.monotonic() + RETRY_S
        while time.monotonic() < until and not self._is_stopping.wait(LOOK_S):
            self._poll()

    def _poll(self) -> None:
        if self._feeders is not None:
            self._feeders.poll()

    def _joined(self, link: socket.socket, secret: bytes) -> bool:
        """Join over a connection until it ends; return whether this host has left permanently."""
        own = self._identity
        leaving = self._options.is_leaving
        link.settimeout(messages.SILENT_S)
        write_message(
            link, {"op": messages.JOIN, "name": own.name, "id": own.id, "is_leaving": leaving}
        )
        answer, _ = read_message(link)
        if answer["op"] == messages.LEFT:
            return self._left()
        if answer["op"] == messages.REFUSED:
            raise CheckpointError(f"the run refuses this ingress: {answer['words']}")
        if answer["op"] != messages.WELCOME:
            raise ConnectionError(answer.get("words", "it answers something else"))
        terms = messages.Terms.from_json(answer["terms"])
        committed = messages.committed_of(answer["committed"])
        try:
            self._prepare(terms, committed, link, secret)
        except (CheckpointError, PeerError, PipelineError) as error:
            write_message(link, {"op": messages.REFUSED, "words": str(error)})
            raise
        assert self._feeders is not None
        pem = Path(self._options.tls.certificate).read_text("ascii") if self._options.tls else ""
        ranges = self._feeders.range_address
        write_message(link, {"op": messages.READY, "ranges": ranges, "certificate": pem})
        self._note_joined()
        return self._exchange(link, terms, committed)

    def _note_joined(self) -> None:
        feeders = self._feeders
        assert feeders is not None
        places = [f"{name} {host}:{port}" for name, (host, port) in feeders.addresses.items()]
        acked = [
            f"{name} {host}:{port} (acknowledged)"
            for name, (host, port) in feeders.ack_addresses.items()
        ]
        since = self._away_since if self._has_joined else None
        self._has_joined = True
        again = f" again after {time.monotonic() - since:.0f} s" if since is not None else ""
        listed = ", ".join(places + acked)
        does = f"listening: {listed}" if listed else "leaving once all is processed"
        self._report(f"ingress '{self._identity.name}' has joined{again}; {does}")
        self._away_since = None
        self._reported_at = float("-inf")

    def _left(self) -> bool:
        self._written(replace(self._identity, has_left=True))
        self._report(f"ingress '{self._identity.name}' has left: all it received is processed")
        return True

    def _prepare(
        self,
        terms: messages.Terms,
        committed: Mapping[str, Committed],
        link: socket.socket,
        secret: bytes,
    ) -> None:
        """Check the spools and listen as the run asks.  Raises CheckpointError or PeerError."""
        make_private(self._root, is_durable=True)
        for source in terms.sources:
            consumed = committed.get(source.name, Committed())
            folder = folder_of(self._root, source.name)
            log = SpoolLog(source.name, folder, terms.checkpoint)
            log.require(Position(consumed.position.byte, consumed.position.events))
            if source.name in committed:
                write_tail(folder, consumed.position, consumed.released)
        placed = replace(terms, sources=tuple(map(self._placed, terms.sources)))
        if self._feeders is not None and placed == self._terms:
            return
        if self._feeders is not None:
            self._feeders.stop()
        self._terms = None
        if self._options.is_leaving:
            self._publish_all(terms)
        self._feeders = self._started(placed, str(link.getsockname()[0]), secret)
        self._terms = placed

    def _publish_all(self, terms: messages.Terms) -> None:
        """Publish everything acknowledged, even if the head was lost in a power cut."""
        for source in terms.sources:
            folder = folder_of(self._root, source.name)
            writer = SpoolWriter(folder, is_durable=True, checkpoint=terms.checkpoint)
            writer.publish()
            writer.close()

    def _started(self, terms: messages.Terms, own_address: str, secret: bytes) -> _Received:
        options = self._options
        serve_on, serve_port = options.ranges or (own_address, 0)
        what = f"workers read from {serve_on} over a network, and that is not encrypted."
        require_encrypted("wallaroo ingress", serve_on, options.tls is not None, what)
        sources = () if options.is_leaving else terms.sources
        feeders = _Received(sources)
        feeders.start(
            (),
            self._root,
            Feeding(
                log=self._report,
                is_durable=True,
                checkpoint=terms.checkpoint,
                backlog_bytes_max=terms.backlog_bytes_max,
                serve_on=serve_on,
                serve_port=serve_port,
                serve_tls=options.tls,
                serve_secret=messages.secret_of_ranges(secret),
                is_stopping=self._is_stopping.is_set,
                wake=str(self._wakes.getsockname()),
            ),
        )
        return feeders

    def _placed(self, source: IngressSource) -> IngressSource:
        """Return a source as this host listens for it, with synced input."""
        options = self._options
        level = Durability.STORE if source.durability is Durability.STORE else None
        return replace(
            source,
            host=options.host or source.host,
            port=options.ports.get(source.name, source.port),
            ack_port=options.ack_ports.get(source.name, source.ack_port),
            durability=level,
        )

    def _exchange(
        self, link: socket.socket, terms: messages.Terms, committed: dict[str, Committed]
    ) -> bool:
        """Report what is received and learn what is committed, until the connection ends.

        Return whether this host has left permanently.  Raises OSError or EOFError.
        """
        folders = {source.name: folder_of(self._root, source.name) for source in terms.sources}
        reported = {name: _Reported(folder) for name, folder in folders.items()}
        received_at = time.monotonic()
        while not self._is_stopping.is_set():
            for name, each in reported.items():
                start = committed.get(name, Committed()).position
                if (message := each.news(name, start)) is not None:
                    write_message(link, *message)
            if self._wait(link):
                answer, _ = read_message(link)
                received_at = time.monotonic()
                if answer["op"] == messages.COMMITTED:
                    for name, newest in messages.committed_of(answer["sources"]).items():
                        if name in folders and committed.get(name) != newest:
                            write_tail(folders[name], newest.position, newest.released)
                            committed[name] = newest
                    if answer["left"] and self._options.is_leaving:
                        return self._left()
            if time.monotonic() - received_at > messages.SILENT_S:
                raise TimeoutError(f"no sign of life for {messages.SILENT_S:.0f} s")
            self._poll()
        return False

    def _wait(self, link: socket.socket) -> bool:
        """Wait for the ingress or the driver; return whether the driver has sent something."""
        if messages.has_more(link):
            return True
        ready, _, _ = select.select([link, self._wakes], [], [], LOOK_S)
        if self._wakes in ready:
            with contextlib.suppress(BlockingIOError):
                while self._wakes.recv(64):
                    pass
        return link in ready


def _boundaries(folder: Path, start: Boundary, end: Boundary) -> Iterator[Boundary]:
    """Yield boundaries of a log between two others, and these."""
    yield start
    for segment in segments_of(folder):
        if segment.start.byte >= end.byte:
            break
        indexed: list[Boundary] = []
        with contextlib.suppress(FileNotFoundError):
            indexed = index_entries(segment.index_path.read_bytes())
        for each in (segment.start, *indexed):
            if start.byte < each.byte < end.byte:
                yield each
    yield end


def give_up(options: MemberOptions, name: str) -> None:
    """Make a run give up a lost ingress.  Raises PeerError or CheckpointError."""
    key = read_key(options.key, messages.WRITER)
    host, port = options.addresses[0]
    endpoint = DriverEndpoint((host, port), bytes.fromhex(key.secret), key.certificate)
    try:
        with connect(endpoint, CONNECT_S) as link:
            link.settimeout(messages.START_S)
            write_message(link, {"op": messages.LOST, "name": name})
            answer, _ = read_message(link)
    except _ERRORS as error:
        raise PeerError(
            f"the run at {host}:{port} does not answer: {getattr(error, 'strerror', '') or error}. "
            f"See that it runs, and that --key is a copy of its ingress.key."
        ) from error
    if answer["op"] == messages.LATER:
        raise PeerError(f"{answer['words']}. Try again.")
    if answer["op"] != messages.LEFT:
        raise CheckpointError(answer["words"])
