"""Queries of a large state: ``wallaroo sql``, and the state as a DataFrame of Spark; beside plain
PySpark, which reads the state of a streaming query of its own, a count of as many keys.  They take
turns.

    python -m benchmarks.lake.state_query [--keys 1000000] [--rounds 3]

The seconds of `wallaroo sql` are from the start of the command, those of Spark of the query alone.
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.lib import loads
from benchmarks.lib.machine import Report, median, options, settings_of
from benchmarks.lib.runs import AS_SPARK_ITSELF, spark
from benchmarks.lib.turns import PLAIN, add_rounds
from wallaroo.api.serialization import serialize
from wallaroo.engine.blocks.keys import encode_key, group_of
from wallaroo.spark.tables.checkpoint import register
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.log.commits import Commit, DeltaRef
from wallaroo.state.log.delta import Entry, Origin, encode

GROUPS = 128
FILE = "deltas/0.x.delta"
QUERY = "select count(*), sum(count) from state.totals"


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
    add_rounds(parser)
    args = parser.parse_args()
    report = Report("state_query", settings_of(args))
    seconds: dict[str, list[float]] = {}
    with loads.scratch(args.scratch) as folder:
        root = folder / "checkpoint"
        write(root, args.keys)
        with spark(folder, AS_SPARK_ITSELF) as session:
            register(session)
            _prepare_plain(session, folder, args.keys)
            queries: dict[str, Callable[[], None]] = {
                "wallaroo sql": lambda: _by_command(root),
                "DataFrame of Spark": lambda: _by_frame(session, root),
                PLAIN: lambda: _plain(session, folder),
            }
            for _ in range(args.rounds):
                for who, query in queries.items():
                    begin = time.monotonic()
                    query()
                    seconds.setdefault(who, []).append(time.monotonic() - begin)
    for who, each in seconds.items():
        report.add(who, median(each), "s")
    *ours, _ = seconds
    for who in ours:
        pairs = zip(seconds[who], seconds[PLAIN], strict=True)
        ratio = median(plain_s / own_s for own_s, plain_s in pairs)
        report.add(f"{who} beside {PLAIN}: rate", ratio, "x")
    return report.finish(args.json)


def _by_command(root: Path) -> None:
    command = [sys.executable, "-m", "wallaroo", "sql", QUERY, "--checkpoint", str(root)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _by_frame(session: Any, root: Path) -> None:
    frame = session.read.format("wallaroo").option("checkpoint", str(root)).load()
    frame.selectExpr("count(*)", "sum(count)").collect()


def _prepare_plain(session: Any, folder: Path, keys: int) -> None:
    """Run a streaming query that counts by key, and so has a state."""
    session.range(keys).selectExpr("concat('user-', id) as user").write.parquet(f"{folder}/users")
    users = session.readStream.schema("user string").parquet(f"{folder}/users")
    counts = users.groupBy("user").count().writeStream.outputMode("complete").format("noop")
    counts.option("checkpointLocation", f"{folder}/notes").trigger(
        availableNow=True
    ).start().awaitTermination()


def _plain(session: Any, folder: Path) -> None:
    """Query the state of that query."""
    state = session.read.format("statestore").load(f"{folder}/notes")
    state.selectExpr("count(*)", "sum(value.count)").collect()


if __name__ == "__main__":
    sys.exit(main())
