"""Joins of the same rows with pandas, polars and DuckDB, which keep nothing from batch to batch.

A batch's even chunks are the left side, the odd ones the right side.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

FRAMED = np.dtype([("length", ">u4"), ("key", ">u2"), ("at", ">i8"), ("value", ">f8")])


def sides(batches: list[list[bytes]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the columns of both sides of each batch."""
    for chunks in batches:
        left, right = (np.frombuffer(b"".join(own), FRAMED) for own in (chunks[::2], chunks[1::2]))
        yield _columns(left), _columns(right)


def _columns(rows: Any) -> dict[str, Any]:
    return {
        name: rows[name].astype(rows.dtype[name].newbyteorder("="))
        for name in ("key", "at", "value")
    }


def as_of_with_pandas(batches: list[list[bytes]]) -> None:
    for both in sides(batches):
        pd.merge_asof(*(pd.DataFrame(side).sort_values("at") for side in both), on="at", by="key")


def within_with_pandas(batches: list[list[bytes]], span_ns: int) -> None:
    for left, right in sides(batches):
        pairs = pd.DataFrame(left).merge(pd.DataFrame(right), on="key")
        pairs[(pairs["at_x"] - pairs["at_y"]).abs() <= span_ns].copy()


def within_with_polars(batches: list[list[bytes]], span_ns: int) -> None:
    for left, right in sides(batches):
        pairs = pl.DataFrame(left).lazy().join(pl.DataFrame(right).lazy(), on="key")
        pairs.filter((pl.col("at") - pl.col("at_right")).abs() <= span_ns).collect()


def within_with_duckdb(batches: list[list[bytes]], span_ns: int) -> None:
    with duckdb.connect() as connection:
        for left, right in sides(batches):
            connection.register("l", pa.table(left))
            connection.register("r", pa.table(right))
            connection.sql(
                "SELECT l.*, r.value AS price, r.at AS quoted_at FROM l JOIN r ON l.key = r.key "
                f"AND r.at BETWEEN l.at - {span_ns} AND l.at + {span_ns}"
            ).to_arrow_table()
