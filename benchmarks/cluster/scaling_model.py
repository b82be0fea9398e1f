"""What a batch costs beside its work, by number of tasks and levels: a model of few terms, fitted
to measurements and extrapolated.

Where it runs: pure.

A batch of ``levels`` levels with ``tasks`` tasks each costs beside the work of its tasks

    t = a + b * levels + c * levels * tasks + d * (levels - 1) * tasks^2

``a``: planning, commit, Spark's own round; ``b``: a Spark stage; ``c``: to plan, send and account
for a task; ``d``: what every task sends every task of the next level (a marker each, a size in
Spark's map of the shuffle). No cost is negative: a term that a fit would make negative is left out,
and the others are fitted again. Measurements are weighted by 1/t^2: errors count in proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TERMS = ("a", "b levels", "c levels tasks", "d (levels - 1) tasks^2")
WORTH = 0.5  # of what one more core could do at best: below, it does not pay


@dataclass(frozen=True, slots=True)
class Point:
    """A measurement."""

    tasks: int
    levels: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Model:
    """Seconds per term, in the order of TERMS."""

    terms: tuple[float, float, float, float]

    def __call__(self, tasks: int, levels: int) -> float:
        """Return seconds.

        >>> Model((0.1, 0.01, 0.001, 0.0))(10, 2)
        0.14
        """
        return sum(
            share * size for share, size in zip(self.terms, _sizes(tasks, levels), strict=True)
        )

    def residual(self, points: Sequence[Point]) -> float:
        """Return the largest difference from the measurements, as a share of them."""
        return max(
            abs(self(point.tasks, point.levels) - point.seconds) / point.seconds for point in points
        )


def _sizes(tasks: int, levels: int) -> tuple[float, float, float, float]:
    return 1.0, float(levels), float(levels * tasks), float((levels - 1) * tasks**2)


def fit(points: Sequence[Point]) -> Model:
    """Return the model with the least squared relative errors and no negative term, of the terms
    that the points distinguish.
    """
    used = _distinguishable(points)
    while True:
        found = _least_squares(points, used)
        negative = [number for number in used if found[number] < 0]
        if not negative:
            return Model((found[0], found[1], found[2], found[3]))
        largest = max(points, key=lambda point: point.tasks * point.levels)
        sizes = _sizes(largest.tasks, largest.levels)
        # the one that counts most there
        used.remove(min(negative, key=lambda number: found[number] * sizes[number]))


def _distinguishable(points: Sequence[Point]) -> list[int]:
    tasks, levels = len({point.tasks for point in points}), len({point.levels for point in points})
    return [
        0,
        *([1] if levels > 1 else []),
        *([2] if tasks > 1 else []),
        *([3] if tasks > 2 else []),
    ]


def _least_squares(points: Sequence[Point], used: Sequence[int]) -> list[float]:
    """Solve the normal equations of the terms in use; the others are 0.  Terms are scaled, as their
    sizes lie far apart.
    """
    scales = {
        number: max(_sizes(point.tasks, point.levels)[number] for point in points)
        for number in used
    }
    rows = [
        [
            _sizes(point.tasks, point.levels)[number] / scales[number] / point.seconds
            for number in used
        ]
        for point in points
    ]
    matrix = [
        [sum(row[i] * row[j] for row in rows) for j in range(len(used))] for i in range(len(used))
    ]
    solved = _solved(matrix, [sum(row[i] for row in rows) for i in range(len(used))])
    by_term = dict(zip(used, solved, strict=True))
    return [by_term.get(number, 0.0) / scales.get(number, 1.0) for number in range(len(TERMS))]


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss with pivots.  Raises ValueError where the measurements do not distinguish the terms."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for at in range(size):
        pivot = max(range(at, size), key=lambda number: abs(rows[number][at]))
        rows[at], rows[pivot] = rows[pivot], rows[at]
        if abs(rows[at][at]) < 1e-12 * max(abs(value) for line in matrix for value in line):
            raise ValueError("too few different measurements for the model")
        for number in range(size):
            if number != at:
                share = rows[number][at] / rows[at][at]
                rows[number] = [
                    value - share * above
                    for value, above in zip(rows[number], rows[at], strict=True)
                ]
    return [rows[at][size] / rows[at][at] for at in range(size)]


@dataclass(frozen=True, slots=True)
class Overhead:
    """What batches cost beside their work: ``quiet`` seconds with few tasks, and what more tasks
    add in the driver and in each task.
    """

    base: Model  # seconds from batch to batch with few tasks
    few: int  # that many
    driver: Model  # CPU seconds of the driver's processes
    task: Model  # CPU seconds of all tasks together, beside the work

    def __call__(self, tasks: int, levels: int) -> float:
        """Return the seconds of a batch in which tasks do no work.

        The driver's CPU time beyond that of ``few`` tasks counts as if nothing of it were done side
        by side; the tasks' own as if each had a core.
        """
        more = max(0.0, self.driver(tasks, levels) - self.driver(self.few, levels))
        own = self.task(tasks, levels) / tasks - self.task(self.few, levels) / self.few
        return self.base(self.few, levels) + more + max(0.0, own)


def efficiency(overhead_s: float, batch_s: float) -> float:
    """Return the share of a batch of ``batch_s`` seconds that is work; 0 where nothing is left for
    it.

    >>> efficiency(0.25, 1.0), efficiency(3.0, 2.0)
    (0.75, 0.0)
    """
    return max(0.0, batch_s - overhead_s) / batch_s


def cores_worth(overhead: Overhead, levels: int, batch_s: float, cores_max: int = 100_000) -> int:
    """Return up to how many cores one core more still adds half a core's work, at a batch time of
    ``batch_s``; 0 if the first does not.
    """
    worth, step = 0, 1
    cores = 1
    while cores <= cores_max:
        gained = (cores + step) * efficiency(overhead(cores + step, levels), batch_s)
        gained -= cores * efficiency(overhead(cores, levels), batch_s)
        if gained < WORTH * step:
            return worth
        worth = cores
        cores += step
        step = max(1, cores // 50)
    return worth
