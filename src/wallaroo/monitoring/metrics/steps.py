"""Loads of stages, steps, edges and workers.

Events that enter a stage or pass an edge between two stages are counted exactly, block by block.
Time is sampled: each task times the first events of one block per batch (`engine.sampling`), at low
latency only in some batches, and a sample is scaled to all events of that task since its last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wallaroo.engine.report import TaskReport
from wallaroo.engine.stages.sampling import StageSample

KEYS_MAX = 256


class HotKeys:
    """Counts of keys, which arrive as (key, count) pairs of samples.

    The algorithm is Space-Saving (Metwally, Agrawal, El Abbadi, "Efficient computation of frequent
    and top-k elements in data streams", 2005): a new key replaces the least frequent one and
    inherits its count. Invariants, which the tests check:

    * at most ``KEYS_MAX`` keys are kept;
    * a key's count is never below its true one, and above it by at most ``total / KEYS_MAX``;
    * so every key with more than ``total / KEYS_MAX`` occurrences is kept.

    `fade` halves all counts, so that keys that were hot an hour ago are replaced.
    """

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self.total = 0

    def add(self, counted: Iterable[tuple[str, int]]) -> None:
        counts = self._counts
        for key, count in counted:
            self.total += count
            if key in counts:
                counts[key] += count
            elif len(counts) < KEYS_MAX:
                counts[key] = count
            else:
                least = min(counts, key=counts.__getitem__)
                counts[key] = counts.pop(least) + count

    def add_total(self, count: int) -> None:
        """Count events whose keys were too rare to be listed in their sample."""
        self.total += count

    def fade(self) -> None:
        """Halve all counts."""
        self.total //= 2
        self._counts = {key: count // 2 for key, count in self._counts.items() if count > 1}

    def top(self, number: int) -> list[tuple[str, float]]:
        """Return the most frequent keys with their share of all events, most frequent first.

        >>> keys = HotKeys()
        >>> keys.add([("the", 3), ("of", 1)])
        >>> keys.top(1)
        [('the', 0.75)]
        """
        first = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))[:number]
        return [(key, count / self.total) for key, count in first]


HOT_KEYS_SHOWN = 20
FADE_EVERY_BATCHES = 120
WORKERS_MAX = 1024  # newest; hosts that come and go under fresh names must not fill the memory


@dataclass(frozen=True, slots=True)
class StepLoad:
    """Load of one step of one stage since the run began.

    Events and seconds are scaled from samples.
    """

    stage: int
    step: str
    place: int  # within its stage, in the order in which events pass
    events: int
    seconds: float


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """One worker, since the run began."""

    worker: str
    tasks: int
    busy_seconds: float
    events: int  # that entered the stages of its tasks


class StepMeter:
    """Loads by step, edge, worker and key group."""

    def __init__(self) -> None:
        self.stage_events: dict[int, int] = {}
        self.edges = Counter[tuple[int, int]]()
        self.edge_bytes = Counter[tuple[int, int]]()
        self.state_changes: tuple[int, int] = (0, 0)  # entries and bytes written to deltas
        self.group_events: dict[int, int] = {}  # by key group, scaled from samples
        # by key group, as of its last snapshot: entries and bytes by name in the step table
        self.group_sizes: dict[int, Mapping[str, tuple[int, int]]] = {}
        self._steps: dict[tuple[int, int], StepLoad] = {}
        self._workers: dict[str, WorkerLoad] = {}
        self._hot: dict[int, HotKeys] = {}
        self._slow: dict[int, HotKeys] = {}  # counts are nanoseconds
        self._unsampled: dict[tuple[int, int], int] = {}  # stage, task -> events since its sample
        self._sampled_batches = 0

    def batch_done(self, reports: Sequence[TaskReport]) -> None:
        """Count the reports of a committed batch's tasks."""
        for report in reports:
            self._add_worker(report)
            for stage, events in report.stage_events.items():
                self.stage_events[stage] = self.stage_events.get(stage, 0) + events
                place = stage, report.task
                self._unsampled[place] = self._unsampled.get(place, 0) + events
            self.edges.update(report.edges)
            self.edge_bytes.update(report.edge_bytes)
            for sample in report.stage_samples:
                place = sample.head, report.task
                self._add_sample(sample, self._unsampled.get(place, sample.events))
            if report.delta is not None:
                entries, size = self.state_changes
                self.state_changes = entries + report.delta.entries, size + report.delta.size
            self.group_sizes.update(report.group_sizes)
            for sample in report.stage_samples:
                if sample.events:
                    self._unsampled.pop((sample.head, report.task), None)
        self._count_batch(any(report.stage_samples for report in reports))

    def _count_batch(self, is_sampled: bool) -> None:
        self._sampled_batches += is_sampled
        if is_sampled and self._sampled_batches % FADE_EVERY_BATCHES == 0:
            for keys in (*self._hot.values(), *self._slow.values()):
                keys.fade()

    def _add_worker(self, report: TaskReport) -> None:
        load = self._workers.pop(report.worker, WorkerLoad(report.worker, 0, 0.0, 0))
        self._workers[report.worker] = WorkerLoad(
            report.worker,
            load.tasks + 1,
            load.busy_seconds + report.busy_ms / 1e3,
            load.events + sum(report.stage_events.values()),
        )
        if len(self._workers) > WORKERS_MAX:
            del self._workers[next(iter(self._workers))]  # the one that has been idle longest

    def _add_sample(self, sample: StageSample, events: int) -> None:
        scale = events / sample.events if sample.events else 1.0
        for place, step in enumerate(sample.steps):
            load = self._steps.get(
                (sample.stage, place), StepLoad(sample.stage, step.step, place, 0, 0.0)
            )
            self._steps[sample.stage, place] = StepLoad(
                sample.stage,
                step.step,
                place,
                load.events + round(step.events * scale),
                load.seconds + step.nanoseconds * scale / 1e9,
            )
        if sample.keys or sample.other_keys:
            hot = self._hot.setdefault(sample.stage, HotKeys())
            hot.add(sample.keys)
            hot.add_total(sample.other_keys)
        if sample.slow_keys:
            slow = self._slow.setdefault(sample.stage, HotKeys())
            slow.add(sample.slow_keys)
            slow.add_total(sample.other_ns)
        for group, count in sample.groups.items():
            self.group_events[group] = self.group_events.get(group, 0) + round(count * scale)

    @property
    def steps(self) -> tuple[StepLoad, ...]:
        """Return all loads, by stage and place."""
        return tuple(self._steps[place] for place in sorted(self._steps))

    @property
    def state_steps(self) -> dict[str, tuple[int, int]]:
        """Return the entries and bytes by name in the step table."""
        totals: dict[str, tuple[int, int]] = {}
        for steps in self.group_sizes.values():
            for name, (entries, size) in steps.items():
                before = totals.get(name, (0, 0))
                totals[name] = before[0] + entries, before[1] + size
        return totals

    @property
    def group_entries(self) -> dict[int, int]:
        return {
            group: sum(entries for entries, _ in steps.values())
            for group, steps in sorted(self.group_sizes.items())
        }

    @property
    def workers(self) -> tuple[WorkerLoad, ...]:
        """Return all loads, by name."""
        return tuple(self._workers[name] for name in sorted(self._workers))

    def hot_keys(self) -> dict[int, list[tuple[str, float]]]:
        """Return the most frequent keys by stage, with their share of its events."""
        return {stage: keys.top(HOT_KEYS_SHOWN) for stage, keys in self._hot.items()}

    def slow_keys(self) -> dict[int, list[tuple[str, float]]]:
        """Return the keys that take most time by stage, with their share of its time."""
        return {stage: keys.top(HOT_KEYS_SHOWN) for stage, keys in self._slow.items()}
