"""Commits batches to a connector sink, continues where the run before it ended, as drivers do.

Arguments of ``main``: folder, port, number of batches.
"""

from __future__ import annotations

import json
from pathlib import Path

from wallaroo.compat.sink.config import SinkConnectorConfig
from wallaroo.durable.commit_id import CommitHistory, CommitId
from wallaroo.durable.whole_file import write_whole
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.interface import WriteContext

CHECKPOINT = "c0ffee"


def outputs(batch: int) -> list[bytes]:
    """What a batch puts out; batch 2 is larger than a socket's buffers."""
    size = 300_000 if batch == 2 else 10 * batch
    return [b"%d.%d " % (batch, number) + b"x" * size for number in range(5)]


def config(port: int, cookie: str = "tacos") -> SinkConnectorConfig:
    return SinkConnectorConfig("out", None, None, port, cookie)


def main(place: str, port_: str, batches: str) -> None:
    folder = Path(place)
    port = int(port_)
    staging = folder / "staging"
    staging.mkdir(exist_ok=True)
    commits = folder / "commits.json"
    done = json.loads(commits.read_text()) if commits.exists() else []
    history = [CommitId(CHECKPOINT, batch, id_) for batch, id_, _ in done]
    committer = config(port).committer("out", staging, True)
    committer.recover(CommitHistory(CHECKPOINT, tuple(history)), done[-1][2] if done else [])
    for batch in range(len(done), int(batches)):
        writer = config(port).writer(WriteContext("out", batch, 0, f"a{batch}", staging, True))
        writer.write(outputs(batch))
        tokens = [writer.prepare()]
        done.append((batch, f"id{batch}", tokens))
        write_whole(commits, json.dumps(done).encode(), is_durable=False, points="test")
        fault_point("commit.before")
        committer.commit(CommitId(CHECKPOINT, batch, f"id{batch}"), tokens)
        fault_point("commit.after")
    committer.close(180.0)
    assert committer.backlog() == 0
