"""A driver in miniature, to be killed: stages, records and commits batches as the real one does.

Arguments: format, folder of the table, folder of the driver, number of batches.  Run again with the
same arguments it continues where it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.connectors.lake.tables import sink
from tests.unit.sinks import killed_driver

TASKS = 2
COLUMNS = {"key": "string", "batch": "int64", "value": "int64"}


def rows_of(batch: int, task: int) -> list[tuple[str, int, int]]:
    """What a task writes."""
    return [(f"task {task}", batch, number) for number in range(4)]


def stage(config: Any, staging: Path, batch: int) -> list[Any]:
    """One batch's tokens, in output order."""
    return killed_driver.stage(config, staging, batch, TASKS, rows_of)


def main(form: str, table: str, folder: str, batches: str) -> None:
    """Commit the batches that are missing, each as a group of its own."""
    config = sink(form, Path(table), COLUMNS, group_s=0.0)
    killed_driver.commit_batches(config, Path(folder), int(batches), stage, 180.0)
