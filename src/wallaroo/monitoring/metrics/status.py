"""The status of a running application, as one frozen snapshot.

It is read by the live table, the log line, and programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from wallaroo.errors import InternalError

Counts = Mapping[str, Mapping[str, int]]  # by the name of a figure and, for example, source
LATE_SECONDS_MIN = 3  # in the last ten: a target that fewer seconds miss counts as kept


@dataclass(frozen=True, slots=True)
class TimeStatus:
    """A watermark, as of the last commit."""

    watermark: float | None  # unix seconds; None: nothing was observed yet
    # how far that is behind the clock; None if nothing was observed yet, or all sources are idle
    lag_s: float | None
    # the source that it follows, in words: the slowest one, and its partition if it has several;
    # one without events holds it back until it has some, or is idle
    held_by: str = ""
    partitions: int = 0  # a source's partitions that may still have events
    idle: int = 0  # those that are ignored
    is_idle: bool = False  # no partition has events: time is not held back, so it does not lag


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step's watermark.

    It is behind the sources' by the delays of windows before it.
    """

    step: str
    time: TimeStatus


@dataclass(frozen=True, slots=True)
class BackfillStatus:
    """Progress of the first part of a chain."""

    events_done: int
    events_left: int
    share: float | None  # up to 1; None: the total is not known yet
    ends_in_s: float | None  # estimated from the last seconds; None: not known yet


@dataclass(frozen=True, slots=True)
class SourceStatus:
    name: str
    label: str
    events_in: int  # events accepted into the spool since this run started
    events_done: int  # events of committed batches since this run started
    backlog_events: int  # in the spool, and not yet in a committed batch
    backlog_bytes: int
    connections: int  # open client connections; 0 for files and generators
    is_paused: bool  # ingress stopped reading: the backlog is at its bound
    is_ended: bool  # a file or generator without further events
    time: TimeStatus | None = None  # None in an application without time
    # events that wait in each partition, the largest of them if they are many; empty if the source
    # has none, or does not know
    lags: Mapping[str, int] = field(default_factory=dict)
    group: str = ""  # the consumer group under which the other system shows this reader
    backfill: BackfillStatus | None = None  # None: not a chain, or its first part is read


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """A process of the run on the driver's machine."""

    name: str  # its role, such as "worker"
    pid: int
    cpu: float  # cores in use, over the last few seconds
    resident_bytes: int  # with memory that it shares with others


@dataclass(frozen=True, slots=True)
class SinkLine:
    name: str
    label: str
    outputs: int
    waiting_for: str  # and since when; empty while output leaves
    pending_bytes: int
    waiting_since: float | None = None  # unix seconds; None if nothing waits


@dataclass(frozen=True, slots=True)
class PipelineLatency:
    """Latency of one pipeline, in ms, from receipt to output.

    Receipt: the bytes came out of the socket.  Output: they were written to the sink's socket, or
    the file was published.
    """

    pipeline: str
    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    p9999_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """One step's skipped failed events in the committed batches of this run."""

    step: str
    skipped: int
    dead_lettered: int
    last: str  # the last failure that was sampled: place, cause, and the shortened event


@dataclass(frozen=True, slots=True)
class StepLosses:
    """Events that left one step without a result since this run started."""

    step: str
    counts: Mapping[str, int]  # by reason (``steps.losses``); expired: states, not events
    late: int = 0  # late events, dropped or not
    events: int = 0  # about how many arrived at the step; counted if some were late
    warning: str = ""  # if too many are late: how many, and the probable reason

    @property
    def words(self) -> str:
        """Return the counts in words."""
        counts = dict(self.counts)
        if kept := self.late - counts.get("late", 0):
            counts["late with a place of their own"] = kept
        return f"{self.step}: " + ", ".join(f"{count:,} {why}" for why, count in counts.items())


@dataclass(frozen=True, slots=True)
class StepUpgrade:
    """The upgrade in the background of one step's stored state objects."""

    step: str
    version: int  # the class's; 0: it declares none, so that objects lack attributes at most
    upgraded: int = 0  # since this run started, those that events met included
    left: int = 0  # still stored in an earlier form; until they are counted, those found so far
    is_counted: bool = False
    is_done: bool = False

    @property
    def begins(self) -> str:
        """Return the beginning in words."""
        return (
            f"the state of step '{self.step}' has {self.left:,} objects of an earlier form, which "
            "are upgraded in the background"
        )

    @property
    def ends(self) -> str:
        """Return the end in words."""
        form = "have the attributes of a new one"
        if self.version:
            form = f"are of version {self.version}: functions that upgrade earlier ones may go"
        return f"the state of step '{self.step}': {self.upgraded:,} upgraded; all objects {form}"

    @property
    def words(self) -> str:
        """Return the progress in words."""
        left = f"{self.left:,} left" if self.is_counted else "counting what is left"
        return f"{self.step}: {self.upgraded:,} upgraded, {left}"


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker: a host with one view of its tasks' state."""

    name: str  # WALLAROO_WORKER of its environment, else the host's name
    host: str  # as Spark names it
    cores: int  # those of its executors
    tasks: int  # tasks that it ran in the last batch, all levels
    # key groups that its tasks worked on last: their state is in its view
    key_groups: tuple[int, ...]
    replica_groups: tuple[int, ...] = ()  # key groups of other workers that it keeps a copy of


@dataclass(frozen=True, slots=True)
class StandbyStatus:
    """Standby: the leading run, and how far its commits are followed."""

    leader: str  # empty: none is known
    epoch: int  # the newest claim's; 0: nothing was begun yet
    lease_s: float  # since the leader's lease was seen to move, by this machine's clock
    after_s: float  # after this time without renewal the lease is taken over
    last_batch: int | None  # the newest commit; -1: none, None: not read yet
    ready_batch: int  # the commit up to which this standby has the state; -1: none

    @property
    def behind(self) -> int | None:
        """Return by how many commits the state here is behind; None: not read yet."""
        return None if self.last_batch is None else self.last_batch - self.ready_batch

    @property
    def words(self) -> str:
        """Return the figures in words."""
        leader = f"{self.leader} leads (epoch {self.epoch})" if self.leader else "no run leads"
        behind = f"the state here is {self.behind} commits behind commit {self.last_batch}"
        if self.last_batch is None:
            behind = "its commits are not read yet"
        elif self.last_batch < 0:
            behind = "nothing is committed yet"
        return f"standby: {leader}, its lease moved {self.lease_s:.1f} s ago; {behind}"


class RunState(StrEnum):
    """A state of a run.

    The value is its name in the status, the metrics and the terminal.
    """

    STARTING = "starting"
    STANDBY = "standby"  # waits to take over
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"  # all input is processed
    FAILED = "failed"

    def to(self, next_state: RunState) -> RunState:
        """Return the next state.

        Raises InternalError if the transition is impossible.

        >>> RunState.RUNNING.to(RunState.STOPPING)
        <RunState.STOPPING: 'stopping'>
        """
        if next_state not in TRANSITIONS[self]:
            raise InternalError(f"a run that is {self} cannot become {next_state}")
        return next_state


TRANSITIONS: Mapping[RunState, frozenset[RunState]] = MappingProxyType(
    {
        RunState.STARTING: frozenset(
            {RunState.STANDBY, RunState.RUNNING, RunState.STOPPED, RunState.FAILED}
        ),
        RunState.STANDBY: frozenset({RunState.STARTING, RunState.STOPPED, RunState.FAILED}),
        RunState.RUNNING: frozenset({RunState.STOPPING, RunState.FAILED}),
        RunState.STOPPING: frozenset({RunState.STOPPED, RunState.FINISHED, RunState.FAILED}),
        RunState.STOPPED: frozenset(),
        RunState.FINISHED: frozenset(),
        RunState.FAILED: frozenset(),
    }
)


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """The replica that keeps the checkpoint's copy on a second host."""

    place: str  # host:port
    silent_s: float  # since it last confirmed something, while something waits; else 0


@dataclass(frozen=True, slots=True)
class IngressStatus:
    """An ingress on another host that has joined the run."""

    name: str
    is_there: bool  # connected
    since: float  # unix seconds: the connection's beginning, or its end
    trouble: str  # why its input is not read; empty if it is read
    connections: int  # clients' there, when it reported last
    backlog_events: int  # there and not committed, when it reported last


@dataclass(frozen=True, slots=True)
class RunStatus:
    application: str
    state: RunState
    started_at: float  # unix seconds
    elapsed_s: float
    batches: int  # committed in this run
    last_batch: int  # number of the last committed batch, -1 if none
    batch_ms: float  # duration of the last batch
    batch_ms_median: float  # over the last 50
    events_in: int
    events_done: int
    outputs: int
    events_in_per_s: float  # over the last few seconds
    events_done_per_s: float
    outputs_per_s: float
    tasks: int
    sources: tuple[SourceStatus, ...]
    sinks: tuple[SinkLine, ...]
    latency: tuple[PipelineLatency, ...]
    waiting_for: str  # the cause of a wait; empty if there is none
    checkpoint: str
    is_durable: bool
    # what commits wait for: memory, disk, replicated, store; empty: nothing is kept
    durability: str = ""
    replica: ReplicaStatus | None = None  # None: no level but replicated has one
    ingresses: tuple[IngressStatus, ...] = ()  # on other hosts, by name
    epoch: int = 0  # the number of the run's claim to its checkpoint; 0 before it
    # the last committed batch this run found in its checkpoint; -1 if it began empty
    recovered_batch: int = -1
    errors: tuple[ErrorCount, ...] = ()  # by step
    losses: tuple[StepLosses, ...] = ()  # by step
    # by step whose stored objects may be of an earlier form
    upgrades: tuple[StepUpgrade, ...] = ()
    workers: tuple[WorkerStatus, ...] = ()  # by name
    # what the last change of the cluster moved, in words: key groups, bytes of state, pause
    moved: str = ""
    # worker processes that were killed or crashed
    workers_killed: int = 0
    # the phase of a starting or stopping run, such as "starting Spark", and its duration
    doing: str = ""
    doing_s: float = 0.0
    # unix seconds when it began to process input; 0 before: rates and latencies count from here
    running_at: float = 0.0
    damaged: tuple[str, ...] = ()  # files of the checkpoint, each with its damage
    step_times: tuple[StepTime, ...] = ()  # state steps; none in an application without time
    # plain counters since the run began: by the name of their figure and, for example, source
    counts: Counts = field(default_factory=dict)
    latency_target_ms: float = 0.0  # 0 if there is none
    latency_newest_ms: float = 0.0  # p99 of the last ten seconds; 0 if nothing left in them
    latency_late_s: int = 0  # how many of these had a p99 above twice the target themselves
    dashboard: str = ""  # its address, without the token; empty: nothing is served
    processes: tuple[ProcessStatus, ...] = ()  # on the driver's machine, the driver first
    # processor seconds since the run began by the processes' names, those that ended included
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    standby: StandbyStatus | None = None  # while it waits to take over

    @property
    def is_late(self) -> bool:
        """Return whether one result in a hundred takes longer than twice the latency target.

        One slow batch, for example during a garbage collection, is not enough.
        """
        is_over = self.state is RunState.FINISHED or self.latency_late_s < LATE_SECONDS_MIN
        return not is_over and 0 < 2 * self.latency_target_ms < self.latency_newest_ms

    @property
    def headline(self) -> str:
        """Return the application, its state and its progress, in a few words."""
        return (
            f"'{self.application}': {self.state}{f' ({self.doing})' if self.doing else ''}, "
            f"{self.batches:,} {'batch' if self.batches == 1 else 'batches'}, "
            f"{self.events_done:,} events done"
        )

    def __repr__(self) -> str:
        return f"<RunStatus {self.headline}>"
