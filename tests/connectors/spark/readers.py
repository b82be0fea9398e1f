"""Readers of the tests of Spark as a source, which a feeder process imports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.connectors.lake.tables import NAME, catalog_of


def lines_of(folder: str) -> Callable[[Any], Any]:
    """A stream of JSON lines: one file in a batch."""

    def read(spark: Any) -> Any:
        stream = spark.readStream.schema("id long, item string").option("maxFilesPerTrigger", 1)
        return stream.json(folder)

    return read


def table_of(folder: str) -> Callable[[Any], Any]:
    """All of a folder's Parquet files."""
    return lambda spark: spark.read.parquet(folder)


def iceberg_files_of(folder: str) -> Callable[[Any], Any]:
    """The files of an Iceberg table's present snapshot, as docs/connectors/spark.md reads them."""

    def read(spark: Any) -> Any:
        tasks = list(catalog_of(Path(folder)).load_table(NAME).scan().plan_files())
        assert not any(task.delete_files for task in tasks), "rows were deleted: compact the table"
        return spark.read.parquet(*(task.file.file_path for task in tasks))

    return read
