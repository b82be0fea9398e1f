"""The applications of the benchmarks of tables: rows that Spark reads, rows into Delta and Iceberg
tables, changes of a PostgreSQL table.

Where it runs: driver (building it) and workers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import wallaroo
from wallaroo.serdes import Change
from wallaroo.sinks import DeltaSinkConfig, IcebergSinkConfig
from wallaroo.sources import PostgresChangesConfig, ReplayableSource, SparkSourceConfig

COLUMNS = {"account": "int64", "item": "string", "price": "double"}
GROUP_S = 5.0
PARTITIONS = 2
SUM = np.dtype([("rows", "i8"), ("cents", "i8")])
Row = tuple[int, str, float]


class Rows(ReplayableSource[Row]):
    """Rows that are made where they are read: the cost of a source is next to nothing."""

    def __init__(self, name: str, rows: int):
        super().__init__(name)
        self.rows = rows

    def partitions(self) -> Iterable[str]:
        return [str(number) for number in range(PARTITIONS)]

    def end(self, partition: str) -> int:
        return self.rows // PARTITIONS

    def is_ended(self) -> bool:
        return True

    def read(self, partition: str, start: int, end: int) -> Iterator[Row]:
        for number in range(start, end):
            yield number, "an item", number * 0.01


@wallaroo.batch_computation
def totals(rows: pa.RecordBatch) -> Any:
    """Add up the rows of a batch that are dear."""
    prices = rows.column("price").to_numpy()
    dear = prices[prices > 10.0]
    made = np.zeros(1, SUM)
    made["rows"] = len(dear)
    made["cents"] = int(dear.sum() * 100)
    return made


@wallaroo.encoder
def as_line(output: Any) -> str:
    return f"{output}\n"


@wallaroo.encoder
def as_change(change: Change[dict[str, Any]]) -> str:
    return f"{change.op} {change.row['id']}\n"


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build an application: ``--job``, and where its input is."""
    parser = argparse.ArgumentParser()
    for name in ("job", "folder", "dsn", "rows"):
        parser.add_argument(f"--{name}", default="")
    options = parser.parse_known_args(args)[0]
    folder = Path(options.folder)
    lines = wallaroo.FileSinkConfig(folder / "out.txt", as_line)
    if options.job == "spark":
        path = str(folder / "rows")
        schema = "account long, item string, price double"
        source = SparkSourceConfig(
            "rows",
            lambda spark: (
                spark.readStream.schema(schema).option("maxFilesPerTrigger", 4).parquet(path)
            ),
            form="batches",
            until_now=True,
            master="local[2]",
        )
        pipeline = wallaroo.source("rows", source).to(totals).to_sink(lines)
    elif options.job == "changes":
        changes = PostgresChangesConfig("changes", options.dsn, "items")
        lines = wallaroo.FileSinkConfig(folder / "out.txt", as_change)
        pipeline = wallaroo.source("changes", changes).to_sink(lines)
    else:
        pipeline = wallaroo.source("rows", Rows("rows", int(options.rows))).to_sink(
            _table(options.job, folder)
        )
    return wallaroo.build_application("tables", pipeline)


def _table(job: str, folder: Path) -> Any:
    if job == "delta":
        return DeltaSinkConfig(str(folder / "delta"), COLUMNS, group_s=GROUP_S)
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }
    return IcebergSinkConfig("bench.rows", COLUMNS, group_s=GROUP_S, options=catalog)
