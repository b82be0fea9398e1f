"""A driver in miniature, to be killed: stages, records and commits batches as the real one does.

Arguments: database, folder, number of batches, a key column if there is one.  Run again with the
same arguments it continues where it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.sinks import killed_driver
from wallaroo.sinks import SQLiteSinkConfig

TASKS = 2


def rows_of(batch: int, task: int) -> list[tuple[str, int]]:
    """What a task writes."""
    return [(f"task {task}", batch * 10_000 + number) for number in range(4)]


def stage(config: SQLiteSinkConfig, staging: Path, batch: int) -> list[Any]:
    """One batch's tokens, in output order."""
    return killed_driver.stage(config, staging, batch, TASKS, rows_of)


def main(path: str, folder: str, batches: str, key: str = "") -> None:
    """Commit the batches that are missing."""
    config = SQLiteSinkConfig(path, "counts", ("key", "value"), key=(key,) if key else ())
    killed_driver.commit_batches(config, Path(folder), int(batches), stage, 180.0)
