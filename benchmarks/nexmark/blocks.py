"""Queries of Nexmark over blocks of bids: vectorized twins of those in ``queries``.

The rows of a twin are objects of their columns, where those of ``queries`` are lists.  Twins that
take no less CPU time are not kept.

Where it runs: everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # there is a worker per core

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

import wallaroo
from benchmarks.nexmark.queries import DAY, MS
from wallaroo.vectorized.grouping import last_rows

Read = Callable[[Any], wallaroo.Pipeline[Any]]  # returns a source with a decoder
Rows = wallaroo.Pipeline[Any]
Array = NDArray[Any]
NUMBERS = dict.fromkeys(("auction", "bidder", "price", "at"), pl.Int64())
TYPES = NUMBERS | {"extra": pl.String()}


def bids(read: Read, *columns: str) -> Rows:
    """Read some columns of the bids among the lines."""
    schema = {"type": pl.String(), **{name: TYPES[name] for name in columns}}

    @wallaroo.batch_decoder(name="bids")
    def decode(lines: list[bytes]) -> pl.DataFrame:
        events = pl.read_ndjson(b"\n".join(lines), schema=schema)
        return events.filter(pl.col("type") == "bid").drop("type")

    return read(decode)


@wallaroo.batch_encoder
def as_objects(rows: pl.DataFrame) -> Any:
    texts = rows.select(pl.struct(pl.all()).struct.json_encode()).to_series()
    return texts.to_arrow().cast(pa.string())


@wallaroo.batch_computation(name="clock")
def with_clock(rows: pl.DataFrame) -> pl.DataFrame:
    clock = pl.from_epoch("at", time_unit="ms").dt
    return rows.with_columns(day=clock.strftime("%Y-%m-%d"), minute=clock.strftime("%H:%M"))


def q10(read: Read) -> Rows:
    return bids(read, "auction", "bidder", "price", "at", "extra").to(with_clock)


DAY_MS = DAY // MS
DAYS = 1 << 20  # more than there are
LEVELS = ("bids", "bids0", "bids1", "bids2")
STATISTICS = np.dtype([(name, "i8") for name in (*LEVELS, "least", "greatest", "total")])


@wallaroo.batch_key_extractor
def auction_and_day(rows: pl.DataFrame) -> Array:
    days = rows["at"].to_numpy() // DAY_MS
    keys: Array = rows["auction"].to_numpy() * DAYS + days
    return keys


@wallaroo.batch_state_computation(
    name="statistics", state=STATISTICS, initial=(0, 0, 0, 0, 2**62, 0, 0)
)
def statistics(rows: pl.DataFrame, at: Array, states: Array) -> Any:
    prices = rows["price"].to_numpy()
    ranks = np.digitize(prices, (10_000, 1_000_000))
    for name, of in zip(LEVELS, (ranks >= 0, ranks == 0, ranks == 1, ranks == 2), strict=True):
        states[name] += np.bincount(at[of], minlength=len(states))
    np.minimum.at(states["least"], at, prices)
    np.maximum.at(states["greatest"], at, prices)
    np.add.at(states["total"], at, prices)
    last = last_rows(at)
    newest = pl.DataFrame(states[at[last]]).with_columns(rows[last])
    day = pl.col("at") // DAY_MS * DAY_MS
    mean = pl.col("total") // pl.col("bids")
    columns = "auction", day, *LEVELS, "least", "greatest", mean.alias("mean"), "total"
    return newest.select(columns), last


def q17(read: Read) -> Rows:
    return bids(read, "auction", "price", "at").key_by(auction_and_day).to(statistics)


QUERIES: dict[str, Callable[[Read], Rows]] = {"q10": q10, "q17": q17}
