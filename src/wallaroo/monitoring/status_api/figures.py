"""The table of a run's figures.

`/metrics`, the notes of the status and the table in ``docs/monitoring.md`` are made from it.

Where it runs: driver, terminal, ``scripts/figures.py``.  Pure.

Conventions: base units (seconds, bytes) at the end of the name.  Labels are names of the plan
(source, sink, pipeline, stage, step), workers, phases and policies: a bounded set.  Keys of events
are never labels.  Key groups are, up to ``KEY_GROUPS_MAX`` of them.  Counters begin at 0 with the
run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version

from wallaroo.dataflow.plan.model import Plan
from wallaroo.monitoring.metrics.details import LatencyBuckets, RunDetails
from wallaroo.monitoring.metrics.status import (
    BackfillStatus,
    IngressStatus,
    ProcessStatus,
    RunState,
    RunStatus,
    SinkLine,
    SourceStatus,
    StandbyStatus,
    StepUpgrade,
    TimeStatus,
    WorkerStatus,
)
from wallaroo.monitoring.metrics.steps import WorkerLoad
from wallaroo.monitoring.status_api.queries import stage_name

KEY_GROUPS_MAX = 256
PREFIX = "wallaroo_"


class Kind(Enum):
    """The type of a figure, as Prometheus has it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Run:
    """One moment of a run."""

    plan: Plan
    status: RunStatus
    details: RunDetails

    @property
    def stages(self) -> list[str]:
        """Return the names of the stages, by id."""
        return [stage_name(self.plan, stage) for stage in self.plan.stages]


Row = tuple[tuple[str, ...], float | LatencyBuckets]  # the values of labels, and the value
Read = Callable[[Run], Iterable[Row] | None]  # None: the run has no such figure


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: its name, and the way to read it."""

    name: str  # without prefix, unit and suffix
    unit: str  # "": a plain number
    help: str
    kind: Kind
    labels: tuple[str, ...]
    read: Read
    remark: str = ""  # more about it, for the documentation
    # words after its number, for people; only for a counter in ``RunStatus.counts``
    note: str = ""

    @property
    def key(self) -> str:
        """Return the name in ``RunStatus.counts``."""
        return f"{self.name}_{self.unit}" if self.unit else self.name

    @property
    def family(self) -> str:
        """Return the name that Prometheus has, as in a query."""
        return f"{PREFIX}{self.key}{'_total' if self.kind is Kind.COUNTER else ''}"

    @property
    def samples(self) -> tuple[str, ...]:
        if self.kind is not Kind.HISTOGRAM:
            return (self.family,)
        return tuple(f"{self.family}_{part}" for part in ("bucket", "count", "sum"))


def notes(status: RunStatus) -> list[str]:
    """Describe a missed target, the counters for people, except those at 0, and warnings.

    An example is ``Orders: 12 records were skipped because their place was lost``.
    """
    return [*([late_words(status)] * status.is_late), *lasting_notes(status)]


def late_words(status: RunStatus) -> str:
    """Return how far the latency target is missed."""
    return (
        f"the latency target of {status.latency_target_ms:g} ms is not kept: of the last ten "
        f"seconds' results one in a hundred took {status.latency_newest_ms:,.0f} ms or longer"
    )


def lasting_notes(status: RunStatus) -> list[str]:
    """Return the notes that remain once true."""
    counted = [
        f"{place}: {number:,} {figure.note}"
        for figure in FIGURES
        if figure.note
        for place, number in status.counts.get(figure.key, {}).items()
        if number
    ]
    warnings = (losses.warning for losses in status.losses if losses.warning)
    return [*counted, *warnings]


# -- ways to read


def _one(value: Callable[[RunStatus, RunDetails], float | LatencyBuckets]) -> Read:
    return lambda run: [((), value(run.status, run.details))]


def _standby(value: Callable[[StandbyStatus], float | None]) -> Read:
    """Return a function that reads a figure of the standby; None without one, or if unknown."""

    def read(run: Run) -> list[Row] | None:
        standby = run.status.standby
        number = None if standby is None else value(standby)
        return None if number is None else [((), number)]

    return read


def _source(value: Callable[[SourceStatus], float]) -> Read:
    return lambda run: [((source.name,), value(source)) for source in run.status.sources]


def _backfill(value: Callable[[BackfillStatus], float | None]) -> Read:
    """Return a function that reads a figure of backfills; None if there are none."""

    def read(run: Run) -> list[Row] | None:
        parts = [(each.name, each.backfill) for each in run.status.sources if each.backfill]
        values = [(name, value(part)) for name, part in parts]
        return [((name,), number) for name, number in values if number is not None] or None

    return read


def _source_count(key: str) -> Read:
    """Return the reader of a counter in ``RunStatus.counts`` that every source has."""
    return lambda run: [
        ((source.name,), run.status.counts.get(key, {}).get(source.name, 0))
        for source in run.status.sources
    ]


def _lags(run: Run) -> list[Row] | None:
    """Return the lags of partitions; None if no source has any."""
    rows: list[Row] = [
        ((source.name, partition), lag)
        for source in run.status.sources
        for partition, lag in source.lags.items()
    ]
    return rows or None


def _process(value: Callable[[list[ProcessStatus]], float]) -> Read:
    """Return the reader of a figure of the processes that have one name."""

    def read(run: Run) -> list[Row] | None:
        named: dict[str, list[ProcessStatus]] = {}
        for process in run.status.processes:
            named.setdefault(process.name, []).append(process)
        return [((name,), value(some)) for name, some in named.items()] or None

    return read


def _cpu(run: Run) -> list[Row] | None:
    return [((name,), seconds) for name, seconds in run.status.cpu_s.items()] or None


def _sink(value: Callable[[SinkLine], float]) -> Read:
    return lambda run: [((sink.name,), value(sink)) for sink in run.status.sinks]


def _worker(value: Callable[[WorkerStatus], float]) -> Read:
    return lambda run: [((worker.name,), value(worker)) for worker in run.status.workers]


def _load(value: Callable[[WorkerLoad], float]) -> Read:
    return lambda run: [((load.worker,), value(load)) for load in run.details.worker_loads]


def _times(run: Run, label: str) -> list[tuple[str, TimeStatus]]:
    if label == "step":
        return [(step.step, step.time) for step in run.status.step_times]
    return [(source.name, source.time) for source in run.status.sources if source.time is not None]


def _time(label: str, value: Callable[[TimeStatus], float | None]) -> Read:
    """Return the reader of watermarks; only those that exist are read."""

    def read(run: Run) -> list[Row] | None:
        values = [(name, value(time)) for name, time in _times(run, label)]
        return [((name,), number) for name, number in values if number is not None] or None

    return read


def _share(keys: Callable[[RunDetails], Mapping[int, list[tuple[str, float]]]]) -> Read:
    """Return a function that reads the share of each stage's hottest key."""
    return lambda run: [
        ((run.stages[stage],), top[0][1]) for stage, top in sorted(keys(run.details).items()) if top
    ]


def _edge(counts: Callable[[RunDetails], Mapping[tuple[int, int], int]]) -> Read:
    return lambda run: [
        ((run.stages[before], run.stages[after]), count)
        for (before, after), count in sorted(counts(run.details).items())
    ]


def _stage_events(run: Run) -> Iterable[Row]:
    events = sorted(run.details.stage_events.items())
    return [((run.stages[stage],), count) for stage, count in events]


def _step(value: Callable[[tuple[int, float]], float]) -> Read:
    """Return a function that reads the events or seconds of each step."""

    def read(run: Run) -> list[Row]:
        names = run.stages
        # a step and the exit of its stage may have the same name
        by_step: dict[tuple[str, str], tuple[int, float]] = {}
        for load in run.details.steps:
            place = names[load.stage], load.step
            events, seconds = by_step.get(place, (0, 0.0))
            by_step[place] = max(events, load.events), seconds + load.seconds
        return [(place, value(sums)) for place, sums in by_step.items()]

    return read


def _state_step(value: Callable[[tuple[int, int]], float]) -> Read:
    return lambda run: [
        ((step,), value(sums)) for step, sums in sorted(run.details.state_steps.items())
    ]


def _group(counts: Callable[[RunDetails], Mapping[int, int]]) -> Read:
    """Return the reader of a figure by key group; none if there are too many for labels."""

    def read(run: Run) -> list[Row] | None:
        if run.plan.key_groups > KEY_GROUPS_MAX:
            return None
        return [((str(group),), count) for group, count in sorted(counts(run.details).items())]

    return read


def _build(run: Run) -> Iterable[Row]:
    try:
        installed = version("wallaroo-spark")
    except PackageNotFoundError:  # from a zip file
        installed = "unknown"
    return [((run.status.application, installed), 1)]


def _state(run: Run) -> Iterable[Row]:
    return [((state,), float(run.status.state == state)) for state in RunState]


def _durability(run: Run) -> list[Row] | None:
    level = run.status.durability
    return [((level,), 1.0)] if level else None


def _replica(run: Run) -> list[Row] | None:
    replica = run.status.replica
    return [((replica.place,), replica.silent_s)] if replica is not None else None


def _ingresses(value: Callable[[IngressStatus, float], float]) -> Read:
    def rows(run: Run) -> list[Row] | None:
        now = run.status.started_at + run.status.elapsed_s
        return [((each.name,), value(each, now)) for each in run.status.ingresses] or None

    return rows


def _waits(run: Run) -> Iterator[Row]:
    now = run.status.started_at + run.status.elapsed_s
    for sink in run.status.sinks:
        yield (sink.name,), max(0.0, now - (sink.waiting_since or now))


def _phases(run: Run) -> Iterable[Row]:
    return [((phase,), spent) for phase, spent in run.details.phase_seconds.items()]


def _last_commit(run: Run) -> Iterable[Row] | None:
    batches = run.details.batches
    return [((), batches[-1].finished_at)] if batches else None


def _latencies(run: Run) -> Iterable[Row]:
    return [((pipeline,), buckets) for pipeline, buckets in run.details.latency.items()]


def _percentiles(run: Run) -> Iterator[Row]:
    for one in run.status.latency:
        for percentile, value_ms in (
            ("50", one.p50_ms),
            ("95", one.p95_ms),
            ("99", one.p99_ms),
            ("99.9", one.p999_ms),
            ("99.99", one.p9999_ms),
        ):
            yield (one.pipeline, percentile), value_ms / 1e3


def _failed(run: Run) -> Iterator[Row]:
    for error in run.status.errors:
        yield (error.step, "skip"), float(error.skipped)
        yield (error.step, "dead-letter"), float(error.dead_lettered)


def _dropped(run: Run) -> Iterator[Row]:
    for losses in run.status.losses:
        for reason, count in losses.counts.items():
            yield (losses.step, reason), count
    for error in run.status.errors:
        if error.skipped:
            yield (error.step, "skipped"), error.skipped


def _late(run: Run) -> Iterator[Row]:
    for losses in run.status.losses:
        if losses.late:
            yield (losses.step,), losses.late


def _late_of(run: Run) -> Iterator[Row]:
    for losses in run.status.losses:
        if losses.late:
            yield (losses.step,), losses.late / losses.events


def _upgrades(value: Callable[[StepUpgrade], float]) -> Read:
    return lambda run: [((one.step,), value(one)) for one in run.status.upgrades]


# -- the table

_SOURCE = ("source",)
_SINK = ("sink",)
_STEP = ("step",)
_STAGE = ("stage",)
_WORKER = ("worker",)
_PROCESS = ("process",)
_GROUP = ("key_group",)
_UP_TO = "Event time up to which nothing is expected any more, in unix time."
_BEHIND = "How far that is behind the clock."
_AS_OF = "as of its key groups' last snapshots."
_WRITTEN = "these are written as the log grows: it is at most about half as large as the state"
_EVOLVING = "steps whose stored objects may be of an earlier form"
_HELD_BACK = "windows with a delay may hold it back"

_OF_RUN = (
    Figure("build_info", "", "Always 1; its labels say what runs.", Kind.GAUGE,
           ("application", "version"), _build),
    Figure("run_state", "", "1 for the state the run is in, 0 for the others.", Kind.GAUGE,
           ("state",), _state),
    Figure("start_time", "seconds", "When the run began, in unix time.", Kind.GAUGE, (),
           _one(lambda status, _: status.started_at)),
    Figure("recovery_duration", "seconds", "From the start until input was accepted.", Kind.GAUGE,
           (), _one(lambda _, details: details.recovery.ready_s)),
    Figure("recovered_batch", "", "Last commit that the run found; -1 if none.", Kind.GAUGE, (),
           _one(lambda status, _: status.recovered_batch)),
    Figure("epoch", "", "Number of the claim with which the run leads its checkpoint; of a "
           "standby, 0.", Kind.GAUGE, (), _one(lambda status, _: status.epoch)),
    Figure("durability", "", "Always 1; its label says what acknowledgements, commits and output "
           "wait for.", Kind.GAUGE, ("level",), _durability, "with a checkpoint"),
    Figure("replica_silence", "seconds", "Since the replica confirmed something last, while "
           "something waits; else 0.", Kind.GAUGE, ("replica",), _replica,
           "with --durability replicated"),
    Figure("ingress_disconnected", "seconds", "For how long an ingress on another host has been "
           "disconnected; else 0.", Kind.GAUGE, ("ingress",),
           _ingresses(lambda one, now: 0.0 if one.is_there else max(0.0, now - one.since)),
           "with --ingress-listen"),
    Figure("ingress_backlog", "events", "Events that an ingress on another host has stored and no "
           "commit has, when it reported last.", Kind.GAUGE, ("ingress",),
           _ingresses(lambda one, _: one.backlog_events), "with --ingress-listen"),
    Figure("standby_lease_age", "seconds", "Since the leader's lease was seen to move.",
           Kind.GAUGE, (), _standby(lambda standby: standby.lease_s), "standbys only"),
    Figure("standby_behind", "commits", "Commits of the leader that the state of a standby lacks.",
           Kind.GAUGE, (), _standby(lambda standby: standby.behind), "standbys only"),
)  # fmt: skip
_OF_SOURCES = (
    Figure("events_received", "", "Events that are durable in the spool.", Kind.COUNTER, _SOURCE,
           _source(lambda source: source.events_in)),
    Figure("events_processed", "", "Events of committed batches.", Kind.COUNTER, _SOURCE,
           _source(lambda source: source.events_done)),
    Figure("backlog", "events", "Events received and not in a committed batch yet.", Kind.GAUGE,
           _SOURCE, _source(lambda source: source.backlog_events)),
    Figure("backlog", "bytes", "Bytes received and not in a committed batch yet.", Kind.GAUGE,
           _SOURCE, _source(lambda source: source.backlog_bytes)),
    Figure("source_info", "", "Always 1; its labels say what a source reads, and its consumer "
           "group.", Kind.GAUGE, ("source", "at", "group"), lambda run: [
               ((source.name, source.label, source.group), 1) for source in run.status.sources
           ]),
    Figure("source_partition_lag", "events", "Events that wait in a partition.", Kind.GAUGE,
           ("source", "partition"), _lags, "Kafka, SQL tables and sources of your own; the 64 "
           "largest of a source. Kafka's transaction markers count"),
    Figure("source_connections", "", "Open client connections.", Kind.GAUGE, _SOURCE,
           _source(lambda source: source.connections)),
    Figure("source_paused", "", "1 while reading is paused, the backlog being at its bound.",
           Kind.GAUGE, _SOURCE, _source(lambda source: float(source.is_paused))),
    Figure("source_backfill_share", "", "Share of a chain's first part that is read.", Kind.GAUGE,
           _SOURCE, _backfill(lambda part: part.share), "until the second part is read"),
    Figure("source_backfill_left", "seconds", "Estimated time until it is read.", Kind.GAUGE,
           _SOURCE, _backfill(lambda part: part.ends_in_s), "until the second part is read"),
    Figure("source_skipped", "records", "Records skipped because their place was lost.",
           Kind.COUNTER, _SOURCE, _source_count("source_skipped_records"),
           "with `on_data_loss=\"skip\"`, as far as their number is known",
           note="records were skipped because their place was lost"),
    Figure("source_rejected", "connections", "Connections that were closed for what they sent.",
           Kind.COUNTER, _SOURCE, _source_count("source_rejected_connections"),
           "such as a frame that is too long; the log has each",
           note="connections were closed for what they sent"),
)  # fmt: skip
_OF_TIMES = (
    Figure("source_watermark", "seconds", _UP_TO, Kind.GAUGE, _SOURCE,
           _time("source", lambda time: time.watermark), "applications with time only"),
    Figure("source_watermark_lag", "seconds", _BEHIND, Kind.GAUGE, _SOURCE,
           _time("source", lambda time: time.lag_s), "applications with time only"),
    Figure("step_watermark", "seconds", _UP_TO, Kind.GAUGE, _STEP,
           _time("step", lambda time: time.watermark), _HELD_BACK),
    Figure("step_watermark_lag", "seconds", _BEHIND, Kind.GAUGE, _STEP,
           _time("step", lambda time: time.lag_s)),
    Figure("source_partitions", "", "Partitions that may still give events.", Kind.GAUGE, _SOURCE,
           _time("source", lambda time: time.partitions)),
    Figure("source_partitions_idle", "", "Partitions that hold time back no longer.", Kind.GAUGE,
           _SOURCE, _time("source", lambda time: time.idle)),
)  # fmt: skip
_OF_SINKS = (
    Figure("outputs", "", "Outputs that have left.", Kind.COUNTER, _SINK,
           _sink(lambda sink: sink.outputs)),
    Figure("sink_pending", "bytes", "Committed output that has not left yet.", Kind.GAUGE, _SINK,
           _sink(lambda sink: sink.pending_bytes)),
    Figure("sink_waiting", "", "1 while the sink waits for something outside.", Kind.GAUGE, _SINK,
           _sink(lambda sink: float(bool(sink.waiting_for))), "the status names it"),
    Figure("sink_waiting", "seconds", "For how long the sink has had output of which nothing "
           "left; 0 if it has none.", Kind.GAUGE, _SINK, _waits,
           "a rolling sink that gathers output for a file does not wait"),
)  # fmt: skip
_OF_BATCHES = (
    Figure("batches", "", "Committed batches.", Kind.COUNTER, (),
           _one(lambda status, _: status.batches)),
    Figure("batch_duration", "seconds", "From planning a batch to letting its sinks go.",
           Kind.HISTOGRAM, (), _one(lambda _, details: details.batch_seconds)),
    Figure("batch_phase", "seconds", "Time in each phase of batches.", Kind.COUNTER, ("phase",),
           _phases),
    Figure("last_batch", "", "Number of the last committed batch; -1 if none.", Kind.GAUGE, (),
           _one(lambda status, _: status.last_batch)),
    Figure("last_commit_timestamp", "seconds", "When the last batch ended, in unix time.",
           Kind.GAUGE, (), _last_commit),
    Figure("tasks", "", "Tasks per stage of the current batch.", Kind.GAUGE, (),
           _one(lambda status, _: status.tasks)),
    Figure("latency", "seconds", "From an event's receipt at the ingress to the moment its output "
           "left.", Kind.HISTOGRAM, ("pipeline",), _latencies, "1 ms to 5 min"),
    Figure("latency_percentile", "seconds", "Latency since the run began, more precise than the "
           "histogram's bounds.", Kind.GAUGE, ("pipeline", "percentile"), _percentiles,
           "50, 95, 99, 99.9, 99.99"),
    Figure("latency_target_missed", "", "1 while p99 of the last ten seconds' latencies is above "
           "twice the latency target, and that of three of these seconds, too.", Kind.GAUGE, (),
           _one(lambda status, _: float(status.is_late)), "`--latency`; the status says it, too"),
)  # fmt: skip
_OF_STEPS = (
    Figure("stage", "events", "Events that entered a stage.", Kind.COUNTER, _STAGE, _stage_events),
    Figure("shuffle", "events", "Events that went through a shuffle.", Kind.COUNTER,
           ("from", "to"), _edge(lambda details: details.edges)),
    Figure("shuffle", "bytes", "Bytes that went through a shuffle, as they were packed.",
           Kind.COUNTER, ("from", "to"), _edge(lambda details: details.edge_bytes)),
    Figure("hottest_key", "ratio", "Share of a stage's events that its most frequent key has.",
           Kind.GAUGE, _STAGE, _share(lambda details: details.hot_keys),
           "the key is in the dashboard and in `wallaroo profile`"),
    Figure("slowest_key", "ratio", "Share of a stage's time that its slowest key takes.",
           Kind.GAUGE, _STAGE, _share(lambda details: details.slow_keys),
           "the key is in the dashboard and in `wallaroo profile`"),
    Figure("step", "events", "Events given to a step, estimated from samples.", Kind.COUNTER,
           ("stage", "step"), _step(lambda sums: sums[0])),
    Figure("step", "seconds", "Time in a step's function, estimated from samples.", Kind.COUNTER,
           ("stage", "step"), _step(lambda sums: sums[1])),
    Figure("failed_events", "", "Events that failed without stopping the run.", Kind.COUNTER,
           ("step", "policy"), _failed),
    Figure("step_dropped_events", "", "Events that left a step without a result.", Kind.COUNTER,
           ("step", "reason"), _dropped, "filtered, late (dropped), skipped (by its error "
           "policy), deduplicated, replaced (in latest_per_key), unmatched (in a join); expired: "
           "states of keys"),
    Figure("step_late_events", "", "Late events of a step, dropped or not.", Kind.COUNTER, _STEP,
           _late),
    Figure("step_late", "ratio", "Share of a step's events that are late.", Kind.GAUGE, _STEP,
           _late_of, "since the run began"),
    Figure("state_upgraded", "objects", "Stored state objects brought to the present form of their "
           "class.", Kind.COUNTER, _STEP, _upgrades(lambda one: one.upgraded), _EVOLVING),
    Figure("state_upgrade_left", "objects", "Stored state objects of an earlier form.", Kind.GAUGE,
           _STEP, _upgrades(lambda one: one.left), "complete once the next one is not 0"),
    Figure("state_upgrade", "", "Of the upgrade in the background: 0 while it counts, 1 while it "
           "upgrades, 2 at its end.", Kind.GAUGE, _STEP,
           _upgrades(lambda one: one.is_counted + one.is_done), _EVOLVING),
)  # fmt: skip
_OF_WORKERS = (
    Figure("worker_cores", "", "Cores of a worker's executors.", Kind.GAUGE, _WORKER,
           _worker(lambda worker: worker.cores)),
    Figure("worker_key_groups", "", "Key groups that a worker works on.", Kind.GAUGE, _WORKER,
           _worker(lambda worker: len(worker.key_groups))),
    Figure("worker_replica_key_groups", "", "Key groups of other workers that a worker keeps a "
           "copy of.", Kind.GAUGE, _WORKER, _worker(lambda worker: len(worker.replica_groups)),
           "with --replicas 1"),
    Figure("worker_busy", "seconds", "Time a worker spent in tasks.", Kind.COUNTER, _WORKER,
           _load(lambda load: load.busy_seconds)),
    Figure("workers_killed", "", "Worker processes that were killed or crashed.", Kind.COUNTER,
           (), _one(lambda status, _: status.workers_killed), "such as by the system for lack of "
           "memory, or by a function of the application. Each is a line in the log; their tasks "
           "run again"),
    Figure("worker", "events", "Events that entered stages of a worker's tasks.", Kind.COUNTER,
           _WORKER, _load(lambda load: load.events)),
)  # fmt: skip
_OF_PROCESSES = (
    Figure("processes", "", "Processes of the run on the driver's machine.", Kind.GAUGE, _PROCESS,
           _process(len)),
    Figure("process_resident", "bytes", "Memory of these processes.", Kind.GAUGE, _PROCESS,
           _process(lambda some: sum(process.resident_bytes for process in some)),
           "as of up to 10 s ago; memory that they share counts for each"),
    Figure("process_cpu", "seconds", "Processor time of these processes.", Kind.COUNTER, _PROCESS,
           _cpu, "those that ended included"),
)  # fmt: skip
_OF_STATE = (
    Figure("damaged_files", "", "Files of the checkpoint that were found damaged.", Kind.GAUGE, (),
           _one(lambda status, _: len(status.damaged))),
    Figure("state_snapshot", "bytes", "State in the snapshots in force.", Kind.GAUGE, (),
           _one(lambda _, details: details.state.snapshot_bytes)),
    Figure("state_written", "entries", "State entries written by committed batches.", Kind.COUNTER,
           (), _one(lambda _, details: details.state_changes[0])),
    Figure("state_written", "bytes", "Bytes of state written by committed batches.", Kind.COUNTER,
           (), _one(lambda _, details: details.state_changes[1])),
    Figure("state", "entries", f"State entries of a step, {_AS_OF}", Kind.GAUGE, _STEP,
           _state_step(lambda sums: sums[0]), _WRITTEN),
    Figure("state", "bytes", f"State of a step, {_AS_OF}", Kind.GAUGE, _STEP,
           _state_step(lambda sums: sums[1]), _WRITTEN),
    Figure("key_group", "entries", "State entries in a key group's last snapshot.", Kind.GAUGE,
           _GROUP, _group(lambda details: details.group_entries)),
    Figure("key_group", "events", "Events by key group, estimated from samples.", Kind.COUNTER,
           _GROUP, _group(lambda details: details.group_events)),
    Figure("key_group", "bytes", "State in a key group's last snapshot.", Kind.GAUGE, _GROUP,
           _group(lambda details: details.state.group_bytes)),
)  # fmt: skip

FIGURES: tuple[Figure, ...] = (
    *_OF_RUN,
    *_OF_SOURCES,
    *_OF_TIMES,
    *_OF_SINKS,
    *_OF_BATCHES,
    *_OF_STEPS,
    *_OF_WORKERS,
    *_OF_PROCESSES,
    *_OF_STATE,
)
