"""Readers of the tests of Spark as a source, which a feeder process imports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def lines_of(folder: str) -> Callable[[Any], Any]:
    """A stream of JSON lines: one file in a batch."""

    def read(spark: Any) -> Any:
        stream = spark.readStream.schema("id long, item string").option("maxFilesPerTrigger", 1)
        return stream.json(folder)

    return read


def table_of(folder: str) -> Callable[[Any], Any]:
    """All of a folder's Parquet files."""
    return lambda spark: spark.read.parquet(folder)
