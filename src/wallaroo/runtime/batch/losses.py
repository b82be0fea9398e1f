"""Counts of events without a result, and warnings about late events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from wallaroo.dataflow.plan.model import Plan, SourceEntry, SourceTime, Stage, ToExchange
from wallaroo.engine.report import TaskReport
from wallaroo.engine.time.watermarks import Watermarks
from wallaroo.monitoring.metrics.status import StepLosses
from wallaroo.steps.losses import DROPPED, Loss

LATE_SHARE = 0.1  # a larger share of a step's events is a mistake, not stragglers
LATE_MIN = 10  # fewer show no pattern
_YEAR_NS = 365 * 86_400 * 10**9
_UNITS = ((86_400 * 10**9, "days"), (3600 * 10**9, "h"), (60 * 10**9, "min"), (10**9, "s"),
          (10**6, "ms"))  # fmt: skip


class LossMeter:
    """Losses of committed batches, by step.  Not safe to share between threads.

    ``steps``: the steps that lost something, in order of name, as of the newest batch with losses.
    """

    def __init__(self, plan: Plan):
        self.steps: tuple[StepLosses, ...] = ()
        self._plan = plan
        self._counts = Counter[tuple[str, str]]()
        self._edges = Counter[tuple[int, int]]()
        self._warned: set[str] = set()
        self._marks: Mapping[str, object] = {}  # not parsed: only a warning reads them
        self._stages = {step.step_name: stage for stage in plan.stages for step in stage.steps}

    def add(self, reports: Sequence[TaskReport], marks: Mapping[str, object]) -> list[str]:
        """Count a batch; return the new warnings.  ``marks``: the watermarks of its commit."""
        for report in reports:
            self._edges.update(report.edges)
            self._counts.update(report.losses)
        if not any(report.losses for report in reports):
            return []
        self._marks = marks
        steps = (self._of(name) for name in sorted({step for step, _ in self._counts}))
        self.steps = tuple(each for each in steps if each.counts or each.late)
        new = [each for each in self.steps if each.warning and each.step not in self._warned]
        self._warned |= {each.step for each in new}
        return [each.warning for each in new]

    def _count(self, step: str, loss: Loss) -> int:
        return self._counts.get((step, loss.value), 0)

    def _of(self, step: str) -> StepLosses:
        counts = {loss.value: self._count(step, loss) for loss in DROPPED}
        late = counts[Loss.LATE] + self._count(step, Loss.LATE_KEPT)
        events = max(late, self._events(step)) if late else 0
        is_much = late >= LATE_MIN and late > LATE_SHARE * events
        return StepLosses(
            step,
            {loss: count for loss, count in counts.items() if count},
            late,
            events,
            self._warning(step, late, events) if is_much else "",
        )

    def _events(self, step: str) -> int:
        """Return about how many events arrived at a step: those of its stage, less earlier losses.

        After a shuffle, pre-aggregated events count one by one.
        """
        stage = self._stages[step]
        head = self._plan.head_of(stage)
        passed = sum(count for (_, into), count in self._edges.items() if into == head.id)
        names = [each.step_name for each in stage.steps]
        lost = sum(
            self._count(before, loss)
            for before in names[: names.index(step)]
            for loss in (Loss.FILTERED, Loss.DEDUPLICATED, Loss.LATE)
        )
        return passed - lost + self._count(step, Loss.ADDED_UP)

    def _warning(self, step: str, late: int, events: int) -> str:
        behind_ns = self._count(step, Loss.LATE_BY_NS) // late
        return (
            f"{late / events:.0%} of the events of step '{step}' are late ({late:,} of "
            f"{events:,}), {_span(behind_ns)} behind the watermark on average. Probably "
            f"{self._reason(self._stages[step], behind_ns)}"
        )

    def _reason(self, stage: Stage, behind_ns: int) -> str:
        if behind_ns > _YEAR_NS:
            return "some times are in another unit than others, such as ms and ns."
        sources = [self._plan.source_times[number] for number in set(self._sources(stage))]
        timed = [(name, how) for name, how in sources if not how.is_receipt]
        if not timed:
            return "windows before it hold its events back."
        name, how = min(timed, key=lambda each: each[1].delay_ns)
        return "; or ".join(self._reasons(name, how, behind_ns)) + "."

    def _reasons(self, name: str, how: SourceTime, behind_ns: int) -> Iterator[str]:
        if 0 < how.delay_ns < 10**6:
            yield (
                f"the delay of source '{name}' has the wrong unit: it is {how.delay_ns:,} ns, and "
                "a timedelta says what is meant"
            )
        else:
            delay = _span(how.delay_ns) if how.delay_ns else "none"
            yield f"the delay of source '{name}' is too small: it is {delay}"
        mark = Watermarks.from_json(self._marks).sources.get(name)
        kinds = {source.config.name: source.config.kind for source in self._plan.sources}
        # each file is a partition: files read in parallel do not make each other late
        if kinds[name] == "files":
            yield "files that came later have times from before those of files already read"
        elif mark is not None and len(mark.partitions) <= 1:
            yield (
                "events of several files or devices, each with times of its own, follow each other "
                "in one partition: give each a partition, as FilesSourceConfig does for files"
            )
        elif how.idle_after_ns is not None:
            yield (
                f"a partition had no events for {_span(how.idle_after_ns)} (idle_after), and the "
                "watermark advanced without it"
            )
        else:
            yield "a partition began when the others were ahead of it"

    def _sources(self, stage: Stage) -> Iterator[int]:
        """Yield the sources whose events reach a stage."""
        head = self._plan.head_of(stage)
        if isinstance(head.entry, SourceEntry):
            yield head.entry.source
            return
        for origin in self._plan.stages:
            if isinstance(origin.exit, ToExchange) and origin.exit.stage == head.id:
                yield from self._sources(origin)


def _span(span_ns: int) -> str:
    """Format a span with one unit.

    >>> _span(90 * 10**9), _span(1_500_000), _span(5)
    ('1.5 min', '1.5 ms', '5 ns')
    """
    for unit_ns, unit in _UNITS:
        if span_ns >= unit_ns:
            return f"{span_ns / unit_ns:.3g} {unit}"
    return f"{span_ns} ns"
