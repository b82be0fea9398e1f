"""A driver in miniature, to be killed: stages, records and commits batches as the real one does.

Arguments: brokers, topic, delivery, folder, number of batches, and how many of them go into one
transaction.  Run again with the same arguments it goes on where it was.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.unit.sinks import killed_driver
from wallaroo.sinks.kafka.committer import TransactionalSession
from wallaroo.sinks.kafka.config import KafkaSinkConfig

TASKS = 2
DRAIN_SECONDS = 60.0


def outputs_of(batch: int, task: int) -> list[tuple[str, str, int]]:
    """What a task writes: small batches ride in the token, every third is large enough for a
    file.
    """
    count = 2000 if batch % 3 == 1 else 4
    return [(f"{batch}.{task}.{number}", f"key {number % 7}", 0) for number in range(count)]


def stage(config: KafkaSinkConfig, staging: Path, batch: int) -> list[Any]:
    """One batch's tokens, in output order."""
    return killed_driver.stage(config, staging, batch, TASKS, outputs_of)


def main(
    brokers: str, topic: str, delivery: str, folder: Path, batches: int, together: int
) -> None:
    """Commit the batches that are missing."""
    TransactionalSession.batches_max = together
    config = KafkaSinkConfig(topic, brokers, delivery=delivery)
    killed_driver.commit_batches(config, folder, batches, stage, DRAIN_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), *map(int, sys.argv[5:7]))
