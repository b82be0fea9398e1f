"""A driver in miniature, to be killed: stages, records and commits batches as the real one does.

Arguments: dsn, table, ledger, folder, number of batches, a key column if there is one.  Run again
with the same arguments it continues where it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.sinks import killed_driver
from wallaroo.connectors.sql.postgres.sink import PostgresSinkConfig

TASKS = 3
DRAIN_SECONDS = 400.0


def rows_of(batch: int, task: int) -> list[tuple[str, int]]:
    """What a task writes: small batches ride in the token, every third is large enough for a
    file.
    """
    return [
        (f"task {task}", batch * 10_000 + number) for number in range(2000 if batch % 3 == 1 else 4)
    ]


def stage(config: PostgresSinkConfig, staging: Path, batch: int) -> list[Any]:
    """One batch's tokens, in output order."""
    return killed_driver.stage(config, staging, batch, TASKS, rows_of)


def main(dsn: str, table: str, ledger: str, folder: str, batches: str, key: str = "") -> None:
    """Commit the batches that are missing."""
    keys = (key,) if key else ()
    config = PostgresSinkConfig(dsn, table, ("key", "value"), ledger=ledger, key=keys)
    killed_driver.commit_batches(config, Path(folder), int(batches), stage, DRAIN_SECONDS)
