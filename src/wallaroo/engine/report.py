"""The control row: a task's report to the driver for one batch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
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
    # ``attempts_digest`` of the producers of the level before whose blocks were read
    consumed: str = ""
    events: dict[int, int] = field(default_factory=dict)  # source -> frames read
    # source -> receipt (unix ms) -> frames
    receipts: dict[int, dict[int, int]] = field(default_factory=dict)
    outputs: dict[int, int] = field(default_factory=dict)  # sink -> outputs staged
    tokens: dict[int, Any] = field(default_factory=dict)  # sink -> its writer's prepared token
    delta: Any = None  # reference to the delta file written, if any
    snapshots: tuple[Any, ...] = ()  # references to the snapshots written
    error: WallarooError | None = None
    busy_ms: float = 0.0
    notes: dict[str, float] = field(default_factory=dict)  # named measurements, e.g. view catch-up
    errors: Tally = field(default_factory=dict)  # events that failed without stopping the run
    samples: tuple[Sample, ...] = ()  # some of them
    losses: Losses = field(default_factory=dict)  # events without a result
    worker: str = ""  # the worker on which the task ran
    host: str = ""  # its executor's, as Spark names it, which no other one has
    idle_deaths: tuple[str, ...] = ()  # its processes that were killed between two tasks
    # source -> observations of its partitions; empty without event time
    observed: dict[int, ObservedSource] = field(default_factory=dict)
    # due time of the first remaining timer or window, in event and in processing time
    due_ns: tuple[int, int] | None = None
    stage_events: dict[int, int] = field(default_factory=dict)  # stage -> events that entered it
    # (stage, stage after the shuffle) -> events
    edges: dict[tuple[int, int], int] = field(default_factory=dict)
    # the same -> packed bytes, without blocks that stay in their task
    edge_bytes: dict[tuple[int, int], int] = field(default_factory=dict)
    stage_samples: tuple[StageSample, ...] = ()
    # for the key groups in ``snapshots``: key group -> name in the step table -> entries, bytes
    group_sizes: Mapping[int, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    # source -> partition -> the place and events up to which its range was read, if not to its end
    cut_short: dict[int, dict[str, tuple[Any, int]]] = field(default_factory=dict)
    # key group -> progress of the upgrade in the background (``engine.stores``)
    upgraded: Mapping[int, tuple[bytes | None, int]] = field(default_factory=dict)


def attempts_digest(attempts: Mapping[int, str]) -> str:
    """Return a fixed-length digest of producers and their attempts.

    Each task reads every producer, so reports with the attempts themselves would grow with the
    square of the tasks.
    """
    if not attempts:
        return ""
    stated = "".join(f"{producer} {attempts[producer]}\n" for producer in sorted(attempts))
    return hashlib.blake2b(stated.encode(), digest_size=16).hexdigest()


def refusal(reports: list[TaskReport], widths: Sequence[int]) -> str:
    """Return why a batch of these reports cannot be committed; ``""`` if it can.

    It can if each of the ``widths`` tasks by level reported once, and if each producer was read in
    the attempt that it reported.
    """
    reported = sorted((report.level, report.task) for report in reports)
    expected = [(level, task) for level, width in enumerate(widths) for task in range(width)]
    if reported != expected:
        arrived = len({*reported} & {*expected})
        return f"{arrived} of {len(expected)} tasks have reported, in {len(reported)} reports"
    attempts: dict[int, dict[int, str]] = {}
    for report in reports:
        attempts.setdefault(report.level, {})[report.task] = report.attempt
    counting = {level + 1: attempts_digest(of_level) for level, of_level in attempts.items()}
    for report in reports:
        if report.consumed != counting.get(report.level, ""):
            return (
                f"task {report.task} of level {report.level} has not read exactly the reported "
                f"attempts of the {len(attempts.get(report.level - 1, {}))} tasks before it"
            )
    return ""
