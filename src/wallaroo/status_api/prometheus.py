"""The run's figures in Prometheus' text format.

Where it runs: driver, when ``/metrics`` is read; nothing is counted for Prometheus while events
flow.

Conventions: base units (seconds, bytes), counters end in ``_total``, everything begins with
``wallaroo_``.  Labels are names of the plan (source, sink, pipeline, stage, step), workers, phases
and policies: a bounded set.  Keys of events are never labels.  Key groups are, up to
``KEY_GROUPS_MAX`` of them.  Counters begin at 0 with the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest

from wallaroo.metrics.details import BOUNDS_S, LatencyBuckets, RunDetails
from wallaroo.metrics.status import RunStatus
from wallaroo.plan.model import Plan
from wallaroo.status_api.queries import stage_name

_Buckets = tuple[tuple[str, ...], LatencyBuckets]  # values of labels, and the buckets

KEY_GROUPS_MAX = 256
STATES = ("starting", "running", "stopping", "stopped", "finished", "failed")

Rows = Iterable[tuple[tuple[str, ...], float]]


def exposition(plan: Plan, status: RunStatus, details: RunDetails) -> bytes:
    """Return all metrics of one run, and those of the driver's process."""
    registry = CollectorRegistry()
    registry.register(_Snapshot(plan, status, details))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Snapshot:
    """A collector of one moment."""

    def __init__(self, plan: Plan, status: RunStatus, details: RunDetails):
        self._plan = plan
        self._status = status
        self._details = details

    def collect(self) -> Iterator[Metric]:
        yield from _run(self._status, self._details)
        yield from _sources(self._status)
        yield from _times(self._status)
        yield from _sinks(self._status)
        yield from _batches(self._status, self._details)
        yield from _latency(self._status, self._details)
        yield from _steps(self._plan, self._details)
        yield from _failures(self._status)
        yield from _workers(self._status, self._details)
        yield from _state(self._plan, self._status, self._details)


def _counter(name: str, text: str, labels: tuple[str, ...], rows: Rows) -> Metric:
    family = CounterMetricFamily(f"wallaroo_{name}", text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _gauge(name: str, text: str, labels: tuple[str, ...], rows: Rows) -> Metric:
    family = GaugeMetricFamily(f"wallaroo_{name}", text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _histogram(
    name: str, text: str, labels: tuple[str, ...], rows: Iterable[_Buckets]
) -> Metric:  # fmt: skip
    family = HistogramMetricFamily(f"wallaroo_{name}", text, labels=labels)
    for values, buckets in rows:
        bounds = zip((str(bound) for bound in BOUNDS_S), buckets.counts, strict=True)
        family.add_metric(values, [*bounds, ("+Inf", buckets.count)], sum_value=buckets.sum_s)
    return family


def _run(status: RunStatus, details: RunDetails) -> Iterator[Metric]:
    labels = ("application", "version")
    yield _gauge("build_info", "Always 1; its labels say what runs.", labels,
                 [((status.application, _version()), 1)])  # fmt: skip
    yield _gauge("run_state", "1 for the state the run is in, 0 for the others.", ("state",),
                 [((state,), float(status.state == state)) for state in STATES])  # fmt: skip
    yield _gauge("start_time_seconds", "When the run began, in unix time.", (),
                 [((), status.started_at)])  # fmt: skip
    yield _gauge("recovery_duration_seconds", "From the start until input was accepted.", (),
                 [((), details.recovery.ready_s)])  # fmt: skip
    yield _gauge("recovered_batch", "Last commit that the run found; -1 if none.", (),
                 [((), status.recovered_batch)])  # fmt: skip


def _sources(status: RunStatus) -> Iterator[Metric]:
    sources = status.sources
    label = ("source",)
    yield _counter("events_received", "Events that are durable in the spool.", label,
                   [((s.name,), s.events_in) for s in sources])  # fmt: skip
    yield _counter("events_processed", "Events of committed batches.", label,
                   [((s.name,), s.events_done) for s in sources])  # fmt: skip
    yield _gauge("backlog_events", "Events received and not in a committed batch yet.", label,
                 [((s.name,), s.backlog_events) for s in sources])  # fmt: skip
    yield _gauge("backlog_bytes", "Bytes received and not in a committed batch yet.", label,
                 [((s.name,), s.backlog_bytes) for s in sources])  # fmt: skip
    yield _gauge("source_connections", "Open client connections.", label,
                 [((s.name,), s.connections) for s in sources])  # fmt: skip
    yield _gauge("source_paused", "1 while reading is paused, the backlog being at its bound.",
                 label, [((s.name,), float(s.is_paused)) for s in sources])  # fmt: skip


def _times(status: RunStatus) -> Iterator[Metric]:
    sources = [(s.name, s.time) for s in status.sources if s.time is not None]
    steps = [(s.step, s.time) for s in status.step_times]
    for label, times in ("source", sources), ("step", steps):
        known = [(name, t) for name, t in times if t.watermark is not None and t.lag_s is not None]
        if known:
            yield _gauge(f"{label}_watermark_seconds", "Event time up to which nothing is "
                         "expected any more, in unix time.", (label,),
                         [((name,), t.watermark or 0.0) for name, t in known])  # fmt: skip
            yield _gauge(f"{label}_watermark_lag_seconds", "How far that is behind the clock.",
                         (label,), [((name,), t.lag_s or 0.0) for name, t in known])  # fmt: skip
    if sources:
        yield _gauge("source_partitions", "Partitions that may still give events.", ("source",),
                     [((name,), t.partitions) for name, t in sources])  # fmt: skip
        yield _gauge("source_partitions_idle", "Partitions that hold time back no longer.",
                     ("source",), [((name,), t.idle) for name, t in sources])  # fmt: skip


def _sinks(status: RunStatus) -> Iterator[Metric]:
    sinks = status.sinks
    label = ("sink",)
    yield _counter("outputs", "Outputs that have left.", label,
                   [((s.name,), s.outputs) for s in sinks])  # fmt: skip
    yield _gauge("sink_pending_bytes", "Committed output that has not left yet.", label,
                 [((s.name,), s.pending_bytes) for s in sinks])  # fmt: skip
    yield _gauge("sink_waiting", "1 while the sink waits for something outside.", label,
                 [((s.name,), float(bool(s.waiting_for))) for s in sinks])  # fmt: skip
    now = status.started_at + status.elapsed_s
    waits = [((s.name,), max(0.0, now - (s.waiting_since or now))) for s in sinks]
    yield _gauge("sink_waiting_seconds", "For how long the sink has had output of which nothing "
                 "left; 0 if it has none.", label, waits)  # fmt: skip


def _batches(status: RunStatus, details: RunDetails) -> Iterator[Metric]:
    yield _counter("batches", "Committed batches.", (), [((), status.batches)])
    yield _histogram("batch_duration_seconds", "From planning a batch to letting its sinks go.",
                     (), [((), details.batch_seconds)])  # fmt: skip
    yield _counter(
        "batch_phase_seconds",
        "Time in each phase of batches.",
        ("phase",),
        [((phase,), spent) for phase, spent in details.phase_seconds.items()],
    )
    yield _gauge("last_batch", "Number of the last committed batch; -1 if none.", (),
                 [((), status.last_batch)])  # fmt: skip
    if details.batches:
        yield _gauge("last_commit_timestamp_seconds", "When the last batch ended, in unix time.",
                     (), [((), details.batches[-1].finished_at)])  # fmt: skip
    yield _gauge("tasks", "Tasks per stage of the current batch.", (), [((), status.tasks)])


def _latency(status: RunStatus, details: RunDetails) -> Iterator[Metric]:
    yield _histogram(
        "latency_seconds",
        "From an event's receipt at the ingress to the moment its output left.",
        ("pipeline",),
        [((pipeline,), buckets) for pipeline, buckets in details.latency.items()],
    )
    yield _gauge(
        "latency_percentile_seconds",
        "Latency since the run began, more precise than the histogram's bounds.",
        ("pipeline", "percentile"),
        [
            ((one.pipeline, percentile), value_ms / 1e3)
            for one in status.latency
            for percentile, value_ms in (
                ("50", one.p50_ms),
                ("95", one.p95_ms),
                ("99", one.p99_ms),
                ("99.9", one.p999_ms),
                ("99.99", one.p9999_ms),
            )
        ],
    )


def _steps(plan: Plan, details: RunDetails) -> Iterator[Metric]:
    names = {stage.id: stage_name(plan, stage) for stage in plan.stages}
    yield _counter("stage_events", "Events that entered a stage.", ("stage",),
                   [((names[s],), n) for s, n in sorted(details.stage_events.items())])  # fmt: skip
    yield _counter(
        "shuffle_events",
        "Events that went through a shuffle.",
        ("from", "to"),
        [((names[a], names[b]), n) for (a, b), n in sorted(details.edges.items())],
    )
    yield _counter(
        "shuffle_bytes",
        "Bytes that went through a shuffle, as they were packed.",
        ("from", "to"),
        [((names[a], names[b]), n) for (a, b), n in sorted(details.edge_bytes.items())],
    )
    for name, text, keys in (
        ("hottest", "Share of a stage's events that its most frequent key has.", details.hot_keys),
        ("slowest", "Share of a stage's time that its slowest key takes.", details.slow_keys),
    ):
        rows = [((names[stage],), top[0][1]) for stage, top in sorted(keys.items()) if top]
        yield _gauge(f"{name}_key_ratio", text, ("stage",), rows)
    # a step and the exit of its stage may have one name
    by_step: dict[tuple[str, str], tuple[int, float]] = {}
    for load in details.steps:
        place = names[load.stage], load.step
        events, seconds = by_step.get(place, (0, 0.0))
        by_step[place] = max(events, load.events), seconds + load.seconds
    yield _counter(
        "step_events",
        "Events given to a step, estimated from samples.",
        ("stage", "step"),
        [(place, n) for place, (n, _) in by_step.items()],
    )
    yield _counter(
        "step_seconds",
        "Time in a step's function, estimated from samples.",
        ("stage", "step"),
        [(place, s) for place, (_, s) in by_step.items()],
    )


def _failures(status: RunStatus) -> Iterator[Metric]:
    rows = [
        ((error.step, policy), float(count))
        for error in status.errors
        for policy, count in (("skip", error.skipped), ("dead-letter", error.dead_lettered))
    ]
    yield _counter(
        "failed_events", "Events that failed without stopping the run.", ("step", "policy"), rows
    )


def _workers(status: RunStatus, details: RunDetails) -> Iterator[Metric]:
    workers = status.workers
    loads = details.worker_loads
    label = ("worker",)
    yield _gauge("worker_cores", "Cores of a worker's executors.", label,
                 [((w.name,), w.cores) for w in workers])  # fmt: skip
    yield _gauge("worker_key_groups", "Key groups that a worker works on.", label,
                 [((w.name,), len(w.key_groups)) for w in workers])  # fmt: skip
    yield _counter("worker_busy_seconds", "Time a worker spent in tasks.", label,
                   [((w.worker,), w.busy_seconds) for w in loads])  # fmt: skip
    yield _counter("workers_killed", "Worker processes that were killed from outside.", (),
                   [((), status.workers_killed)])  # fmt: skip
    yield _counter("worker_events", "Events that entered stages of a worker's tasks.", label,
                   [((w.worker,), w.events) for w in loads])  # fmt: skip


def _state(plan: Plan, status: RunStatus, details: RunDetails) -> Iterator[Metric]:
    entries, size = details.state_changes
    yield _gauge("damaged_files", "Files of the checkpoint that were found damaged.", (),
                 [((), len(status.damaged))])  # fmt: skip
    yield _gauge("state_snapshot_bytes", "State in the snapshots in force.", (),
                 [((), details.state.snapshot_bytes)])  # fmt: skip
    yield _counter("state_written_entries", "State entries written by committed batches.", (),
                   [((), entries)])  # fmt: skip
    yield _counter("state_written_bytes", "Bytes of state written by committed batches.", (),
                   [((), size)])  # fmt: skip
    steps = sorted(details.state_steps.items())
    text = "as of its key groups' last snapshots."
    yield _gauge("state_entries", f"State entries of a step, {text}", ("step",),
                 [((step,), n) for step, (n, _) in steps])  # fmt: skip
    yield _gauge("state_bytes", f"State of a step, {text}", ("step",),
                 [((step,), n) for step, (_, n) in steps])  # fmt: skip
    if plan.key_groups <= KEY_GROUPS_MAX:
        label = ("key_group",)
        yield _gauge(
            "key_group_entries",
            "State entries in a key group's last snapshot.",
            label,
            [((str(g),), n) for g, n in sorted(details.group_entries.items())],
        )
        yield _counter(
            "key_group_events",
            "Events by key group, estimated from samples.",
            label,
            [((str(g),), n) for g, n in sorted(details.group_events.items())],
        )
        yield _gauge(
            "key_group_bytes",
            "State in a key group's last snapshot.",
            label,
            [((str(g),), n) for g, n in sorted(details.state.group_bytes.items())],
        )


def _version() -> str:
    try:
        return version("wallaroo-spark")
    except PackageNotFoundError:  # from a zip file
        return "unknown"
