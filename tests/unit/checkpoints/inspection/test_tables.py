"""A checkpoint as tables: ``wallaroo sql`` and the record batches beneath it."""

from __future__ import annotations

import csv
import io
import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pydantic
import pytest

from tests.stored.runner import DATA, unpack
from wallaroo.checkpoints.inspection import reader as inspect
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.checkpoints.tables.columns import batch_of, columns_of
from wallaroo.checkpoints.tables.state import batches, rows_of, table
from wallaroo.state.log.layout import with_checksum
from wallaroo.steps.windows.sums import MixedSum

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def quotes(begin: Callable[..., Any], application: ModuleType, forget: Any) -> Any:
    """Two commits by an application that still holds the lock, and whose module is gone."""
    book = begin()
    book.write({("market", "AAPL"): application.Market(b"AAPL", 1.5)})
    book.write(
        {
            ("market", "AAPL"): application.Market(b"AAPL", 2.5),
            ("market", "MSFT"): application.Market(b"MSFT", 9),
            ("count", 7): {"n": 1, "key": "own"},
            ("count", ("a", 7)): {"n": 2**70},
            ("count", b"\xff"): {"n": [1, 2]},
        }
    )
    forget()
    return book


@pytest.fixture
def rows(wallaroo: Command) -> Callable[..., list[Any]]:
    def run(root: Path, query: str, *more: object) -> list[Any]:
        code, out, err = wallaroo("sql", query, "--checkpoint", root, "--json", *more)
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    return run


def test_attributes_of_state_are_columns_without_the_application(
    quotes: Any, rows: Callable[..., list[Any]]
) -> None:
    assert rows(quotes.root, "select key, part, bid, symbol from state.market order by key") == [
        {"key": "AAPL", "part": "state", "bid": 2.5, "symbol": b"AAPL".hex()},
        {"key": "MSFT", "part": "state", "bid": 9.0, "symbol": b"MSFT".hex()},
    ]
    assert "quotes_application" not in sys.modules
    assert not quotes.root.with_name("quotes_application.imported").exists()


class Account(pydantic.BaseModel):
    orders: int
    note: str = "-"


def test_fields_of_a_model_are_columns_and_lines_without_the_application(
    begin: Callable[..., Any], rows: Callable[..., list[Any]], wallaroo: Command
) -> None:
    book = begin()
    book.write({("market", "AAPL"): Account(orders=2)})

    query = "select orders, note from state.market"
    assert rows(book.root, query) == [{"orders": 2, "note": "-"}]
    _, out, _ = wallaroo("state", "get", "AAPL", "--checkpoint", book.root)
    assert out.splitlines()[-2:] == ["    orders  2", '    note    "-"']


def test_a_commit_can_be_chosen(quotes: Any, rows: Callable[..., list[Any]]) -> None:
    query = "select sum(bid) as bids from state.market"
    assert rows(quotes.root, query, "--commit", 0) == [{"bids": 1.5}]
    assert rows(quotes.root, query) == [{"bids": 11.5}]


def test_values_of_several_types_are_text_and_json(
    quotes: Any, rows: Callable[..., list[Any]]
) -> None:
    found = rows(quotes.root, "select * from state.count order by key")
    assert {(row["key"], row["n"], row["key_"]) for row in found} == {
        ("7", "1", "own"),
        ('["a", 7]', str(2**70), None),
        ('{"$bytes": "ff"}', "[1, 2]", None),
    }


def test_floats_that_json_lacks_are_written_as_the_state_tools_do(
    quotes: Any, rows: Callable[..., list[Any]]
) -> None:
    query = "select 'nan'::double as n, [1.5, '-inf'::double] as l, {'at': date '2026-01-02'} as s"
    (row,) = rows(quotes.root, query)
    assert row == {
        "n": {"$float": "nan"},
        "l": [1.5, {"$float": "-inf"}],
        "s": {"at": "2026-01-02"},
    }


def test_commits_are_a_table(quotes: Any, rows: Callable[..., list[Any]]) -> None:
    found = rows(quotes.root, "select commit, time, events->>'Lines' as events from commits")
    assert found == [
        {"commit": 0, "time": "2023-11-14T22:13:20+00:00", "events": "7"},
        {"commit": 1, "time": "2023-11-14T22:13:21+00:00", "events": "14"},
    ]


def test_forms_for_people_and_for_spreadsheets(quotes: Any, wallaroo: Command) -> None:
    query = "select key, bid from state.market order by key"
    _, out, _ = wallaroo("sql", query, "--checkpoint", quotes.root)
    assert [line.split() for line in out.splitlines()] == [
        ["key", "bid"],
        ["AAPL", "2.5"],
        ["MSFT", "9.0"],
    ]
    _, out, _ = wallaroo("sql", query, "--checkpoint", quotes.root, "--limit", 1)
    assert out.splitlines()[-1] == (
        "the first 1 of 2 rows; --limit N shows more, --csv and --json all"
    )
    _, out, _ = wallaroo("sql", query, "--checkpoint", quotes.root, "--csv")
    assert list(csv.reader(io.StringIO(out))) == [["key", "bid"], ["AAPL", "2.5"], ["MSFT", "9.0"]]


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("select * from state.markt", "has no state step 'markt'. Did you mean 'market'?"),
        ("select * from state.zzz", "Its state steps: 'count', 'market'."),
        ("select * from market", "step 'market' is the table state.\"market\"."),
        ("select nothing from state.market", "DuckDB cannot answer this: Binder Error"),
        ("selekt 1", "DuckDB cannot answer this: Parser Error"),
        ("select * from dead_letters", "plan.json cannot be read, and it names the sinks"),
    ],
)
def test_what_cannot_be_answered_is_a_sentence(
    quotes: Any, wallaroo: Command, query: str, what: str
) -> None:
    code, _, err = wallaroo("sql", query, "--checkpoint", quotes.root)
    assert code == 1
    assert what in err


def test_a_folder_that_is_no_checkpoint_is_named(tmp_path: Path, wallaroo: Command) -> None:
    code, _, err = wallaroo("sql", "select 1", "--checkpoint", tmp_path / "none")
    assert (code, "is not a checkpoint. Give the folder" in err) == (1, True)


def test_a_file_of_dead_letters_is_a_table(quotes: Any, rows: Callable[..., list[Any]]) -> None:
    letters = quotes.root.with_name("letters.jsonl")
    noted = {"kind": "file", "target": str(letters), "address": ""}
    plan = {"steps": {}, "states": {}, "sinks": {"dead-letters": noted}}
    (quotes.root / "plan.json").write_bytes(with_checksum(json.dumps(plan)))
    assert rows(quotes.root, "select * from dead_letters") == []
    letters.write_text('{"step": "parse", "error": "ValueError", "batch": 3}\n{"step": "unfini')
    assert rows(quotes.root, "select step, batch from dead_letters") == [
        {"step": "parse", "batch": 3}
    ]
    (sink,) = rows(quotes.root, "select sink, kind, newest_commit, left_commit from sinks")
    assert sink == {
        "sink": "dead-letters",
        "kind": "file",
        "newest_commit": 1,
        "left_commit": None,
    }


def test_windows_timers_and_sides_of_joins_are_rows(
    tmp_path: Path, rows: Callable[..., list[Any]]
) -> None:
    unpack(DATA / "accounts-micro-batch.tar.xz", tmp_path)
    root = tmp_path / "checkpoint"
    query = 'select part, "from", "to", value from state.tumbling where key = \'a\''
    assert rows(root, query) == [
        {
            "part": "windows",
            "from": "2020-09-13T12:27:30Z",
            "to": "2020-09-13T12:27:45Z",
            "value": 2,
        }
    ]
    parts = {row["part"] for row in rows(root, "select distinct part from state.timed")}
    assert {"state", "timers"} <= parts


def test_values_beside_timers_and_in_windows_are_rendered_once(tmp_path: Path) -> None:
    unpack(DATA / "accounts-micro-batch.tar.xz", tmp_path)
    state = CheckpointReader(tmp_path / "checkpoint").at()
    at = datetime(2026, 1, 2, tzinfo=UTC)
    (timed,) = state.find(["a"], "timed")
    timed = replace(timed, raw=pickle.dumps({"symbol": b"\xff", "at": at}))
    (window,) = state.find(["a"], "tumbling")
    (part,) = window.parts
    value = {"symbol": b"\xff", "total": MixedSum(2, 0.5)}
    window = replace(window, parts=(part._replace(raw=pickle.dumps(value)),))

    row, timer = rows_of(timed, state.forms)
    (fired,) = table([batch_of(columns_of([*rows_of(window, state.forms)]))]).to_pylist()

    assert (row["symbol"], row["at"]) == (b"\xff", at)
    assert (timer["part"], timer["name"]) == ("timers", "quiet")
    assert json.loads(fired["value"]) == {"symbol": {"$bytes": "ff"}, "total": 2.5}


def test_every_step_and_key_of_a_stored_checkpoint_is_in_the_tables(tmp_path: Path) -> None:
    for stored in sorted(DATA.glob("*.tar.xz")):
        unpack(stored, tmp_path / stored.name)
        for folder in (tmp_path / stored.name).rglob("format.json"):
            state = CheckpointReader(folder.parent).at()
            for step, size in state.sizes().items():
                keys = table(batches(state, step)).column("key").to_pylist()
                assert len(set(keys)) == size.keys, (stored.name, step)


def test_a_query_reads_one_commit_though_files_are_deleted_meanwhile(
    begin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, rows: Callable[..., list[Any]]
) -> None:
    book = begin(retain=2)
    for number in range(4):
        book.write({("count", f"key {key}"): {"n": number} for key in range(200)})
    real = inspect.CheckpointReader._open
    tries = []

    def late(self: Any, wanted: int, *more: Any) -> Any:
        tries.append(wanted)
        if len(tries) == 1:  # the application goes on between the list of commits and their files
            for number in range(4, 260):
                book.write({("count", f"key {key}"): {"n": number} for key in range(200)})
        return real(self, wanted, *more)

    monkeypatch.setattr(inspect.CheckpointReader, "_open", late)
    found = rows(book.root, "select count(*) as keys, min(n) low, max(n) high from state.count")
    assert found == [{"keys": 200, "low": 259, "high": 259}]
    assert tries == [3, 259]


def test_a_state_packed_by_the_application_is_bytes_unless_it_is_given(
    begin: Callable[..., Any], tmp_path: Path, rows: Callable[..., list[Any]]
) -> None:
    def pack(value: Any) -> bytes:
        return b"own" + pickle.dumps(value)

    book = begin(serializer=(pack, lambda raw: pickle.loads(raw[3:])))
    book.write({("count", "a"): {"n": 5}})
    app = tmp_path / "packed_application.py"
    app.write_text(
        "import pickle\n"
        "def serialize(value): return b'own' + pickle.dumps(value)\n"
        "def deserialize(raw): return pickle.loads(raw[3:])\n"
    )
    (row,) = rows(book.root, "select * from state.count")
    assert row["value"] == pack({"n": 5}).hex()
    assert rows(book.root, "select key, n from state.count", "--app", app) == [{"key": "a", "n": 5}]


def test_lone_surrogates_are_escaped() -> None:
    assert batch_of({"text": ["\ud800", "b"]}).to_pydict() == {"text": ["\\ud800", "b"]}
