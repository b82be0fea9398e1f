"""Rows per second into a Delta and an Iceberg table, in groups of 5 s, from a source that costs
next to nothing; beside plain PySpark, which writes the same rows as a stream of Parquet files (its
own connectors for both formats are not to be had for this version).

    python -m benchmarks.lake.lake_sinks [--rows 4000000]

Where it runs: the benchmark's process; each run is a process of its own.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

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
        rate, spent_us = _plain(folder, args.rows)
        report.add("plain PySpark, Parquet: rows/s", rate, "")
        report.add("plain PySpark, Parquet: CPU per row", spent_us, "us")
    return report.finish(args.json)


def _delta_rows(folder: Path) -> int:
    return int(DeltaTable(folder / "delta").to_pyarrow_dataset().count_rows())


def _iceberg_rows(folder: Path) -> int:
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{folder}/catalog.db")
    return int(catalog.load_table("bench.rows").scan().count())


def _plain(folder: Path, rows: int) -> tuple[float, float]:
    """Return rows per second and CPU time per row of a streaming query that writes files."""
    looks: list[tuple[float, float]] = []

    def write(batch: Any, number: int) -> None:
        batch.write.mode("append").parquet(str(folder / "plain"))
        looks.append((time.perf_counter(), sum(cpu_by_kind().values())))

    batches = max(4, rows // ROWS_PER_BATCH)
    with spark(folder) as session:
        made = session.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
        frame = made.option("numPartitions", 2).load()
        frame = frame.selectExpr("value as account", "'an item' as item", "value * 0.01 as price")
        query = frame.writeStream.foreachBatch(write)
        running = query.option("checkpointLocation", str(folder / "notes")).start()
        while len(looks) < batches:
            time.sleep(0.05)
        running.stop()
    warm = looks[int(batches * WARM_UP) : batches]
    done = (len(warm) - 1) * ROWS_PER_BATCH
    (began, cpu_began), (ended, cpu_ended) = warm[0], warm[-1]
    return done / (ended - began), (cpu_ended - cpu_began) / done * 1e6


if __name__ == "__main__":
    sys.exit(main())
