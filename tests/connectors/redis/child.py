"""A driver in small, to be killed: commits batches to a Redis stream; continues where it was."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.connectors.file.files import staged
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.sinks import RedisSinkConfig

# outputs of each batch; one is put in several steps
BATCHES = (3, 6000, 3, 3)


def main(folder: Path, url: str) -> None:
    config = RedisSinkConfig(url, stream="out")
    encode: Any = config.encoder
    staging, log = folder / "staging", folder / "commits.jsonl"
    commits = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    committer = config.committer("s", staging, True)
    committer.recover(history_to(len(commits) - 1), commits[-1] if commits else [])
    for batch in range(len(commits), len(BATCHES)):
        outputs = [encode.function(f"{batch} {n}") for n in range(BATCHES[batch])]
        tokens = staged(config, staging, batch, outputs)  # type: ignore[arg-type]
        with log.open("a") as file:
            file.write(json.dumps(tokens) + "\n")
        committer.commit(commit_of(batch), tokens)
    committer.close(180.0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
