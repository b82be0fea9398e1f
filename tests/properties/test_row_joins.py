"""Joins of rows give what joins of their events give, however input is cut into batches,
tasks and partitions.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import wallaroo
from tests.sampling import IS_ALL
from wallaroo.aggregations import Count, Sum, combine_of
from wallaroo.checkpoints.inspection.keyed import keyed, sides_of
from wallaroo.checkpoints.inspection.step_forms import StepForms
from wallaroo.dataflow.plan.json import Verdict, compare, dumps
from wallaroo.dataflow.plan.model import ToExchange
from wallaroo.engine.blocks.ordered_keys import split_entry
from wallaroo.engine.columnar.joins.timed_rows import TimedRows, pack
from wallaroo.engine.columnar.keys import Coder
from wallaroo.steps.joins.waiting import NOTES
from wallaroo.steps.windows.entries import unpack_slot
from wallaroo.testing import LocalApplication
from wallaroo.testing.local_runner.runner import Input, LocalRunner

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


by_k_of_result: Any = wallaroo.key_extractor(lambda row: row.get("k", ""))
added = combine_of(count=Count(), numbers=Sum(lambda row: row.get("n") or 0))
FORMS = {
    form.__name__.partition("_")[0]: wallaroo.batch_decoder(form)
    for form in (arrow_rows, coded_rows, numpy_rows, list_rows, pandas_rows, polars_rows)
}
LATEST: dict[str, Any] = {
    "left": {},
    "inner": {"how": "inner"},
    "recent": {"max_age": NS(3)},
    "recent inner": {"max_age": NS(3), "how": "inner"},
}
WITHIN = {how: {"within": NS(3), "how": how} for how in ("inner", "left", "right", "outer")}
JOINS = {"join_latest": LATEST, "join": WITHIN}
KINDS = [(method, kind) for method, kinds in JOINS.items() for kind in kinds]
PAIRS = list(itertools.product(KINDS, FORMS))
CHOSEN = [(kind, form) for kind, form in PAIRS if "left" in kind or form == "numpy"]


@functools.cache
def application(
    kind: tuple[str, str],
    form: str | None,
    within: int = 0,
    is_counted: bool = False,
    is_ordered: bool = False,
) -> Any:
    def side(name: str) -> Any:
        decoder = decode if form is None else FORMS[form]
        port = "7010" if name == "left" else "7011"
        return wallaroo.source(name, wallaroo.TCPSourceConfig(name, "127.0.0.1", port, decoder))

    at: Any = (lambda row: row["at"]) if form is None else "at"
    options: Any = {"allow_before_1980": True}
    left = side("left").with_event_time(at, delay=NS(DELAY + 5 * is_ordered), **options)
    right = side("right").with_event_time(at, delay=NS(DELAY), **options)
    key: Any = by_column if form in ("coded", "polars") else by_k
    if form is None:
        key = wallaroo.key_extractor(lambda row: row["k"])
    method, name = kind
    joined = getattr(left.key_by(key), method)(
        right.key_by(key),
        wallaroo.with_columns(m="n", of="at"),
        name="joined",
        on_error="skip",
        **JOINS[method][name] | ({"within": NS(within)} if within else {}),
    )
    if is_counted:
        joined = joined.key_by(by_k_of_result).to(wallaroo.range_windows(NS(4)).over(added))
    if is_ordered:
        joined = joined.key_by(by_k_of_result).in_order()
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


@pytest.mark.parametrize(("kind", "form"), PAIRS if IS_ALL else CHOSEN)
@settings(max_examples=25, deadline=None)
@given(moments, st.lists(st.integers(0, 12), max_size=5), st.integers(1, 3), st.integers(1, 3))
def test_rows_have_the_results_of_events(
    kind: tuple[str, str],
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


@pytest.mark.parametrize("kind", [("join_latest", "left"), ("join", "outer")])
@settings(max_examples=25, deadline=None)
@given(moments, st.lists(st.integers(0, 12), max_size=5), st.integers(1, 3))
def test_results_have_the_times_that_those_of_events_have(
    kind: tuple[str, str], moments: list[tuple[str, str, int]], cuts: list[int], partitions: int
) -> None:
    by_row = application(kind, "arrow", is_counted=True)
    assert joins_rows(by_row)

    expected = run(application(kind, None, is_counted=True), rows_of(moments), [], 1, partitions)

    assert run(by_row, rows_of(moments), cuts, 2, partitions) == expected


@pytest.mark.parametrize("kind", [("join_latest", "left"), ("join", "inner"), ("join", "outer")])
@example([("left", "a", 10), ("right", "a", 12), ("right", "a", 10), ("left", "a", 8)], [1, 1, 1])
@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["left", "right"]), st.just("a"), st.integers(0, 12)), max_size=16
    ),
    st.lists(st.integers(1, 4), max_size=9),
)
def test_results_are_in_the_order_of_those_of_events(
    kind: tuple[str, str], moments: list[tuple[str, str, int]], cuts: list[int]
) -> None:
    def results(form: str | None, cuts: list[int]) -> list[Row]:
        running = LocalApplication(application(kind, form, is_ordered=True))
        for row in rows_of(moments):
            running.send(row["side"], encoded(row["k"], row["at"], row["n"]))
        for cut in cuts:
            running.batch(cut)
        running.end()
        return list(map(json.loads, running.result().outputs))

    expected = results(None, [])

    assert results("arrow", cuts) == results(None, cuts) == expected


Batches = list[list[tuple[str, str, int]]]
batches_of_moments = st.lists(
    st.lists(st.tuples(st.sampled_from(["left", "right"]), st.just("a"), st.integers(0, 8))),
    max_size=4,
)


def continued(
    form: str | None, spans: tuple[int, int], batches: tuple[Batches, Batches], step: int = 4
) -> Any:
    """The results of two runs, the second of which continues the first with another span."""
    found: list[bytes] = []
    before = None
    for span, each in zip(spans, batches, strict=True):
        plan = application(("join", "outer"), form, span).plan
        runner = LocalRunner(replace(plan, key_groups=1))  # so that pieces have many rows
        if before is not None:
            runner.entries, runner.time, runner.batch = before.entries, before.time, before.batch
        for number, moments in enumerate(each):
            shift = step * (number if before is None else number + len(batches[0]))
            inputs = [
                (side == "right", runner.frames(side == "right", encoded(k, at + shift, n)), 1)
                for n, (side, k, at) in enumerate(moments)
            ]
            done = runner.run_batch([[Input(*every) for every in inputs]], 1)
            runner.commit(done)
            found += done.outputs.get(0, [])
        before = runner
    found += runner.run_batch([[]], 1, is_final=True).outputs.get(0, [])
    return sorted(found)


def encoded(k: str, at: int, n: int) -> bytes:
    return json.dumps({"k": k, "n": n, "at": at}).encode()


@pytest.mark.parametrize("spans", [(3, 9), (9, 3)])
@settings(max_examples=50, deadline=None)
@given(batches_of_moments, batches_of_moments)
def test_another_span_counts_for_what_waits(
    spans: tuple[int, int], first: Batches, then: Batches
) -> None:
    expected = continued(None, spans, (first, then))

    assert continued("arrow", spans, (first, then)) == expected


def many(seed: int, batches: int) -> Batches:
    """Batches of many rows and of few, of 300 ns, up to 2 ns out of order."""
    chance = random.Random(seed)
    keys = [f"key {number}" for number in range(600)]
    return [
        [
            (chance.choice(["left", "right"]), chance.choice(keys), at + chance.randrange(3))
            for at in sorted(chance.choices(range(300), k=chance.choice([30, 900, 1800])))
        ]
        for _ in range(batches)
    ]


@pytest.mark.parametrize("spans", [(700, 1000), (1000, 700)])
@pytest.mark.parametrize("seed", range(5) if IS_ALL else [0])
def test_large_pieces_wait_as_events_do(spans: tuple[int, int], seed: int) -> None:
    batches = many(seed, 5), many(seed + 100, 5)

    expected = continued(None, spans, batches, 300)

    assert len(expected) > 10_000
    assert continued("arrow", spans, batches, 300) == expected


def test_pieces_are_shown_by_key_without_their_notes() -> None:
    runner = LocalRunner(application(("join", "outer"), "arrow").plan)
    for side, keys in enumerate(("a" * 600 + "b", "ab")):
        inputs = [Input(side, runner.frames(side, encoded(k, 5, n)), 1) for n, k in enumerate(keys)]
        runner.commit(runner.run_batch([inputs], 1))
    stored = {
        ("joined: entries", key): value
        for group in range(runner.plan.key_groups)
        for key, value in runner.entries["joined: entries"].scan(group, b"", b"\xff" * 9)
    }
    assert any(is_notes(key) for _, key in stored)
    kinds = {"joined": "interval join of rows"}

    entries = keyed(stored, kinds).values()

    shown = {entry.key: StepForms(kinds).show(entry).value for entry in entries}
    assert {key: len(form["left"]) for key, form in shown.items()} == {"a": 600, "b": 1}
    assert shown["b"]["right"] == [
        {"at": "1970-01-01T00:00:00.000000005Z", "event": {"k": "b", "n": 1, "at": 5}}
    ]


def is_notes(stored: bytes) -> bool:
    sub = split_entry(stored, b"")[1]
    return isinstance(sub, bytes) and unpack_slot(sub).kind == NOTES


@wallaroo.batch_key_extractor
def by_first(rows: list[Row]) -> list[str]:
    return [row["k"] for row in rows]


def joined(function: Any) -> Any:
    left = wallaroo.source(
        "left", wallaroo.TCPSourceConfig("left", "127.0.0.1", "7010", FORMS["list"])
    ).with_event_time("at", allow_before_1980=True)
    right = wallaroo.source(
        "right", wallaroo.TCPSourceConfig("right", "127.0.0.1", "7011", FORMS["list"])
    ).with_event_time("at", allow_before_1980=True)
    return left.key_by(by_k).join_latest(right.key_by(by_first), function, name="joined")


def built_of(pipeline: Any) -> Any:
    return wallaroo.build_application("rows", pipeline.to_sink(wallaroo.StdoutSinkConfig(encode)))


def test_another_function_gets_rows_as_events() -> None:
    built = built_of(joined(lambda left, right: {"pair": [left, right]}))
    assert not joins_rows(built)

    results, *_ = run(built, rows_of([("right", "a", 1), ("left", "a", 2)]), [1])

    left, right = {"k": "a", "n": 1, "at": 2}, {"k": "a", "n": 0, "at": 1}
    assert list(map(json.loads, results)) == [{"pair": [left, right]}]


def test_late_rows_as_a_stream_are_events() -> None:
    results, late = joined(wallaroo.with_columns(m="n")).with_late_events()
    built = wallaroo.build_application(
        "rows",
        results.to_sink(wallaroo.StdoutSinkConfig(encode)),
        late.to_sink(wallaroo.FileSinkConfig("late.txt", encode)),
    )
    assert not joins_rows(built)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (wallaroo.with_columns("n"), "with_columns(right_n='n')"),
        (wallaroo.with_columns("price"), "have no column 'price'; theirs are 'k', 'n', 'at'"),
    ],
)
def test_names_that_do_not_fit_are_refused_at_the_step(columns: Any, problem: str) -> None:
    built = built_of(joined(columns))
    assert joins_rows(built)

    with pytest.raises(wallaroo.WallarooError, match="joined") as error:
        run(built, rows_of([("right", "a", 1), ("left", "a", 2)]), [])
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (lambda: wallaroo.with_columns(), "It adds no column"),
        (lambda: wallaroo.with_columns("a", "a"), "It adds two columns named 'a'"),
    ],
)
def test_columns_are_checked_when_they_are_named(given: Any, problem: str) -> None:
    with pytest.raises(wallaroo.WallarooParameterError, match=problem):
        given()


def test_a_checkpoint_of_events_is_not_taken_for_one_of_rows() -> None:
    events = dumps(application(("join_latest", "left"), None).plan)
    rows = dumps(application(("join_latest", "left"), "list").plan)

    found = compare(events, rows)

    assert found.verdict is Verdict.INCOMPATIBLE
    assert "kind latest join and is one of kind latest join of rows now" in " ".join(found.reasons)


def test_stored_rows_are_shown_as_events() -> None:
    coder = Coder()
    codes = np.array([coder.code(key) for key in ("a", ("b", 1), "a")], np.intp)
    batch = pa.RecordBatch.from_pydict({"x": [1, None, 3], "s": ["p", "q", "r"]})
    packed = pack(TimedRows(np.array([5, 6, 7]), codes, batch).part(1, 3), coder)

    right = [(6, ("b", 1), {"x": None, "s": "q"}), (7, "a", {"x": 3, "s": "r"})]
    assert sides_of((None, packed)) == [[], right]
