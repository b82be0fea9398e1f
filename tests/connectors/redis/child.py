"""A driver in small, to be killed: commits batches to a Redis stream, or rows and deletions to
keys; continues where it was.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.connectors.file.files import staged
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.sinks import Delete, RedisSinkConfig

# outputs of each batch; one is put in several steps
BATCHES = (3, 6000, 3, 3)


ROWS = 7


def change_of(batch: int, number: int) -> Any:
    """A row, or each fifth time its deletion."""
    row = {"id": number % ROWS, "batch": batch, "number": number}
    return Delete(row) if (batch + number) % 5 == 4 else row


def main(folder: Path, url: str, key: str = "") -> None:
    config = RedisSinkConfig(url, key=key) if key else RedisSinkConfig(url, stream="out")
    encode: Any = config.encoder
    staging, log = folder / "staging", folder / "commits.jsonl"
    commits = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    committer = config.committer("s", staging, True)
    committer.recover(history_to(len(commits) - 1), commits[-1] if commits else [])
    for batch in range(len(commits), len(BATCHES)):
        numbers = range(BATCHES[batch])
        plain = [change_of(batch, n) if key else f"{batch} {n}" for n in numbers]
        outputs = [encode.function(output) for output in plain]
        tokens = staged(config, staging, batch, outputs)  # type: ignore[arg-type]
        with log.open("a") as file:
            file.write(json.dumps(tokens) + "\n")
        committer.commit(commit_of(batch), tokens)
    committer.close(180.0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
