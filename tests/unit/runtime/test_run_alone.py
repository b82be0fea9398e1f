"""A batch of one task: all levels in one process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from wallaroo.runtime.tasks.task import run_alone


@dataclass(frozen=True)
class Job:
    levels: int
    keeps_own: bool = False


def test_a_level_is_over_before_the_next_one_begins_and_its_reports_come_through() -> None:
    happened: list[str] = []

    def run(job: Any, level: int, index: int, records: Iterable[Any]) -> Iterator[Any]:
        taken = list(records)
        for number in range(2):
            happened.append(f"level {level} gives {number}")
            yield index, (level, number, len(taken))

    job: Any = Job(levels=3)

    given = list(run_alone(run, job, 0, []))

    assert given == [(0, (2, 0, 2)), (0, (2, 1, 2))]
    assert happened == [f"level {level} gives {number}" for level in range(3) for number in (0, 1)]
