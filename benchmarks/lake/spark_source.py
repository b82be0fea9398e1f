"""Rows per second from Parquet files through `SparkSourceConfig` to a vectorized step, beside plain
PySpark with the same function in `mapInArrow`, each in its own processes; they take turns.

    python -m benchmarks.lake.spark_source [--rows 8000000] [--rounds 3]

Where it runs: the benchmark's process; each run is a process of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.engine.event_cost import Cost
from benchmarks.lake.application import totals
from benchmarks.lib import loads
from benchmarks.lib.machine import Report, options, settings_of
from benchmarks.lib.processes import cpu_by_kind
from benchmarks.lib.runs import AS_SPARK_ITSELF, spark
from benchmarks.lib.turns import PLAIN, Turns, add_rounds
from benchmarks.lib.watched import Look, cost_of, measured

APPLICATION = Path(__file__).with_name("application.py")
ROWS_PER_FILE = 250_000
ROWS_PER_EVENT = 8192
FILES_PER_BATCH = 4
RATE_WANTED = 1_000_000.0
SCHEMA = "account long, item string, price double"


def main() -> int:
    """Measure and report."""
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=16_000_000)
    parser.add_argument("--hosts", nargs="+", default=["resident"])
    add_rounds(parser)
    args = parser.parse_args()
    report = Report("spark_source", settings_of(args))
    turns = Turns(report, "row")
    with loads.scratch(args.scratch) as folder:
        files = max(1, args.rows // ROWS_PER_FILE)
        _write(folder / "rows", files)
        events = files * -(-ROWS_PER_FILE // ROWS_PER_EVENT)
        for number in range(args.rounds):
            for host in args.hosts:
                place = folder / f"{host}-{number}"
                place.mkdir()
                (place / "rows").symlink_to(folder / "rows")
                arguments = ["--job", "spark", "--folder", str(place)]
                cost = measured(APPLICATION, arguments, events, host, place)
                turns.add(host, _by_row(cost, files * ROWS_PER_FILE / events))
            place = folder / f"plain-{number}"
            place.mkdir()
            turns.add(PLAIN, _plain(folder / "rows", place, files))
    turns.finish(dict.fromkeys(args.hosts, PLAIN), RATE_WANTED)
    return report.finish(args.json)


def _by_row(cost: Cost, rows: float) -> Cost:
    """Return the cost of a row, of an event's cost."""
    spent_us = {kind: us / rows for kind, us in cost.cpu_us.items()}
    return replace(cost, events_per_s=cost.events_per_s * rows, cpu_us=spent_us)


def _write(folder: Path, files: int) -> None:
    """Write the input, in the form that Spark writes it itself."""
    folder.mkdir()
    chance = np.random.default_rng(1)
    for number in range(files):
        table = pa.table(
            {
                "account": chance.integers(0, 1_000_000, ROWS_PER_FILE),
                "item": chance.choice([f"item {n}" for n in range(1000)], ROWS_PER_FILE),
                "price": chance.random(ROWS_PER_FILE) * 100,
            }
        )
        pq.write_table(table, folder / f"{number:04d}.parquet")


def _plain(source: Path, folder: Path, files: int) -> Cost:
    """Return the cost of a row of the same as a streaming query of Spark."""
    looks: list[Look] = []

    def dear(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            (made,) = totals.function(batch)
            names = ["rows", "cents"]
            yield pa.RecordBatch.from_arrays([pa.array([made[n]]) for n in names], names)

    with spark(folder, AS_SPARK_ITSELF) as session:
        rows = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_BATCH)
        frame = rows.parquet(str(source)).mapInArrow(dear, "rows long, cents long")

        def run(batch: Any, number: int) -> None:
            batch.write.mode("append").parquet(str(folder / "plain"))
            done = min(files, (len(looks) + 1) * FILES_PER_BATCH) * ROWS_PER_FILE
            looks.append(Look(time.perf_counter(), done, cpu_by_kind()))

        query = frame.writeStream.foreachBatch(run).trigger(availableNow=True)
        query.option("checkpointLocation", str(folder / "notes")).start().awaitTermination()
    return cost_of(looks, files * ROWS_PER_FILE)


if __name__ == "__main__":
    sys.exit(main())
