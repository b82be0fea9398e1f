"""Queries of a large state: ``wallaroo sql``, and the state as a DataFrame of Spark; beside plain
PySpark, which reads the state of a streaming query of its own, a count of as many keys.

    python -m benchmarks.lake.state_query [--keys 1000000]

The seconds of `wallaroo sql` are from the start of the command, those of Spark of the query alone.
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from benchmarks.lib import loads
from benchmarks.lib.machine import Report, options, settings_of
from benchmarks.lib.runs import spark
from wallaroo.api.serialization import serialize
from wallaroo.engine.blocks.keys import encode_key, group_of
from wallaroo.spark.tables.checkpoint import register
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.log.commits import Commit, DeltaRef
from wallaroo.state.log.delta import Entry, Origin, encode

GROUPS = 128
FILE = "deltas/0.x.delta"


class Total:
    """A state object of three fields."""

    def __init__(self, count: int):
        self.count = count
        self.total = count * 1.5
        self.name = "name"


def write(root: Path, keys: int) -> None:
    """Write a checkpoint of one commit."""
    checkpoint = open_checkpoint(root, is_durable=False)
    by_group: dict[int, list[Entry]] = {}
    for number in range(keys):
        key = encode_key(f"user-{number}")
        by_group.setdefault(group_of(key, GROUPS), []).append(
            Entry(0, key, serialize(Total(number)))
        )
    content, digest = encode(Origin(checkpoint.id, 0, FILE), by_group)
    checkpoint.storage.publish(FILE, content)
    delta = DeltaRef(FILE, 0, GROUPS, len(content), keys, digest)
    commit = Commit(
        0, {}, (delta,), steps=("totals",), checkpoint=checkpoint.id, id=uuid.uuid4().hex
    )
    checkpoint.commits.publish(commit)
    checkpoint.release()


def main() -> int:
    """Measure and report."""
    parser = options(__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    args = parser.parse_args()
    report = Report("state_query", settings_of(args))
    with loads.scratch(args.scratch) as folder:
        root = folder / "checkpoint"
        write(root, args.keys)
        begin = time.monotonic()
        query = "select count(*), sum(count) from state.totals"
        command = [sys.executable, "-m", "wallaroo", "sql", query, "--checkpoint", str(root)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        report.add("wallaroo sql", time.monotonic() - begin, "s")
        with spark(folder) as session:
            register(session)
            begin = time.monotonic()
            frame = session.read.format("wallaroo").option("checkpoint", str(root)).load()
            frame.selectExpr("count(*)", "sum(count)").collect()
            report.add("DataFrame of Spark", time.monotonic() - begin, "s")
            report.add("plain PySpark, its own state", _plain(session, folder, args.keys), "s")
    return report.finish(args.json)


def _plain(session: Any, folder: Path, keys: int) -> float:
    """Return the seconds that a query of the state of a count by key takes."""
    session.range(keys).selectExpr("concat('user-', id) as user").write.parquet(f"{folder}/users")
    users = session.readStream.schema("user string").parquet(f"{folder}/users")
    counts = users.groupBy("user").count().writeStream.outputMode("complete").format("noop")
    counts.option("checkpointLocation", f"{folder}/notes").trigger(
        availableNow=True
    ).start().awaitTermination()
    begin = time.monotonic()
    state = session.read.format("statestore").load(f"{folder}/notes")
    state.selectExpr("count(*)", "sum(value.count)").collect()
    return time.monotonic() - begin


if __name__ == "__main__":
    sys.exit(main())
