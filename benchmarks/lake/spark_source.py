"""Rows per second from Parquet files through `SparkSourceConfig` to a vectorized step, beside plain
PySpark with the same function in `mapInArrow`, each in its own processes.

    python -m benchmarks.lake.spark_source [--rows 8000000]

Where it runs: the benchmark's process; each run is a process of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.lake.application import totals
from benchmarks.lib import loads
from benchmarks.lib.machine import Report, options, settings_of
from benchmarks.lib.processes import cpu_by_kind
from benchmarks.lib.runs import spark
from benchmarks.lib.watched import measured

APPLICATION = Path(__file__).with_name("application.py")
ROWS_PER_FILE = 250_000
ROWS_PER_EVENT = 8192
FILES_PER_BATCH = 4
WARM_UP = 0.3
RATE_WANTED = 1_000_000.0
SCHEMA = "account long, item string, price double"


def main() -> int:
    """Measure and report."""
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=16_000_000)
    parser.add_argument("--hosts", nargs="+", default=["resident"])
    args = parser.parse_args()
    report = Report("spark_source", settings_of(args))
    with loads.scratch(args.scratch) as folder:
        files = max(1, args.rows // ROWS_PER_FILE)
        _write(folder / "rows", files)
        events = files * -(-ROWS_PER_FILE // ROWS_PER_EVENT)
        for host in args.hosts:
            place = folder / host
            place.mkdir()
            arguments = ["--job", "spark", "--folder", str(folder)]
            cost = measured(APPLICATION, arguments, events, host, place)
            rows_per_event = files * ROWS_PER_FILE / events
            rate = cost.events_per_s * rows_per_event
            report.add(f"{host}: rows/s", rate, "", at_least=RATE_WANTED)
            report.add(f"{host}: CPU per row", cost.total_us / rows_per_event, "us")
            kinds = ", ".join(
                f"{kind} {us / rows_per_event:.2f}" for kind, us in cost.cpu_us.items()
            )
            report.notes.append(f"{host}, CPU in us per row: {kinds}")
        rate, spent_us = _plain(folder, files)
        report.add("plain PySpark: rows/s", rate, "")
        report.add("plain PySpark: CPU per row", spent_us, "us")
    return report.finish(args.json)


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


def _plain(folder: Path, files: int) -> tuple[float, float]:
    """Return rows per second and CPU time per row of the same as a streaming query of Spark."""
    looks: list[tuple[float, float]] = []

    def look(_: Any, __: int) -> None:
        looks.append((time.perf_counter(), sum(cpu_by_kind().values())))

    def dear(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            (made,) = totals.function(batch)
            names = ["rows", "cents"]
            yield pa.RecordBatch.from_arrays([pa.array([made[n]]) for n in names], names)

    with spark(folder) as session:
        rows = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_BATCH)
        frame = rows.parquet(str(folder / "rows")).mapInArrow(dear, "rows long, cents long")

        def run(batch: Any, number: int) -> None:
            batch.write.mode("append").parquet(str(folder / "plain"))
            look(batch, number)

        query = frame.writeStream.foreachBatch(run).trigger(availableNow=True)
        query.option("checkpointLocation", str(folder / "notes")).start().awaitTermination()
    warm = looks[int(len(looks) * WARM_UP) :]
    done = (len(warm) - 1) * FILES_PER_BATCH * ROWS_PER_FILE
    (began, cpu_began), (ended, cpu_ended) = warm[0], warm[-1]
    return done / (ended - began), (cpu_ended - cpu_began) / done * 1e6


if __name__ == "__main__":
    sys.exit(main())
