"""A driver in miniature, to be killed: stages, records and commits batches as the real one does.

Arguments: brokers, topic, delivery, folder, number of batches, how many of them go into one
transaction, and a key if rows and tombstones are written.  Run again with the same arguments it
continues where it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.sinks import killed_driver
from wallaroo.connectors.kafka.committer import TransactionalSession
from wallaroo.connectors.kafka.sink import KafkaSinkConfig
from wallaroo.sinks import Delete

TASKS = 2
DRAIN_SECONDS = 400.0


def outputs_of(batch: int, task: int) -> list[tuple[str, str, int]]:
    """What a task writes: small batches ride in the token, every third is large enough for a
    file.
    """
    count = 2000 if batch % 3 == 1 else 4
    return [(f"{batch}.{task}.{number}", f"key {number % 7}", 0) for number in range(count)]


def changes_of(batch: int, task: int) -> list[Any]:
    """Rows of a task's keys, and their deletions."""
    values = [value for value, _, _ in outputs_of(batch, task)]
    rows = [{"id": f"{task}.{number % 5}", "value": text} for number, text in enumerate(values)]
    return [Delete(row) if number % 3 == 2 else row for number, row in enumerate(rows)]


def stage(config: KafkaSinkConfig, staging: Path, batch: int) -> list[Any]:
    """One batch's tokens, in output order."""
    outputs = changes_of if config.key else outputs_of
    return killed_driver.stage(config, staging, batch, TASKS, outputs)


def main(
    brokers: str,
    topic: str,
    delivery: str,
    folder: str,
    batches: str,
    together: str,
    key: str = "",
) -> None:
    """Commit the batches that are missing."""
    TransactionalSession.batches_max = int(together)
    config = KafkaSinkConfig(topic, brokers, delivery=delivery, key=key or ())
    killed_driver.commit_batches(config, Path(folder), int(batches), stage, DRAIN_SECONDS)
