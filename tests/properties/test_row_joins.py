"""As-of joins of rows give what joins of their events give, and what pandas gives, however input is
cut into batches, tasks and partitions.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wallaroo
from wallaroo.dataflow.plan.model import ToExchange
from wallaroo.testing import LocalApplication

DELAY = 2
NS = wallaroo.nanoseconds
SCHEMA = pa.schema({"k": pa.string(), "n": pa.int64(), "at": pa.int64()})
LAYOUT = np.dtype([("k", "U1"), ("n", ">i4"), ("at", ">i8")])
Row = dict[str, Any]


@wallaroo.decoder
def decode(payload: bytes) -> Row:
    return json.loads(payload)  # type: ignore[no-any-return]  # a dict


def arrow_rows(payloads: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(map(json.loads, payloads)), schema=SCHEMA)


def coded_rows(payloads: list[bytes]) -> pa.RecordBatch:
    rows = arrow_rows(payloads)
    return rows.set_column(0, "k", rows.column("k").dictionary_encode())


def numpy_rows(payloads: list[bytes]) -> Any:
    return np.array([tuple(json.loads(each).values()) for each in payloads], LAYOUT)


def list_rows(payloads: list[bytes]) -> list[Row]:
    return list(map(json.loads, payloads))


def pandas_rows(payloads: list[bytes]) -> Any:
    return pd.DataFrame(list_rows(payloads))


def polars_rows(payloads: list[bytes]) -> Any:
    return pl.from_arrow(arrow_rows(payloads))


@wallaroo.batch_key_extractor
def by_k(rows: list[Row]) -> list[str]:
    return [row["k"] for row in rows]


@wallaroo.batch_key_extractor
def by_column(rows: pa.RecordBatch) -> Any:
    return rows.column("k")


@wallaroo.encoder
def encode(row: Row) -> str:
    return json.dumps(row)


FORMS = {
    form.__name__.partition("_")[0]: wallaroo.batch_decoder(form)
    for form in (arrow_rows, coded_rows, numpy_rows, list_rows, pandas_rows, polars_rows)
}
JOINS: dict[str, Any] = {
    "left": {},
    "inner": {"how": "inner"},
    "recent": {"max_age": NS(3)},
    "recent inner": {"max_age": NS(3), "how": "inner"},
}


@functools.cache
def application(kind: str, form: str | None, on_error: str = "skip") -> Any:
    def side(name: str) -> Any:
        decoder = decode if form is None else FORMS[form]
        port = "7010" if name == "left" else "7011"
        return wallaroo.source(name, wallaroo.TCPSourceConfig(name, "127.0.0.1", port, decoder))

    at: Any = (lambda row: row["at"]) if form is None else "at"
    options: Any = {"delay": NS(DELAY), "allow_before_1980": True}
    left = side("left").with_event_time(at, **options)
    right = side("right").with_event_time(at, **options)
    key: Any = by_column if form in ("coded", "polars") else by_k
    if form is None:
        key = wallaroo.key_extractor(lambda row: row["k"])
    joined = left.key_by(key).join_latest(
        right.key_by(key),
        wallaroo.with_columns(m="n", of="at"),
        name="joined",
        on_error=on_error,
        **JOINS[kind],
    )
    return wallaroo.build_application("rows", joined.to_sink(wallaroo.StdoutSinkConfig(encode)))


def joins_rows(built: Any) -> bool:
    return any(
        isinstance(stage.exit, ToExchange) and stage.exit.keeps_rows for stage in built.plan.stages
    )


def run(
    built: Any, rows: list[Row], cuts: list[int], tasks: int = 1, partitions: int = 1
) -> tuple[list[str], dict[str, int], Any]:
    """All results, the rows that failed, by step, and what the steps left out."""
    running = LocalApplication(built, tasks=tasks)
    for row in rows:
        partition = str(row["n"] // 20 % partitions)
        own = {"k": row["k"], "n": row["n"], "at": row["at"]}
        running.send(row["side"], json.dumps(own).encode(), partition=partition)
    for cut in cuts:
        running.attempt(cut)  # a crash before the commit
        running.batch(cut)
    running.end()
    done = running.result()
    return sorted(each.decode() for each in done.outputs), dict(done.errors), done.dropped


moments = st.lists(
    st.tuples(st.sampled_from(["left", "right"]), st.sampled_from("abc"), st.integers(0, 30))
)


def rows_of(moments: list[tuple[str, str, int]]) -> list[Row]:
    return [{"side": side, "k": k, "n": n, "at": at} for n, (side, k, at) in enumerate(moments)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", JOINS)
@settings(max_examples=25, deadline=None)
@given(moments, st.lists(st.integers(0, 12), max_size=5), st.integers(1, 3), st.integers(1, 3))
def test_rows_have_the_results_of_events(
    kind: str,
    form: str,
    moments: list[tuple[str, str, int]],
    cuts: list[int],
    tasks: int,
    partitions: int,
) -> None:
    by_row = application(kind, form)
    assert joins_rows(by_row)

    expected = run(application(kind, None), rows_of(moments), [], 1, partitions)

    assert run(by_row, rows_of(moments), cuts, tasks, partitions) == expected
