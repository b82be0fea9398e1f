"""Windows of rows give what windows of events give, and what the documentation says, however input
is cut into batches, tasks and partitions.
"""

from __future__ import annotations

import functools
import json
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wallaroo
from wallaroo.aggregations import Collect, Count, Max, Mean, Min, Sum, combine_of
from wallaroo.dataflow.plan.model import ToExchange
from wallaroo.testing import LocalApplication

DELAY = 2
NS = wallaroo.nanoseconds
SUMMED: dict[str, Any] = {
    "tumbling": wallaroo.range_windows(NS(5)),
    "sliding": wallaroo.range_windows(NS(7)).with_slide(NS(3)).with_delay(NS(4)),
    "early": wallaroo.range_windows(NS(10)).with_slide(NS(5)).with_early_results(NS(3)),
    "empty": wallaroo.range_windows(NS(4)).with_offset(NS(1)).with_empty_windows(3),
}
AS_EVENTS: dict[str, Any] = {
    "sessions": wallaroo.session_windows(NS(4)),
    "corrected": wallaroo.range_windows(NS(5)).with_allowed_lateness(NS(6)),
    "one by one": wallaroo.range_windows(NS(5)).with_late_data_policy("fire-per-message"),
}
SPECS = {**SUMMED, **AS_EVENTS}
SCHEMA = pa.schema(
    {"k": pa.string(), "n": pa.int64(), "at": pa.int64(), "v": pa.int64(), "x": pa.float64()}
)
LAYOUT = np.dtype([("k", "U1"), ("n", "i8"), ("at", ">i8"), ("v", ">i8"), ("x", "f8")])
Row = dict[str, Any]


@wallaroo.decoder
def decode(payload: bytes) -> Row:
    return json.loads(payload)  # type: ignore[no-any-return]  # a dict


def arrow_rows(payloads: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(map(json.loads, payloads)), schema=SCHEMA)


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


@wallaroo.encoder
def encode(result: Any) -> str:
    return repr((result.key, result.window.start, result.window.firing.value, result.value))


FORMS = {
    form.__name__.partition("_")[0]: wallaroo.batch_decoder(form)
    for form in (arrow_rows, numpy_rows, list_rows, pandas_rows, polars_rows)
}


def of(column: str, is_function: bool) -> Any:
    return (lambda row: row[column]) if is_function else column


def summary(is_function: bool) -> Any:
    return combine_of(
        n=Count(),
        v=Sum(of("v", is_function)),
        least_v=Min(of("v", is_function)),
        most_v=Max(of("v", is_function)),
        x=Sum(of("x", is_function)),
        mean_x=Mean(of("x", is_function)),
        least_x=Min(of("x", is_function)),
        inner=combine_of(most_x=Max(of("x", is_function))),
    )


@functools.cache
def application(kind: str, form: str | None, aggregation: str = "summary") -> Any:
    decoder = decode if form is None else FORMS[form]
    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decoder)
    rows = wallaroo.source("in", config)
    options: Any = {"delay": NS(DELAY), "allow_before_1980": True, "on_error": "skip"}
    if form is None:
        keyed = rows.with_event_time(lambda row: row["at"], **options).key_by(lambda row: row["k"])
    else:
        keyed = rows.with_event_time("at", **options).key_by(by_k)
    made = {
        "summary": lambda: summary(form is None),
        "sum": lambda: Sum(of("v", form is None)),
        "least": lambda: Min(of("x", form is None)),
        "all": lambda: Collect(of("n", form is None)),
    }[aggregation]()
    # windows whose events may fail are not added up before the shuffle
    policy = "skip" if aggregation in ("sum", "least") else "stop"
    over = SPECS[kind].over(made, with_window=True, on_error=policy, name="windows")
    return wallaroo.build_application(
        "rows", keyed.to(over).to_sink(wallaroo.StdoutSinkConfig(encode))
    )


def adds_up(built: Any) -> bool:
    return any(
        isinstance(stage.exit, ToExchange) and stage.exit.pre_aggregated is not None
        for stage in built.plan.stages
    )


def run(
    built: Any, rows: list[Row], cuts: list[int], tasks: int = 1, partitions: int = 1
) -> tuple[list[str], dict[str, int], Any]:
    """All results, the rows that failed, by step, and what the steps left out."""
    running = LocalApplication(built, tasks=tasks)
    for row in rows:
        running.send("in", json.dumps(row).encode(), partition=str(row["n"] // 20 % partitions))
    for cut in cuts:
        running.attempt(cut)  # a crash before the commit
        running.batch(cut)
    running.end()
    done = running.result()
    return sorted(each.decode() for each in done.outputs), dict(done.errors), done.dropped


numbers = st.one_of(st.integers(-40, 40), st.sampled_from([2**62, -(2**62), 2**63 - 1]))
fractions = st.one_of(
    st.integers(-40, 40).map(lambda number: 0.5 + number / 4),
    st.sampled_from([math.nan, math.inf, -math.inf]),
)
moments = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30), numbers, fractions))


def rows_of(moments: list[tuple[Any, ...]]) -> list[Row]:
    return [
        dict(zip(["k", "n", "at", "v", "x"], (k, n, *rest), strict=True))
        for n, (k, *rest) in enumerate(moments)
    ]


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", SPECS)
@settings(max_examples=15, deadline=None)
@given(moments, st.lists(st.integers(0, 12), max_size=5), st.integers(1, 3), st.integers(1, 3))
def test_rows_have_the_results_of_events(
    kind: str,
    form: str,
    moments: list[tuple[Any, ...]],
    cuts: list[int],
    tasks: int,
    partitions: int,
) -> None:
    by_row = application(kind, form)
    assert adds_up(by_row) == (kind in SUMMED)

    expected = run(application(kind, None), rows_of(moments), [], 1, partitions)

    assert run(by_row, rows_of(moments), cuts, tasks, partitions) == expected


def windows_of(time: int, passed: int, size: int, slide: int, delay: int) -> list[int]:
    """The starts of the windows that a row counts in: those of its time that have not fired."""
    delay = -(-delay // slide) * slide
    first = (time - size) // slide + 1
    starts = range(first * slide, time + 1, slide)
    return [start for start in starts if start + size + delay > passed]


def expected_of(rows: list[Row], size: int, slide: int, delay: int) -> tuple[list[str], int]:
    """Results as docs/windows.md describes them, for one partition; and how many rows are late."""
    found: dict[tuple[str, int], list[Row]] = defaultdict(list)
    late = 0
    passed = -math.inf
    for row in rows:
        starts = windows_of(row["at"], passed, size, slide, delay)  # type: ignore[arg-type]  # or infinite
        late += not starts
        for start in starts:
            found[row["k"], start].append(row)
        passed = max(passed, row["at"] - DELAY)
    results = [
        repr((key, start, "final", sum(row["v"] for row in some)))
        for (key, start), some in found.items()
    ]
    return sorted(results), late


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize(("kind", "shape"), [("tumbling", (5, 5, 0)), ("sliding", (7, 3, 4))])
@settings(max_examples=40, deadline=None)
@given(moments, st.lists(st.integers(0, 12), max_size=5), st.integers(1, 3))
def test_results_are_those_that_the_documentation_describes(
    kind: str,
    shape: tuple[int, int, int],
    moments: list[tuple[Any, ...]],
    cuts: list[int],
    tasks: int,
) -> None:
    rows = rows_of(moments)
    expected, late = expected_of(rows, *shape)

    results, errors, dropped = run(application(kind, "arrow", "sum"), rows, cuts, tasks)

    assert results == expected
    assert not errors
    assert dropped.get("windows", {}).get("late", 0) == late


def test_many_rows_are_what_pandas_groups() -> None:
    drawn = np.random.default_rng(24)
    count = 20_000
    frame = pd.DataFrame(
        {
            "k": drawn.choice(list("abcdefgh"), count),
            "n": np.arange(count),
            "at": np.sort(drawn.integers(0, 500, count)),  # in order: nothing is late
            "v": drawn.integers(-(10**9), 10**9, count),
            "x": drawn.integers(-1000, 1000, count) / 4,
        }
    )
    grouped = frame.groupby(["k", frame["at"] // 5 * 5])
    expected = sorted(
        repr((key, int(start), "final", int(total)))
        for (key, start), total in grouped["v"].sum().items()
    )

    results, *_ = run(
        application("tumbling", "arrow", "sum"), frame.to_dict("records"), [7_000, 6_000], 2
    )

    assert results == expected


sums = st.one_of(st.none(), st.integers(-9, 9))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20), sums, st.just(0.5))),
    st.lists(st.integers(0, 12), max_size=3),
)
def test_a_row_without_a_value_fails_as_its_event_does(
    moments: list[tuple[Any, ...]], cuts: list[int]
) -> None:
    """In one task: what is added up before the shuffle may fail before it is known to be late."""
    rows = rows_of(moments)
    expected = run(application("tumbling", None, "sum"), rows, [])
    assert sum(expected[1].values()) <= sum(row["v"] is None for row in rows)

    assert run(application("tumbling", "arrow", "sum"), rows, cuts) == expected


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.integers(0, 9),
            st.just(0),
            st.sampled_from([None, math.nan, 0.0, -0.0, 1.5]),
        )
    )
)
@settings(max_examples=60, deadline=None)
def test_the_least_of_a_batch_is_that_of_its_events_whatever_they_are(
    moments: list[tuple[Any, ...]],
) -> None:
    rows = rows_of(moments)
    expected = run(application("tumbling", None, "least"), rows, [])
    assert run(application("tumbling", "arrow", "least"), rows, []) == expected


def test_an_aggregation_that_needs_events_gets_the_rows_as_events() -> None:
    built = application("tumbling", "arrow", "all")
    assert not adds_up(built)
    rows = rows_of([("a", 1, 0, 0.5), ("b", 2, 0, 0.5), ("a", 3, 0, 0.5), ("a", 12, 0, 0.5)])
    results, *_ = run(built, rows, [3], 2)
    assert results == [
        repr(("a", 0, "final", [0, 2])),
        repr(("a", 10, "final", [3])),
        repr(("b", 0, "final", [1])),
    ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", SPECS)
def test_long_runs_of_rows_have_the_results_of_events(kind: str, seed: int) -> None:
    """Rows out of order, so that many are late, or are in some of their windows only."""
    drawn = np.random.default_rng(seed)
    at = np.arange(400) // 4 + drawn.integers(0, 30, 400)
    rows = rows_of(
        [
            (str(drawn.choice(list("abc"))), int(time), int(drawn.integers(-9, 9)), 0.25)
            for time in at
        ]
    )
    expected = run(application(kind, None), rows, [], 1, 2)
    assert kind == "one by one" or expected[2]["windows"]["late"] > 10

    for cuts, tasks in (([], 1), ([150, 1, 90], 3)):
        assert run(application(kind, "arrow"), rows, cuts, tasks, 2) == expected
