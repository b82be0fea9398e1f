"""All queries of Nexmark, beside DuckDB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from benchmarks.nexmark import blocks, generator, oracle
from benchmarks.nexmark.application import SOURCE, application_setup
from benchmarks.nexmark.events import Auction, Bid, Person
from benchmarks.nexmark.queries import QUERIES
from benchmarks.pages import nexmark_page
from wallaroo.testing import run_local

EVENTS = 20_000


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nexmark") / "events.jsonl"
    path.write_bytes(b"".join(generator.lines(EVENTS)))
    return path


@pytest.fixture(scope="module")
def tables(events: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = oracle.opened(events)
    yield connection
    connection.close()


TWINS = [pytest.param(query, ["--blocks"], id=f"{query} in blocks") for query in blocks.QUERIES]


@pytest.mark.parametrize(
    ("query", "form"), [*(pytest.param(query, [], id=query) for query in QUERIES), *TWINS]
)
def test_a_query_has_the_rows_of_its_sql(
    query: str, form: list[str], events: Path, tables: duckdb.DuckDBPyConnection
) -> None:
    files = "--events", str(events), "--rows", str(events.with_name(query))
    application = application_setup(["--query", query, *files, *form])

    run = run_local(application, {SOURCE: events.read_bytes().splitlines()}, batches=3, tasks=2)

    wanted = oracle.expected(tables, query)
    assert wanted
    assert oracle.final(query, (json.loads(row) for row in run.outputs)) == wanted


def test_bids_exactly_a_gap_apart_are_two_sessions_for_the_oracle_too(tmp_path: Path) -> None:
    numbers = {"auction": 1, "bidder": 7, "price": 1}
    bid = {"type": "bid", **numbers, **dict.fromkeys(("channel", "url", "extra"), "")}
    times = [1_767_225_600_000 + at for at in (0, 10_000, 19_999)]
    lines = [json.dumps(bid | {"at": at}).encode() for at in times]
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"\n".join(lines))
    application = application_setup(
        ["--query", "q11", "--events", str(file), "--rows", str(tmp_path / "rows")]
    )

    run = run_local(application, {SOURCE: lines})

    wanted = oracle.expected(oracle.opened(file), "q11")
    assert [json.loads(row)[1] for row in wanted] == [1, 2]
    assert oracle.final("q11", (json.loads(row) for row in run.outputs)) == wanted


def test_an_event_is_a_function_of_its_number() -> None:
    fifty = [generator.event(number) for number in range(1000, 1050)]

    assert [generator.event(number) for number in reversed(range(1000, 1050))] == fifty[::-1]
    kinds = [type(event) for event in fifty]
    assert [kinds.count(kind) for kind in (Person, Auction, Bid)] == [1, 3, 46]


def test_the_page_has_a_row_per_query_and_marks_what_misses_its_target() -> None:
    figures = [
        ("q0, resident: events/s", 400_000.0, None, None),
        ("q0, resident: CPU per event", 2.5, None, 3.5),
        ("q0: lines of code", 2.0, None, None),
        ("q16, resident: events/s", 27_000.0, 60_000.0, None),
        ("q16, resident: CPU per event", 40.0, None, None),
        ("q16: lines of code", 31.0, None, None),
    ]
    names = ("name", "value", "at_least", "at_most")
    machine = ("cpu", "system", "python", "java", "pyspark")
    report = {
        "benchmark": "nexmark",
        "began": "today",
        "settings": {
            "events": 1000,
            "from_kafka": False,
            "hosts": ["resident"],
            "queries": ["q0", "q16"],
        },
        "machine": {**dict.fromkeys(machine, "-"), "cores": 2, "memory_gib": 1.0, "load": 0.0},
        "figures": [dict(zip(names, each, strict=True), unit="") for each in figures],
        "notes": ["a note"],
    }

    text = nexmark_page.markdown([("short", report)])

    assert "| q0 | 2 | 2.5 | 400,000 |" in text
    assert "| q16 | 31 | 40 | 27,000 (missed) |" in text
    assert text.endswith("* a note")
