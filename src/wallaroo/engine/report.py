"""The control row: a task's report to the driver for one batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wallaroo.engine.failures.policies import Sample, Tally
from wallaroo.engine.stages.sampling import StageSample
from wallaroo.engine.time.partition_times import ObservedSource
from wallaroo.errors import WallarooError
from wallaroo.steps.losses import Losses
from wallaroo.user_code.compact_pickles import pickled_by_values


@pickled_by_values
@dataclass(frozen=True, slots=True)
class TaskReport:
    level: int
    task: int
    attempt: str
    # producer of the level before -> the attempt whose blocks were read
    consumed: dict[int, str] = field(default_factory=dict)
    events: dict[int, int] = field(default_factory=dict)  # source -> frames read
    # source -> receipt (unix ms) -> frames
    receipts: dict[int, dict[int, int]] = field(default_factory=dict)
    outputs: dict[int, int] = field(default_factory=dict)  # sink -> outputs staged
    tokens: dict[int, Any] = field(default_factory=dict)  # sink -> token that its writer prepared
    delta: Any = None  # reference to the delta file written, if any
    snapshots: tuple[Any, ...] = ()  # references to the snapshots written
    error: WallarooError | None = None
    busy_ms: float = 0.0
    notes: dict[str, float] = field(default_factory=dict)  # named measurements, e.g. view catch-up
    errors: Tally = field(default_factory=dict)  # events that failed without stopping the run
    samples: tuple[Sample, ...] = ()  # some of them
    losses: Losses = field(default_factory=dict)  # events that left without a result
    worker: str = ""  # the worker on which the task ran
    # source -> observations of its partitions; empty without event time
    observed: dict[int, ObservedSource] = field(default_factory=dict)
    # due time of the first remaining timer or window, in event and in processing time
    due_ns: tuple[int, int] | None = None
    stage_events: dict[int, int] = field(default_factory=dict)  # stage -> events that entered it
    # (stage, stage after the shuffle) -> events
    edges: dict[tuple[int, int], int] = field(default_factory=dict)
    # the same -> bytes, as they were packed
    edge_bytes: dict[tuple[int, int], int] = field(default_factory=dict)
    stage_samples: tuple[StageSample, ...] = ()
    # for the key groups in ``snapshots``: key group -> name in the step table -> entries, bytes
    group_sizes: Mapping[int, Mapping[str, tuple[int, int]]] = field(default_factory=dict)


def mixed_attempts(reports: list[TaskReport]) -> str:
    """Return the error if a producer was not read, or was read in another attempt; ``""`` if none.

    The attempt to read is the one that was reported, which counts.  The commit must refuse a batch
    with such an error.
    """
    made: dict[int, dict[int, str]] = {}
    for report in reports:
        made.setdefault(report.level, {})[report.task] = report.attempt
    for report in reports:
        counts = made.get(report.level - 1, {})
        if report.consumed == counts:
            continue
        for producer in sorted(counts.keys() - report.consumed.keys()):
            return f"task {report.task} of level {report.level} has not read producer {producer}"
        for producer, attempt in report.consumed.items():
            if counts.get(producer) != attempt:
                return (
                    f"task {report.task} of level {report.level} read attempt {attempt} of "
                    f"producer {producer}"
                )
    return ""
