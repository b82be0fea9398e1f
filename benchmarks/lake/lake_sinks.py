"""Rows per second into a Delta and an Iceberg table, in groups of 5 s, from a source that costs
next to nothing; beside plain PySpark, which makes the same rows in its JVM, and hands each batch of
a stream to the formats' own Python libraries, or writes it as Parquet files (its own connectors for
both formats are not to be had for this version).

    python -m benchmarks.lake.lake_sinks [--rows 4000000]

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

from benchmarks.lake.application import COLUMNS
from benchmarks.lib import loads
from benchmarks.lib.machine import BenchmarkError, Report, options, settings_of
from benchmarks.lib.processes import cpu_by_kind
from benchmarks.lib.runs import spark
from benchmarks.lib.watched import WARM_UP, measured

APPLICATION = Path(__file__).with_name("application.py")
RATE_WANTED = 300_000.0
ROWS_PER_BATCH = 500_000


def main() -> int:
    """Measure and report."""
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=6_000_000)
    args = parser.parse_args()
    report = Report("lake_sinks", settings_of(args))
    with loads.scratch(args.scratch) as folder:
        for job, count in (("delta", _delta_rows), ("iceberg", _iceberg_rows)):
            place = folder / job
            place.mkdir()
            arguments = ["--job", job, "--folder", str(place), "--rows", str(args.rows)]
            cost = measured(APPLICATION, arguments, args.rows, "resident", place)
            if count(place) != args.rows:
                raise BenchmarkError(f"{job}: {count(place)} rows of {args.rows} are in the table")
            report.add(f"{job}: rows/s", cost.events_per_s, "", at_least=RATE_WANTED)
            report.add(f"{job}: CPU per row", cost.total_us, "us")
            kinds = ", ".join(f"{kind} {us:.2f}" for kind, us in cost.cpu_us.items())
            report.notes.append(f"{job}, CPU in us per row: {kinds}")
        for name, write in (
            ("Delta", _into_delta),
            ("Iceberg", _into_iceberg),
            ("Parquet", _into_parquet),
        ):
            place = folder / f"plain-{name.lower()}"
            place.mkdir()
            rate, spent_us = _plain(place, args.rows, write)
            report.add(f"plain PySpark, {name}: rows/s", rate, "")
            report.add(f"plain PySpark, {name}: CPU per row", spent_us, "us")
    return report.finish(args.json)


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


def _plain(
    folder: Path, rows: int, into: Callable[[Path], Callable[[Any, int], None]]
) -> tuple[float, float]:
    """Return rows per second and CPU time per row of a streaming query that writes batches."""
    looks: list[tuple[float, float]] = []
    put = into(folder)

    def write(batch: Any, number: int) -> None:
        put(batch, number)
        looks.append((time.perf_counter(), sum(cpu_by_kind().values())))

    batches = max(4, rows // ROWS_PER_BATCH)
    with spark(folder) as session:
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
    warm = looks[int(batches * WARM_UP) : batches]
    done = (len(warm) - 1) * ROWS_PER_BATCH
    (began, cpu_began), (ended, cpu_ended) = warm[0], warm[-1]
    return done / (ended - began), (cpu_ended - cpu_began) / done * 1e6


if __name__ == "__main__":
    sys.exit(main())
