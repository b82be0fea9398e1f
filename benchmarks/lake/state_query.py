"""Queries of a large state: ``wallaroo sql``, and the same state as a DataFrame of Spark.

    python -m benchmarks.state.tables --keys 1000000

Prints the seconds of each, from the start of the command (Spark: of the query, the session runs).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from pyspark.sql import SparkSession

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


def main() -> None:
    """Measure both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    keys = parser.parse_args().keys
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "checkpoint")
        write(root, keys)
        print(f"{keys:,} keys, load {os.getloadavg()[0]:.1f}")
        begin = time.monotonic()
        query = "select count(*), sum(count) from state.totals"
        command = [sys.executable, "-m", "wallaroo", "sql", query, "--checkpoint", str(root)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        print(f"wallaroo sql: {time.monotonic() - begin:.1f} s")
        spark = SparkSession.builder.master("local[2]").appName("tables").getOrCreate()
        register(spark)
        begin = time.monotonic()
        frame = spark.read.format("wallaroo").option("checkpoint", str(root)).load()
        frame.selectExpr("count(*)", "sum(count)").collect()
        print(f"Spark, local[2]: {time.monotonic() - begin:.1f} s")
        spark.stop()


if __name__ == "__main__":
    main()
