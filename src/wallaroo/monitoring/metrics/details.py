"""Details of a run beyond its `RunStatus`, for dashboard and Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from wallaroo.monitoring.metrics.batches import BatchRecord
from wallaroo.monitoring.metrics.failed_events import FailedEvent
from wallaroo.monitoring.metrics.histogram import LatencyHistogram
from wallaroo.monitoring.metrics.progress import Moved, Phase, Recovery
from wallaroo.monitoring.metrics.status import IngressStatus, ReplicaStatus, StandbyStatus
from wallaroo.monitoring.metrics.steps import StepLoad, WorkerLoad
from wallaroo.state.log.commits import Commit

# The bounds of Prometheus histograms, in seconds: from a block in memory to a receiver's outage.
BOUNDS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0
)  # fmt: skip


@dataclass(slots=True)
class Identity:
    """The facts about a run as a whole."""

    application: str
    started_at: float
    checkpoint: str
    is_durable: bool
    durability: str = ""
    epoch: int = 0  # the claim to the checkpoint; 0 before it
    standby: StandbyStatus | None = None  # while another run leads
    # sources of information about these, which must not wait
    replica: Callable[[], ReplicaStatus] | None = None
    ingresses: Callable[[], tuple[IngressStatus, ...]] = tuple  # on other hosts


@dataclass(frozen=True, slots=True)
class LatencyBuckets:
    """A histogram for Prometheus: counts of values up to each ``BOUNDS_S``."""

    counts: tuple[int, ...]
    count: int
    sum_s: float

    @staticmethod
    def of(histogram: LatencyHistogram) -> LatencyBuckets:
        """Count by bounds."""
        counts = histogram.at_most([bound * 1e3 for bound in BOUNDS_S])
        return LatencyBuckets(counts, histogram.count, histogram.total_ms / 1e3)


@dataclass(frozen=True, slots=True)
class StateSize:
    """Packed bytes of state, in snapshots in force and the newest deltas."""

    snapshot_bytes: int = 0
    delta_bytes: int = 0
    group_bytes: dict[int, int] = field(default_factory=dict)  # by key group, of its last snapshot

    @staticmethod
    def of(commit: Commit) -> StateSize:
        """Add up the snapshots and deltas of a commit."""
        groups: dict[int, int] = {}
        for snapshot in commit.snapshots:
            share = snapshot.size // (snapshot.end - snapshot.first)
            groups.update(dict.fromkeys(range(snapshot.first, snapshot.end), share))
        size = sum(snapshot.size for snapshot in commit.snapshots)
        return StateSize(size, sum(delta.size for delta in commit.deltas), groups)


@dataclass(frozen=True, slots=True)
class RunDetails:
    """One snapshot; counts are since the run began.

    ``state_steps`` and ``group_entries`` are as of the last snapshot of each key group: they are
    complete when every group has written one.
    """

    steps: tuple[StepLoad, ...]
    stage_events: dict[int, int]
    edges: dict[tuple[int, int], int]  # (stage, stage after the shuffle) -> events
    edge_bytes: dict[tuple[int, int], int]  # the same -> bytes, as they were packed
    hot_keys: dict[int, list[tuple[str, float]]]  # stage -> key, share of its events
    slow_keys: dict[int, list[tuple[str, float]]]  # stage -> key, share of its time
    group_events: dict[int, int]
    worker_loads: tuple[WorkerLoad, ...]
    state: StateSize
    state_changes: tuple[int, int]  # entries and bytes that were written
    state_steps: dict[str, tuple[int, int]]  # name in the step table -> entries, bytes
    group_entries: dict[int, int]  # key group -> entries
    batches: tuple[BatchRecord, ...]  # the newest, oldest first
    phase_seconds: dict[str, float]
    batch_seconds: LatencyBuckets
    latency: dict[str, LatencyBuckets]  # by pipeline
    failed: tuple[FailedEvent, ...]  # the newest, oldest first
    failed_total: int
    phases: tuple[Phase, ...]  # those of the start
    recovery: Recovery
    moves: tuple[Moved, ...]  # the newest, oldest first
