"""Events that failed without stopping the run.

They are counted by step, the newest are kept, and each batch logs a few lines about them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wallaroo.engine.failures.policies import Sample, Tally
from wallaroo.engine.report import TaskReport
from wallaroo.monitoring.metrics.status import ErrorCount
from wallaroo.steps.kinds import DEAD_LETTER, SKIP

LINES_MAX = 3  # per batch, so that a flood of bad input does not flood the log
DONE = {SKIP: "skipped", DEAD_LETTER: "written as a dead letter"}


FAILED_KEPT = 100  # newest samples


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """A sample of the failed events."""

    number: int  # among the samples of this run
    at: float  # unix seconds
    batch: int
    step: str
    policy: str  # skip or dead-letter
    place: str  # file and line
    cause: str
    event: str


class ErrorLog:
    """Failed events by step, and newest samples.

    Not safe to share between threads.
    """

    def __init__(self) -> None:
        self.newest: deque[FailedEvent] = deque(maxlen=FAILED_KEPT)
        self._samples = 0
        self._counts = Counter[tuple[str, str]]()
        self._last: dict[str, str] = {}

    def add(self, batch: int, at: float, counts: Tally, samples: Sequence[Sample]) -> None:
        self._counts.update(counts)
        for sample in samples:
            self._samples += 1
            self._last[sample.step] = f"{sample.place}: {sample.cause}: {sample.event}"
            self.newest.append(
                FailedEvent(
                    self._samples,
                    at,
                    batch,
                    sample.step,
                    sample.policy,
                    sample.place,
                    sample.cause,
                    sample.event,
                )
            )

    @property
    def counts(self) -> tuple[ErrorCount, ...]:
        """Return the counts by step, in order of name."""
        return error_counts(self._counts, self._last)

    @property
    def total(self) -> int:
        return sum(self._counts.values())


def gather_failures(reports: Iterable[TaskReport]) -> tuple[Tally, list[Sample]]:
    """Return the counts of a batch's tasks, and their samples in order of level and task."""
    counts = Counter[tuple[str, str]]()
    samples: list[Sample] = []
    for report in sorted(reports, key=lambda report: (report.level, report.task)):
        counts.update(report.errors)
        samples += report.samples
    return counts, samples


def error_counts(counts: Tally, last: Mapping[str, str]) -> tuple[ErrorCount, ...]:
    """Return counts by step, in order of name; ``last``: the last failure's text by step."""
    steps = sorted({step for step, _ in counts})
    return tuple(
        ErrorCount(
            step,
            counts.get((step, SKIP), 0),
            counts.get((step, DEAD_LETTER), 0),
            last.get(step, ""),
        )
        for step in steps
    )


def failure_lines(batch: int, counts: Tally, samples: Sequence[Sample]) -> Iterator[str]:
    """Yield at most LINES_MAX lines about a batch's failures, and one that counts the others.

    There is one per step if there is room, each with a sample.
    """
    shown = _one_per_step_first(samples)[:LINES_MAX]
    for sample in shown:
        where = f" at {sample.place}" if sample.place else ""
        what = f"step '{sample.step}' failed{where}: {sample.cause}"
        yield f"batch {batch}: {what}; event {DONE[sample.policy]}: {sample.event}"
    more = sum(counts.values()) - len(shown)
    if more:
        yield (
            f"batch {batch}: {more:,} more events failed and were skipped or written as dead "
            f"letters"
        )


def _one_per_step_first(samples: Sequence[Sample]) -> list[Sample]:
    first: dict[str, Sample] = {}
    for sample in samples:
        first.setdefault(sample.step, sample)
    chosen = list(first.values())
    return chosen + [sample for sample in samples if sample is not first[sample.step]]
