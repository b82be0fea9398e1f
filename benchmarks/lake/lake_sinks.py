"""Rows per second into a Delta and an Iceberg table, in groups of 5 s, from a source that costs
next to nothing; beside plain PySpark, which makes the same rows in its JVM, and hands each batch of
a stream to the formats' own Python libraries, or writes it as Parquet files (its own connectors for
both formats are not to be had for this version).  They take turns.

    python -m benchmarks.lake.lake_sinks [--rows 4000000] [--rounds 3]

Where it runs: the benchmark's process; each run is a process of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyiceberg.catalog import load_catalog

from benchmarks.engine.event_cost import Cost
from benchmarks.lake.application import COLUMNS
from benchmarks.lib import loads
from benchmarks.lib.machine import BenchmarkError, Report, options, settings_of
from benchmarks.lib.processes import cpu_by_kind
from benchmarks.lib.runs import AS_SPARK_ITSELF, spark
from benchmarks.lib.turns import PLAIN, Turns, add_rounds
from benchmarks.lib.watched import Look, cost_of, measured

APPLICATION = Path(__file__).with_name("application.py")
RATE_WANTED = 300_000.0
ROWS_PER_BATCH = 500_000


def main() -> int:
    """Measure and report."""
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=6_000_000)
    add_rounds(parser)
    args = parser.parse_args()
    report = Report("lake_sinks", settings_of(args))
    turns = Turns(report, "row")
    plain = {name: f"{PLAIN}, {name}" for name in ("Delta", "Iceberg", "Parquet")}
    with loads.scratch(args.scratch) as folder:
        for number in range(args.rounds):
            place = folder / str(number)
            turns.add("delta", _ours("delta", place / "delta", args.rows, _delta_rows))
            turns.add(plain["Delta"], _plain(place / "plain-delta", args.rows, _into_delta))
            turns.add("iceberg", _ours("iceberg", place / "iceberg", args.rows, _iceberg_rows))
            turns.add(plain["Iceberg"], _plain(place / "plain-iceberg", args.rows, _into_iceberg))
            turns.add(plain["Parquet"], _plain(place / "plain-parquet", args.rows, _into_parquet))
    turns.finish({"delta": plain["Delta"], "iceberg": plain["Iceberg"]}, RATE_WANTED)
    return report.finish(args.json)


def _ours(job: str, folder: Path, rows: int, count: Callable[[Path], int]) -> Cost:
    """Return the cost of a row of the application."""
    folder.mkdir(parents=True)
    arguments = ["--job", job, "--folder", str(folder), "--rows", str(rows)]
    cost = measured(APPLICATION, arguments, rows, "resident", folder)
    if count(folder) != rows:
        raise BenchmarkError(f"{job}: {count(folder)} rows of {rows} are in the table")
    return cost


def _delta_rows(folder: Path) -> int:
    return int(DeltaTable(folder / "delta").to_pyarrow_dataset().count_rows())


def _iceberg_rows(folder: Path) -> int:
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{folder}/catalog.db")
    return int(catalog.load_table("bench.rows").scan().count())


def _into_delta(folder: Path) -> Callable[[Any, int], None]:
    """Return the function that appends a batch, with the identity that recognizes a repetition."""

    def write(batch: Any, number: int) -> None:
        identity = CommitProperties(app_transactions=[Transaction("plain", number)])
        rows = batch.toArrow()
        write_deltalake(folder / "table", rows, mode="append", commit_properties=identity)

    return write


def _into_iceberg(folder: Path) -> Callable[[Any, int], None]:
    """Return the same for Iceberg."""
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"
    catalog = load_catalog("default", type="sql", uri=uri, warehouse=warehouse)
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.rows", pa.schema(list(COLUMNS.items())))

    def write(batch: Any, number: int) -> None:
        table.append(batch.toArrow(), snapshot_properties={"batch": str(number)})

    return write


def _into_parquet(folder: Path) -> Callable[[Any, int], None]:
    """Return the function that writes a batch as files, which readers may see in part."""

    def write(batch: Any, number: int) -> None:
        batch.write.mode("append").parquet(str(folder / "files"))

    return write


def _plain(folder: Path, rows: int, into: Callable[[Path], Callable[[Any, int], None]]) -> Cost:
    """Return the cost of a row of a streaming query that writes batches."""
    folder.mkdir(parents=True)
    looks: list[Look] = []
    put = into(folder)

    def write(batch: Any, number: int) -> None:
        put(batch, number)
        done = (len(looks) + 1) * ROWS_PER_BATCH
        looks.append(Look(time.perf_counter(), done, cpu_by_kind()))

    batches = max(4, rows // ROWS_PER_BATCH)
    with spark(folder, AS_SPARK_ITSELF) as session:
        made = session.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
        frame = made.option("numPartitions", 2).load()
        frame = frame.selectExpr("value as account", "'an item' as item", "value * 0.01D as price")
        query = frame.writeStream.foreachBatch(write)
        running = query.option("checkpointLocation", str(folder / "notes")).start()
        while len(looks) < batches and running.isActive:
            time.sleep(0.05)
        if problem := running.exception():
            raise BenchmarkError(f"plain PySpark: {problem}")
        running.stop()
    return cost_of(looks[:batches], batches * ROWS_PER_BATCH)


if __name__ == "__main__":
    sys.exit(main())
