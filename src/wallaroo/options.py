"""Options and handle of a run, rejected inside of workers.

Where it runs: everywhere.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypedDict

from wallaroo.dataflow.plan.model import KEY_GROUPS_DEFAULT
from wallaroo.durable.folders import is_store_url
from wallaroo.durable.levels import Durability, DurabilityName
from wallaroo.errors import WallarooError
from wallaroo.instrumentation.tuning import HUNG_S, Tuning
from wallaroo.network.reachability import is_loopback
from wallaroo.network.tls import TLS

if TYPE_CHECKING:
    from wallaroo.monitoring.metrics.status import RunStatus

KEY_GROUPS_MAX = 32_768  # the view keeps a group's number in two bytes
BACKLOG_BYTES_MAX = 256 * 1024 * 1024
# Minimum retained commits at low latency: an egress syncs its progress a few times a second, and
# until then only the commit records it.
RETAINED_FREQUENT = 128
EPOCH_TIME_S = 0.05  # minimum target of an epoch; only a backlog exceeds it
LATENCY_MS = 50.0  # the default target of resident tasks (docs/decisions/0047)
# the same with a checkpoint in an object store, where every commit costs money
STORE_LATENCY_MS = 250.0
# In a cluster's session, resident tasks are the default below: a micro-batch takes longer.
MICRO_BATCH_LEAST_MS = 500.0


class HostKind(StrEnum):
    """Kinds of hosts on Spark."""

    MICRO_BATCH = "micro-batch"
    RESIDENT = "resident"


HostName = Literal["micro-batch", "resident"]


FRESH_OR_TAKEN_OVER = (
    "A run that takes a checkpoint over continues it, a fresh one deletes what it holds. Give one "
    "of the two: take it over, stop, then begin afresh."
)


SAVEPOINT_ALONE = (
    "A run from a savepoint begins a checkpoint of its own, and a restart continues it. Give a new "
    "checkpoint, and not fresh."
)
FORK_OF_NOTHING = "A fork begins from a savepoint. Give it, too."
STANDBY_OF_NOTHING = (
    "A standby begins no checkpoint. Start the application once without --standby; the same "
    "command with it may follow."
)
STANDBY_AFTER_S = 3.0
STANDBY_LEAST_S = 1.0  # a lease is renewed twice a second
STANDBY_TOO_SOON = f"Give at least {STANDBY_LEAST_S:g} second: a leader renews its lease in 0.5 s."
STANDBY_ALONE = (
    "A standby continues the checkpoint of the run that leads. Give it that checkpoint, which must "
    "be a folder (a standby cannot follow an object store), and neither fresh, nor take-over, nor "
    "until-now."
)


NEEDS_A_CHECKPOINT = "Durability is that of a checkpoint. Give one, or leave durability out."
NEEDS_A_STORE = (
    "The level store is that of a checkpoint in an object store. Give such a checkpoint, as in "
    "s3://BUCKET/PATH, or choose disk or memory."
)
NOT_OF_A_STORE = (
    "A commit in an object store outlasts this machine, whatever its memory loses. Choose store, "
    "or disk: then senders are answered once their input is on this machine's disk."
)
NEEDS_A_REPLICA = (
    "The level replicated needs the address of a replica, its key file, and a checkpoint in a "
    "folder: --replica HOST:PORT --replica-key FILE (`wallaroo replica` makes the key)."
)
REPLICA_ALONE = (
    "A replica is that of the level replicated. Choose that level, too, or leave the replica out."
)
INGRESSES_NEED_A_CHECKPOINT = (
    "Ingresses of other hosts join a run that continues: their input is known to its commits. Give "
    "a checkpoint, too."
)
INGRESSES_ALONE = (
    "What ingresses of other hosts receive is not in a replica's copy, and does not end with "
    "until-now. Leave one of the two out."
)
INGRESSES_NEED_TLS = (
    "The address is reached over a network, and the connection is not encrypted. Give a "
    "certificate and its key (--tls-cert, --tls-key): one that signs itself will do."
)
WEAKER_SOURCE = (
    "With memory, a source may have disk; in an object store, disk, too; otherwise the "
    "application's own level is the only one. Leave the source out, or choose another level."
)


class Latency(StrEnum):
    """Former modes: the micro-batch host and resident tasks.

    Resident tasks commit as often as possible.
    """

    NORMAL = "normal"
    LOW = "low"


LatencyName = Literal["normal", "low"]
_HOSTS = {Latency.NORMAL: HostKind.MICRO_BATCH, Latency.LOW: HostKind.RESIDENT}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run.

    Every field has the default that suits one machine.
    """

    master: str = "local[*]"
    """Spark's master: ``local[N]``, ``spark://HOST:PORT``, ``yarn``, ``k8s://...``."""
    checkpoint: Path | str | None = None
    """Folder for state and progress, or the URL of a place in an object store (``s3://``, ``gs://``,
    ``az://``); None: a temporary folder, and nothing survives the run."""
    is_fresh: bool = False
    """Delete what the checkpoint holds first."""
    is_taking_over: bool = False
    """Continue in place of a run that holds the checkpoint: it commits and sends nothing more."""
    from_savepoint: Path | str | None = None
    """Begin the checkpoint from a savepoint: the folder or URL given to ``wallaroo state save``.  A
    checkpoint that began from it is continued."""
    is_fork: bool = False
    """With ``from_savepoint``: run beside the application that was saved, under an identity of its
    own, into other sinks."""
    standby_after_s: float | None = None
    """Stand by: wait until the run that leads the checkpoint shows no sign of life for so long, and
    continue in its place.  None: begin at once."""
    tasks: int | None = None
    """Tasks per stage at most; None: one per core."""
    min_workers: int = 1
    """On a cluster: hosts with which a run starts; it waits for them.  Fewer later stop nothing."""
    replicas: int = 0
    """On a cluster, with resident tasks: 1 keeps a current copy of each worker's state on another
    one, which continues with it when the first one is lost."""
    batch_time_s: float = 1.0
    """How long a batch may take; a larger backlog is cut into batches of about this."""
    speed: float | None = None
    """Replay recorded input by its event times: 1.0 as it came, 10.0 ten times as fast; None: as
    fast as it can be read."""
    rate_limit: float | None = None
    """Events a second that the first part of a chain (`wallaroo.chain`) is read with at most."""
    until_now: bool = False
    """End when what the sources held at the start is processed; sources that keep nothing, such as
    TCP ports, end at once."""
    latency: timedelta | float | Latency | LatencyName | None = None
    """How long an event may take from its receipt to its results: a timedelta or milliseconds.
    Commits are as rare as that allows.  None: 50 ms with resident tasks, 250 ms with a checkpoint
    in an object store, no target with micro-batches.  Deprecated: ``low`` (resident tasks that
    commit as often as they can) and ``normal`` (the micro-batch host)."""
    host: HostKind | HostName | None = None
    """``resident``: tasks stay, and take small batches as input comes; ``micro-batch``: each batch
    is a job of Spark.  None: resident on one machine, micro-batch on a cluster unless ``latency``
    is below half a second (docs/scaling.md)."""
    log_level: str = "error"
    """Spark's log level: debug, info, warning, error, off."""
    app_log_level: str = "info"
    """Level of the application's own ``logging``, if it configures none: debug, info, warning,
    error, off."""
    key_groups: int = KEY_GROUPS_DEFAULT
    """Shares of state; fixed for the life of a checkpoint."""
    backlog_bytes_max: int = BACKLOG_BYTES_MAX
    """Backlog of a source or a sink in bytes beyond which nothing more is read."""
    durability: Durability | DurabilityName | None = None
    """Level that an acknowledgement, a commit and output wait for: ``memory``, ``disk``,
    ``replicated``, ``store`` (docs/exactly-once.md).  None: ``disk`` with a folder, ``store`` with
    an object store."""
    replica: tuple[str, int] | None = None
    """With ``replicated``: host and port of the replica (`wallaroo replica`) on a second host."""
    replica_key: Path | str | None = None
    """With ``replicated``: a copy of the key file that the replica wrote into its folder."""
    ingress_listen: tuple[str, int] | None = None
    """Host and port at which `wallaroo ingress` of other hosts joins, to receive TCP sources there,
    too; needs a checkpoint.  None: this host alone receives."""
    source_durability: tuple[tuple[str, Durability | DurabilityName], ...] = ()
    """Sources whose input is kept at another level than the application's, by name."""
    retain_commits: int = 16
    """Newest commits that stay usable as starting points."""
    drain_s: float = 5.0
    """How long a stopping run waits for its output to leave."""
    stop_s: float = 30.0
    """How long a stopping run waits for the batch under way; it is cancelled then."""
    overdue_s: float | None = None
    """A batch that takes longer is reported; None: 30 times ``batch_time_s``."""
    hung_s: float = HUNG_S
    """A process of the run that shows no sign of life for so long is killed and replaced."""
    module_paths: tuple[str, ...] = ()
    """Folders of the application's modules, for sys.path of the workers."""
    spark_conf: tuple[tuple[str, str], ...] = ()
    """Settings of Spark on top of ours."""
    ack_ports: tuple[tuple[str, int], ...] = ()
    """TCP source name and port on which senders get acknowledgements."""
    tls: TLS | None = None
    """Certificate and key with which the driver's range server encrypts what workers on other hosts
    read; they are given the certificate.  At low latency, driver and tasks encrypt with them, too;
    tasks are given both."""
    is_sticky: bool = True
    """On a cluster: tasks go where the state of their key groups is; False: anywhere (to compare).
    """
    status_address: tuple[str, int] | None = ("127.0.0.1", 0)
    """Where the run answers queries over HTTP; port 0: any; None: nowhere."""
    status_token: str = field(default="", repr=False)
    """What clients of the status server must present; empty: nothing on a loopback address, a fresh
    one (in ``run.json``) elsewhere."""
    status_tls: TLS | None = None
    """Certificate and key of the status server, which answers HTTPS only then; with ``ca`` it
    answers only clients whose certificates one of these signed."""
    allow_incompatible: bool = False
    """Continue with a checkpoint of a changed application, dropping what no longer fits."""
    tuning: Tuning = field(default_factory=Tuning, repr=False)
    """Figures that affect speed, never results
    (``wallaroo.instrumentation.tuning``)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "latency", _latency_of(self.latency))
        if isinstance(self.checkpoint, str) and not is_store_url(self.checkpoint):
            object.__setattr__(
                self, "checkpoint", Path(self.checkpoint) if self.checkpoint else None
            )
        if self.is_fresh and self.is_taking_over:
            raise ValueError(FRESH_OR_TAKEN_OVER)
        if self.from_savepoint is None and self.is_fork:
            raise ValueError(FORK_OF_NOTHING)
        if self.from_savepoint is not None and (self.checkpoint is None or self.is_fresh):
            raise ValueError(SAVEPOINT_ALONE)
        if self.standby_after_s is not None:
            is_alone = not (self.is_fresh or self.is_taking_over or self.until_now)
            if not is_alone or not isinstance(self.checkpoint, Path):
                raise ValueError(STANDBY_ALONE)
            if not self.standby_after_s >= STANDBY_LEAST_S:
                raise ValueError(f"standby_after_s={self.standby_after_s}: {STANDBY_TOO_SOON}")
        self._check_durability()
        if self.ingress_listen is not None:
            self._check_ingresses(self.ingress_listen[0])
        if self.host is None:
            return
        if self.host not in tuple(HostKind):
            names = " or ".join(f"'{kind}'" for kind in HostKind)
            raise ValueError(f"host={self.host!r} is not a host. Choose {names}.")
        object.__setattr__(self, "host", HostKind(self.host))
        if isinstance(self.latency, Latency) and _HOSTS[self.latency] is not self.host:
            raise ValueError(
                f"latency='{self.latency}' is the {_HOSTS[self.latency]} host, and host="
                f"'{self.host}' is another. Give latency in milliseconds, or leave it out."
            )

    def _check_ingresses(self, host: str) -> None:
        """Raise ValueError if ingresses of other hosts cannot join."""
        if self.checkpoint is None:
            raise ValueError(INGRESSES_NEED_A_CHECKPOINT)
        if self.until_now or self.level is Durability.REPLICATED:
            raise ValueError(INGRESSES_ALONE)
        if self.tls is None and not is_loopback(host):
            raise ValueError(f"ingress_listen={host}: {INGRESSES_NEED_TLS}")

    def _check_durability(self) -> None:
        """Raise ValueError for levels that are unknown or impossible with this checkpoint."""
        levels = tuple(Durability)
        for level in (self.durability, *dict(self.source_durability).values()):
            if level is not None and level not in levels:
                names = ", ".join(levels)
                raise ValueError(f"durability={level!r} is not a level. Choose one of {names}.")
        if self.checkpoint is None:
            if self.durability is not None or self.source_durability:
                raise ValueError(NEEDS_A_CHECKPOINT)
        elif self.level is Durability.STORE and not self.store_url:
            raise ValueError(NEEDS_A_STORE)
        elif self.level is not Durability.REPLICATED and self.replica is not None:
            raise ValueError(REPLICA_ALONE)
        elif self.level is Durability.REPLICATED and (
            self.store_url or self.replica is None or self.replica_key is None
        ):
            raise ValueError(NEEDS_A_REPLICA)
        elif self.level is Durability.MEMORY and self.store_url:
            raise ValueError(NOT_OF_A_STORE)
        elif any(
            self.level_of(name) not in self._levels_of_sources()
            for name, _ in self.source_durability
        ):
            raise ValueError(WEAKER_SOURCE)

    def _levels_of_sources(self) -> tuple[Durability, ...]:
        """Return the possible levels of sources: a copy's commits refer only to its own input."""
        alone = self.level is Durability.REPLICATED
        return (self.level,) if alone else (self.level, Durability.DISK)

    @property
    def level(self) -> Durability:
        """Return the level of commits and output; a run without a checkpoint syncs nothing."""
        if self.durability is not None:
            return Durability(self.durability)
        if self.checkpoint is None:
            return Durability.MEMORY
        return Durability.STORE if self.store_url else Durability.DISK

    def level_of(self, source: str) -> Durability:
        """Return the level of a source's input."""
        return Durability(dict(self.source_durability).get(source, self.level))

    @property
    def store_url(self) -> str:
        """Return the URL of the checkpoint if it is in an object store, else an empty string."""
        return self.checkpoint if isinstance(self.checkpoint, str) else ""

    def on(self, *, is_shared: bool) -> RunOptions:
        """Return the options with their host, by default or by name.

        ``is_shared``: other jobs of Spark wait for the cores that resident tasks keep.
        """
        if isinstance(self.latency, Latency) or self.host is not None:
            return self
        is_quick = 0 < self.latency_s < MICRO_BATCH_LEAST_MS / 1e3
        is_resident = not is_shared or is_quick or self.replicas > 0
        return replace(self, host=HostKind.RESIDENT if is_resident else HostKind.MICRO_BATCH)

    @property
    def is_resident(self) -> bool:
        """Return whether tasks are resident, for batches of milliseconds."""
        if isinstance(self.latency, Latency):
            return self.latency is Latency.LOW
        return self.host is HostKind.RESIDENT

    @property
    def latency_s(self) -> float:
        """Return the target from an event's receipt to its results; 0 if there is none."""
        if isinstance(self.latency, int | float):
            return self.latency / 1e3
        if self.latency is not None or not self.is_resident:
            return 0.0
        return (STORE_LATENCY_MS if self.store_url else LATENCY_MS) / 1e3

    @property
    def batch_target_s(self) -> float:
        """Return how long a batch of a backlog may take."""
        if self.is_resident:
            return min(self.batch_time_s, max(self.latency_s, EPOCH_TIME_S))
        return self.batch_time_s

    @property
    def retained(self) -> int:
        """Return the minimum number of retained commits."""
        return max(self.retain_commits, RETAINED_FREQUENT if self.is_resident else 1)

    @property
    def batch_deadline_s(self) -> float:
        """Return how long a batch may take before it is reported."""
        return 30 * self.batch_time_s if self.overdue_s is None else self.overdue_s


def _latency_of(value: object) -> Latency | float | None:
    """Return a target in milliseconds, a mode, or None.  Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, str):
        if value in tuple(Latency):
            return Latency(value)
    elif isinstance(value, timedelta) and value > timedelta():
        return value / timedelta(milliseconds=1)
    elif isinstance(value, int | float) and 0 < value < math.inf:
        return float(value)
    raise ValueError(
        f"latency={value!r} is not a target. Give milliseconds above 0 (50), or a timedelta."
    )


class RunChanges(TypedDict, total=False):
    """The fields of ``RunOptions`` as keyword arguments of ``wallaroo.run``."""

    master: str
    checkpoint: Path | str | None
    is_fresh: bool
    is_taking_over: bool
    from_savepoint: Path | str | None
    is_fork: bool
    standby_after_s: float | None
    tasks: int | None
    min_workers: int
    replicas: int
    batch_time_s: float
    speed: float | None
    rate_limit: float | None
    until_now: bool
    latency: timedelta | float | Latency | LatencyName | None
    host: HostKind | HostName | None
    log_level: str
    app_log_level: str
    key_groups: int
    backlog_bytes_max: int
    durability: Durability | DurabilityName | None
    replica: tuple[str, int] | None
    replica_key: Path | str | None
    ingress_listen: tuple[str, int] | None
    source_durability: tuple[tuple[str, Durability | DurabilityName], ...]
    retain_commits: int
    drain_s: float
    stop_s: float
    overdue_s: float | None
    hung_s: float
    module_paths: tuple[str, ...]
    spark_conf: tuple[tuple[str, str], ...]
    ack_ports: tuple[tuple[str, int], ...]
    tls: TLS | None
    is_sticky: bool
    status_address: tuple[str, int] | None
    status_token: str
    status_tls: TLS | None
    allow_incompatible: bool
    tuning: Tuning


class RunHandle(Protocol):
    """A running application.

    As a context manager it stops the run at the end of the block, waits for its end, and raises
    what the run failed with: ``with wallaroo.run(app) as run: run.result()``.
    """

    exception: WallarooError | None
    """The error that ended the run, or None."""
    addresses: dict[str, tuple[str, int]]
    """Address of each TCP source, by source name."""

    @abstractmethod
    def status(self) -> RunStatus:
        """Return a snapshot of the run's status."""

    @abstractmethod
    def begin(self) -> None:
        """Start in the background; called once, by ``wallaroo.runner``."""

    @abstractmethod
    def wait_started(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds until input is processed.

        Return whether it is, or the run has ended.  Raises what ended it.
        """

    @abstractmethod
    def stop(self) -> None:
        """Ask for a stop at the next batch boundary, or during the start; return at once."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds for the end; return whether the run has ended.

        It does not raise if the run failed; ``result`` does.
        """

    def result(self, timeout: float | None = None) -> RunStatus:
        """Wait for the end; return the last status, or raise what the run failed with.

        Raises TimeoutError if the run has not ended after ``timeout`` seconds.
        """
        if not self.wait(timeout):
            raise TimeoutError(
                f"{self!r} is still running after {timeout:g} s; stop() asks it to end."
            )
        if self.exception is not None:
            raise self.exception
        return self.status()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self.wait()
        if error is None and self.exception is not None:
            raise self.exception

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status().headline}>"
