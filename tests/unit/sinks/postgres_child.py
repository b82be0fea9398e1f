"""A driver in miniature, to be killed: stages, records and commits batches as the real one does.

Arguments: dsn, table, ledger, folder, number of batches.  Run again with the same arguments it goes
on where it was.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.faults import fault_point
from wallaroo.sinks.interface import WriteContext
from wallaroo.sinks.postgres.config import PostgresSinkConfig

TASKS = 3
DRAIN_SECONDS = 20.0


def rows_of(batch: int, task: int) -> list[tuple[str, int]]:
    """What a task writes: small batches ride in the token, every third is large enough for a
    file.
    """
    return [
        (f"task {task}", batch * 10_000 + number) for number in range(2000 if batch % 3 == 1 else 4)
    ]


def stage(config: PostgresSinkConfig, staging: Path, batch: int) -> list[Any]:
    """One batch's tokens, in output order."""
    tokens = []
    assert config.encoder is not None
    for task in range(TASKS):
        writer = config.writer(WriteContext("s", batch, task, "a", staging, True))
        writer.write([config.encoder.function(row) for row in rows_of(batch, task)])
        tokens.append(writer.prepare())
    return tokens


def main(dsn: str, table: str, ledger: str, folder: Path, batches: int) -> None:
    """Commit the batches that are missing."""
    config = PostgresSinkConfig(dsn, table, ("key", "value"), ledger=ledger)
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
