"""A driver in miniature, to be killed: stages, records and commits batches as the real one does.

Arguments: brokers, topic, delivery, folder, number of batches.  Run again with the same arguments
it goes on where it was.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.faults import fault_point
from wallaroo.sinks.interface import WriteContext
from wallaroo.sinks.kafka.config import KafkaSinkConfig

TASKS = 2
DRAIN_SECONDS = 60.0


def outputs_of(batch: int, task: int) -> list[tuple[str, str, int]]:
    """What a task writes: small batches ride in the token, every third is large enough for a file."""
    count = 2000 if batch % 3 == 1 else 4
    return [(f"{batch}.{task}.{number}", f"key {number % 7}", 0) for number in range(count)]


def stage(config: KafkaSinkConfig, staging: Path, batch: int) -> list[Any]:
    """One batch's tokens, in output order."""
    tokens = []
    assert config.encoder is not None
    for task in range(TASKS):
        writer = config.writer(WriteContext("s", batch, task, "a", staging, True))
        writer.write([config.encoder.function(output) for output in outputs_of(batch, task)])
        tokens.append(writer.prepare())
    return tokens


def main(brokers: str, topic: str, delivery: str, folder: Path, batches: int) -> None:
    """Commit the batches that are missing."""
    config = KafkaSinkConfig(topic, brokers, delivery=delivery)
    staging, commit_file = folder / "staging", folder / "commit.json"
    committer = config.committer("s", staging, True)
    last, tokens = json.loads(commit_file.read_text()) if commit_file.exists() else (-1, [])
    committer.recover(history_to(last), tokens)
    for batch in range(last + 1, batches):
        tokens = stage(config, staging, batch)
        partial = commit_file.with_suffix(".tmp")
        partial.write_text(json.dumps([batch, tokens]))
        fault_point("commit.before")
        partial.rename(commit_file)
        fault_point("commit.after")
        committer.commit(commit_of(batch), tokens)
    committer.close(DRAIN_SECONDS)
    assert committer.status().pending_bytes == 0, committer.status()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), int(sys.argv[5]))
