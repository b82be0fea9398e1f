"""A driver in small, to be killed: commits batches to a rolling sink; continues where it was."""

from __future__ import annotations

import json
from pathlib import Path

from tests.connectors.file.files import staged
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.sinks import RollingSinkConfig

BATCHES = 6


def main(place: str) -> None:
    folder = Path(place)
    config = RollingSinkConfig(str(folder / "out"), roll_bytes=30, roll_s=60)
    staging, log = folder / "staging", folder / "commits.jsonl"
    commits = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    committer = config.committer("s", staging, True)
    committer.recover(history_to(len(commits) - 1), commits[-1] if commits else [])
    for batch in range(len(commits), BATCHES):
        outputs = [[b"%d %d" % (batch, n) for n in range(3)], [b"%d 3" % batch]]
        tokens = staged(config, staging, batch, *outputs)  # type: ignore[arg-type]
        with log.open("a") as file:
            file.write(json.dumps(tokens) + "\n")
        committer.commit(commit_of(batch), tokens)
    committer.close(180.0)
