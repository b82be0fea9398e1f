"""Processes around the spools, managed by the driver.

Where it runs: driver.  One ingress for all TCP sources, one feeder per source with a feed, and, on
a cluster, one range server for the executors.
"""

from __future__ import annotations

import base64
import queue
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wallaroo import errors
from wallaroo.durable.folders import make_private
from wallaroo.durable.levels import Durability, is_synced
from wallaroo.durable.ownership import UNOWNED, Ownership
from wallaroo.durable.ownership import VARIABLE as OWNER
from wallaroo.ingress.config import BACKLOG_BYTES_MAX, HANDSHAKE_S, IngressConfig, IngressSource
from wallaroo.ingress.feeder import FeederConfig
from wallaroo.instrumentation.tuning import HUNG_S
from wallaroo.network.replica import Replica
from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import Address
from wallaroo.processes.supervisor import Child, Log, how_it_ended, stop
from wallaroo.sources.interface import FedBy, SourceConfig
from wallaroo.spool import folder_of
from wallaroo.spool.remote.server import RangeConfig
from wallaroo.spool.remote.wire import SECRET_BYTES
from wallaroo.spool.waking import VARIABLE as WAKE
from wallaroo.user_code.references import pickle_by_name

START_S_MAX = 90.0
STOP_S_MAX = 5.0
LOOK_S = 0.05
START_TRIES = 5  # for a process that is killed while it starts
PORT_TRIES_S = 5.0  # a killed process's port may be taken for a moment
# modules that children run
INGRESS = "wallaroo.ingress"
FEEDER = "wallaroo.ingress.feeder"
RANGES = "wallaroo.spool.remote.server"

_ERRORS: dict[str, type[errors.WallarooError]] = {
    "user": errors.UserCodeError,
    "checkpoint": errors.CheckpointError,
    "peer": errors.PeerError,
}


class KilledAtStartError(errors.PeerError):
    """Death of a process by a signal before it was ready.

    It may be started again.
    """


@dataclass(frozen=True, slots=True)
class Feeding:
    """The options for feeding the sources of a run."""

    log: Log = print
    is_durable: bool = False
    levels: Mapping[str, Durability] = field(default_factory=dict)  # by source, if different
    checkpoint: str = ""  # its id; spools of another one are refused
    backlog_bytes_max: int = BACKLOG_BYTES_MAX
    sys_path: Sequence[str] = ()
    # second ports for senders that want acknowledgements, by source
    ack_ports: Mapping[str, int] = field(default_factory=dict)
    # whether every source that can have a port for acknowledgements has one
    is_acknowledged: bool = False
    # the host's address for a range server that serves ``RemoteSpool(range_address, range_secret,
    # source)``; None: no server.  Port 0: any free one
    serve_on: str | None = None
    serve_port: int = 0
    serve_tls: TLS | None = None
    serve_secret: bytes = b""  # what its readers prove; empty: a new one
    serve_files: str = ""  # the checkpoint's folder, if that server serves its files, too
    handshake_s: float = HANDSHAKE_S  # for a sender of an acknowledged stream to name its stream
    hung_s: float = HUNG_S  # after this time without a sign of life a process is restarted
    is_stopping: Callable[[], bool] = lambda: False  # ends the waiting for processes to be ready
    # a Unix socket that gets a datagram after each publication (``spool.waking``); empty: none does
    wake: str = ""
    owner: Ownership = UNOWNED  # the run's claim to its checkpoint
    # how long ports and spools may be held by the processes of a run that was taken over
    patience_s: float = 0.0
    report_s: float = 2.0  # in which they leave if they can; from then on the log names the wait
    replica: Replica | None = None  # keeps the spools' copies
    # feeders end once everything that their sources held at the beginning is read
    until_now: bool = False

    def is_synced(self, source: str) -> bool:
        """Return whether input of a source is on disk before it is published."""
        return is_synced(self.levels.get(source), self.is_durable)

    def awaits_commits(self, source: str) -> bool:
        """Return whether senders are answered once their input is committed."""
        return self.levels.get(source) is Durability.STORE


FEEDING = Feeding()


class Feeders:
    """The processes of an application's sources."""

    def __init__(self) -> None:
        self._children: list[Child] = []
        self._ingress: IngressConfig | None = None
        self._ranges: RangeConfig | None = None
        self._options = FEEDING
        self.addresses: dict[str, Address] = {}
        self.ack_addresses: dict[str, Address] = {}
        # the range server's: the host it listens on, and its port
        self.range_address: Address | None = None

    def start(
        self, sources: Sequence[SourceConfig], spool_root: Path, options: Feeding = FEEDING
    ) -> dict[str, Address]:
        """Start all processes; return the addresses of the sources that listen.

        A source's spool is ``folder_of(spool_root, source.name)``.  Raises PipelineError,
        PeerError, UserCodeError or CheckpointError; nothing runs then.
        """
        self._options = options
        make_private(spool_root, is_durable=options.is_durable)
        for old in spool_root.glob("*.json"):  # earlier versions left secrets in them
            old.unlink()
        try:
            if options.serve_on is not None:
                secret = (options.serve_secret or secrets.token_bytes(SECRET_BYTES)).hex()
                address = options.serve_on, options.serve_port
                self._ranges = RangeConfig(
                    str(spool_root),
                    *address,
                    secret,
                    options.serve_tls,
                    checkpoint=options.serve_files,
                    is_synced=options.is_durable,
                )
                self._start_ranges()
            listening = self._listening(sources, spool_root)
            if listening:
                self._ingress = IngressConfig(
                    listening,
                    options.is_durable,
                    options.backlog_bytes_max,
                    options.checkpoint,
                    options.handshake_s,
                    options.replica,
                )
                self._start_ingress()
            self._start_feeders(
                [source for source in sources if source.fed_by is FedBy.FEEDER], spool_root
            )
        except errors.WallarooError:
            self.stop()
            raise
        return self.addresses

    def _listening(
        self, sources: Sequence[SourceConfig], spool_root: Path
    ) -> tuple[IngressSource, ...]:
        options = self._options
        listening = [(source, at) for source in sources if (at := source.listening) is not None]
        any_port = {source.name: 0 for source, at in listening if at.can_acknowledge}
        ports = {**(any_port if options.is_acknowledged else {}), **options.ack_ports}
        return tuple(
            IngressSource(
                source.name,
                at.host,
                at.port,
                str(folder_of(spool_root, source.name)),
                source.wire_framing,
                ports.get(source.name),
                at.tls,
                at.connector,
                durability=options.levels.get(source.name),
            )
            for source, at in listening
        )

    @property
    def listening(self) -> tuple[IngressSource, ...]:
        """Return the sources that the ingress reads, with their ports."""
        return self._ingress.sources if self._ingress is not None else ()

    def _start_feeders(self, sources: Sequence[SourceConfig], spool_root: Path) -> None:
        """Start them in parallel."""
        options = self._options
        started = []
        for source in sources:
            config = FeederConfig(
                source.name,
                _pickled(source),
                str(folder_of(spool_root, source.name)),
                tuple(options.sys_path),
                is_durable=options.is_synced(source.name),
                backlog_bytes_max=options.backlog_bytes_max,
                checkpoint=options.checkpoint,
                until_now=options.until_now,
                awaits_commits=options.awaits_commits(source.name),
                replica=options.replica,
            )
            started.append(self._spawn(source.name, FEEDER, config))
        for child in started:
            self._ready(child)

    def poll(self) -> None:
        """Restart killed processes on the same ports; raise the error of any other."""
        for child in list(self._children):
            code = None if child.is_done else child.process.poll()
            if code is None:
                if not child.is_done and child.silent_s > self._options.hung_s:
                    self._options.log(
                        f"{child.name} has shown no sign of life for {self._options.hung_s:.0f} s; "
                        "killing it"
                    )
                    child.kill()
                continue
            if code < 0 or (code == 0 and child.module == RANGES):
                self._restart(child, code)
            elif code == 0 and child.module != INGRESS:
                child.is_done = True  # a generator that is exhausted
            else:
                child.is_done = True
                raise _failure(child, *child.last_line())

    @property
    def silent(self) -> str:
        """Describe the silent processes with their durations; empty if there are none."""
        return "; ".join(
            f"{child.name} to show a sign of life (for {child.silent_s:.0f} s now)"
            for child in self._children
            if not child.is_done and child.silent_s > self._options.hung_s / 2
        )

    def stop_feeding(self) -> None:
        """Stop all but the range server, still polled, until ``stop``."""
        self._stop([child for child in self._children if child.module != RANGES])

    def stop(self) -> None:
        """Let every process publish and exit; kill those that take more than ``seconds``."""
        self._stop(list(self._children))

    def _stop(self, children: list[Child]) -> None:
        stop(children, STOP_S_MAX)
        for child in children:
            self._children.remove(child)

    @property
    def pids(self) -> dict[str, int]:
        """Return the ids of the running processes, by source name.

        All TCP sources are ``ingress``, and there may be a ``range server``.
        """
        return {child.name: child.process.pid for child in self._children if not child.is_done}

    @property
    def range_secret(self) -> bytes:
        """Return the secret of ranges' readers, "" if there are none; do not log it."""
        return bytes.fromhex(self._ranges.secret) if self._ranges else b""

    def _ready(self, child: Child) -> dict[str, Any]:
        """Wait until a process is ready; return the content of its READY message.

        Start it again if it is killed meanwhile, or if what it needs may still be held by a run
        that was taken over.
        """
        tries = START_TRIES
        began = time.monotonic()
        until = began + self._options.patience_s
        is_reported = False
        while True:
            try:
                return self._await_ready(child)
            except KilledAtStartError:
                tries -= 1
                if not tries:
                    raise
            except errors.PeerError as error:
                now = time.monotonic()
                if self._options.is_stopping() or now > until:
                    raise
                if not is_reported and now - began >= self._options.report_s:
                    is_reported = True
                    self._options.log(
                        f"{child.name} waits up to {self._options.patience_s:.0f} s for the "
                        f"processes of the run that was taken over: {error}"
                    )
            child = self._again(child)

    def _again(self, child: Child) -> Child:
        """Return a replacement for an ended process."""
        self._children.remove(child)
        child.release()
        return self._spawn(child.name, child.module, child.configuration)

    def _start_ingress(self) -> None:
        assert self._ingress is not None
        said = self._ready(self._spawn("ingress", INGRESS, self._ingress))
        self.addresses = {name: (host, port) for name, (host, port) in said.items()}
        self._ingress = self._pinned(self._ingress)

    def _pinned(self, config: IngressConfig) -> IngressConfig:
        """Return the configuration with the present ports of the sources."""
        pinned = tuple(
            replace(
                source,
                port=self.addresses[source.name][1],
                ack_port=self.ack_addresses[source.name][1]
                if source.name in self.ack_addresses
                else None,
            )
            for source in config.sources
        )
        return replace(config, sources=pinned)

    def _start_ranges(self) -> None:
        assert self._ranges is not None
        host, port = self._ready(self._spawn("range server", RANGES, self._ranges))["address"]
        self.range_address = (host, port)
        self._ranges = replace(self._ranges, port=port)

    def _restart(self, child: Child, code: int) -> None:
        self._options.log(f"{child.name} {how_it_ended(code)}; starting it again")
        start = {INGRESS: self._start_ingress, RANGES: self._start_ranges}.get(child.module)
        if start is None:
            self._ready(self._again(child))
            return
        self._children.remove(child)
        child.release()
        until = time.monotonic() + PORT_TRIES_S
        while True:
            try:
                start()
                return
            except errors.PeerError:
                self._children = [other for other in self._children if other.module != child.module]
                if time.monotonic() > until:
                    raise

    def _spawn(self, name: str, module: str, configuration: object) -> Child:
        environment = {WAKE: self._options.wake, OWNER: self._options.owner.to_text()}
        environment = {name: value for name, value in environment.items() if value}
        child = Child(name, [module], self._options.log, environment, configuration)
        self._children.append(child)
        return child

    def _await_ready(self, child: Child) -> dict[str, Any]:
        until = time.monotonic() + START_S_MAX
        while True:
            try:
                word, content = child.lines.get(timeout=LOOK_S)
            except queue.Empty:
                if self._options.is_stopping():
                    raise errors.PeerError(f"{child.name} was abandoned: the run stops.") from None
                if time.monotonic() < until:
                    continue
                raise errors.PeerError(
                    f"{child.name} did not start within {START_S_MAX:.0f} s. Free memory or "
                    f"processor time, then run again."
                ) from None
            if word == "ACKS":
                self.ack_addresses = {name: (host, port) for name, (host, port) in content.items()}
            elif word == "READY":
                return dict(content)
            else:
                child.process.wait()
                raise _failure(child, word, content)


def _failure(child: Child, word: str, content: Any) -> errors.WallarooError:
    if word == "ERROR":
        return _ERRORS[content["kind"]](*content["facts"])
    code = child.process.poll()
    if code is not None and code < 0:
        return KilledAtStartError(
            f"{child.name} was killed ({signal.Signals(-code).name}) while it started, several "
            f"times. Find out what kills it (often the kernel, if memory is short: see dmesg), "
            f"then run again."
        )
    return errors.InternalError(
        f"the process of {child.name} ended with code {code}; its output is in the log above."
    )


def _pickled(source: SourceConfig) -> str:
    try:
        return base64.b64encode(pickle_by_name(source)).decode()
    except Exception as error:  # noqa: BLE001  # pickle calls the user's __reduce__ and __getstate__
        raise errors.PipelineError(
            errors.Problem(
                f"source '{source.name}'",
                "",
                f"cannot be pickled ({error}).",
                "Build it from classes at the top level of a module.",
            )
        ) from None
