"""Rows of an SQLite table: each once, in order, while a program inserts and the run is killed."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from wallaroo.errors import CheckpointError, PeerError, WallarooParameterError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import row_decoder
from wallaroo.sources import LogContext, SQLiteSourceConfig
from wallaroo.sources.log import SourceLog

Eventually = Callable[..., None]


@dataclass(frozen=True)
class Order:
    id: int
    item: str


@wallaroo.encoder
def as_line(order: Order) -> str:
    return f"{order.id} {order.item}\n"


def ask(path: Path, query: str, *rows: Any) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        if rows:
            connection.executemany(query, rows)
        else:
            connection.execute(query)


def add(path: Path, first: int, last: int) -> None:
    insert = "INSERT INTO orders (item) VALUES (?)"
    ask(path, insert, *((f"i{number}",) for number in range(first, last + 1)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "in.db"
    ask(made, "CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT)")
    return made


def source(path: Path, **options: Any) -> SQLiteSourceConfig[Any]:
    return SQLiteSourceConfig("orders", path, "orders", poll_s=0.01, **options)


def read(config: SQLiteSourceConfig[Any], pieces: int = 2) -> list[dict[str, Any]]:
    """All rows up to the head, read as tasks do."""
    log: SourceLog = config.open_log(LogContext(Path()))
    start = log.beginning()
    end = log.advance(start, 1 << 40)
    parts = log.split(start, end, pieces) if end.place != start.place else []
    log = pickle.loads(pickle.dumps(log))
    return [
        row for part in parts for each in part for run in log.read(each) for row in run.payloads
    ]


def test_rows_come_once_in_order_over_two_runs(
    path: Path, tmp_path: Path, eventually: Eventually
) -> None:
    out = tmp_path / "out.txt"
    options = RunOptions(checkpoint=tmp_path / "state", status_address=None)

    def came(count: int) -> bool:
        lines = out.read_text().splitlines() if out.exists() else []
        return lines == [f"{number} i{number}" for number in range(1, count + 1)]

    orders = wallaroo.source("orders", source(path, decoder=row_decoder(Order)))
    copying = wallaroo.build_application(
        "copy", orders.to_sink(wallaroo.FileSinkConfig(out, as_line))
    )
    add(path, 1, 6000)
    for count in (6010, 6020):
        run = Run(copying, options, InProcessHost(2))
        run.begin()
        eventually(lambda: came(count - 10), "the rows that were there")  # noqa: B023
        add(path, count - 9, count)
        eventually(lambda: came(count), "the rows that came meanwhile")  # noqa: B023
        run.stop()
        assert run.wait(400)
        assert run.exception is None


def test_rows_are_dicts_of_the_columns_that_are_asked_for(path: Path) -> None:
    add(path, 1, 3)
    assert read(source(path)) == [{"id": n, "item": f"i{n}"} for n in (1, 2, 3)]
    assert read(source(path, columns=("item",), start=2, column="id")) == [{"item": "i3"}]
    assert read(source(path, start=3)) == []


def test_rows_of_a_table_with_gaps_and_names_that_need_quotes(path: Path) -> None:
    ask(path, 'CREATE TABLE "odd ""name" ("the number" INTEGER, value)')
    ask(path, 'INSERT INTO "odd ""name" VALUES (?, ?)', (-5, b"a"), (70_000, None))
    config = SQLiteSourceConfig("odd", path, 'odd "name', column="the number")
    assert read(config) == [
        {"the number": -5, "value": b"a"},
        {"the number": 70_000, "value": None},
    ]


def test_a_batch_is_of_so_many_rows_however_large_the_gaps_between_their_numbers(
    path: Path,
) -> None:
    ids = [7, 1_000_000, 1_700_000_000_000, 1_541_815_603_606_036_480, (1 << 63) - 2]
    ask(path, "CREATE TABLE sparse (id INTEGER PRIMARY KEY)")
    ask(path, "INSERT INTO sparse VALUES (?)", *((each,) for each in ids))
    log = SQLiteSourceConfig("sparse", path, "sparse").open_log(LogContext(Path()))
    position = log.beginning()
    batches = []
    while log.backlog(position):
        end = log.advance(position, 2)
        parts = [part for own in log.split(position, end, 2) for part in own]
        batches.append([row["id"] for p in parts for run in log.read(p) for row in run.payloads])
        position = end
    assert batches == [ids[:2], ids[2:4], ids[4:]]


def test_a_locked_database_is_waited_for(path: Path, eventually: Eventually) -> None:
    add(path, 1, 1)
    log = source(path).open_log(LogContext(Path()))
    log.beginning()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        words = f"SQLite database {path}: database is locked"
        eventually(lambda: log.head().error == words, "it says so")
        start = source(path).open_log(LogContext(Path())).beginning
        with pytest.raises(PeerError, match=f"'orders': {words}. Wait until no other program"):
            start()
    eventually(lambda: not log.head().error, "it continues")


@pytest.mark.parametrize("rows", [1, 3])
def test_a_table_that_was_made_again_or_comes_from_an_older_copy_is_refused(
    path: Path, rows: int
) -> None:
    add(path, 1, 5)
    log = source(path).open_log(LogContext(Path()))
    position = log.advance(log.beginning(), 100)
    ask(path, "DELETE FROM orders")  # the numbers continue
    source(path).open_log(LogContext(Path())).require(position)
    path.unlink()
    ask(path, "CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT)")
    add(path, 1, rows)
    words = f"table 'orders' of .*in.db.*its last number is {rows} and was 5.*start=5"
    with pytest.raises(CheckpointError, match=words):
        source(path).open_log(LogContext(Path())).require(position)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "nowhere.db"}, "there is no file .*nowhere.db. Create the database"),
        ({"table": "nothing"}, "there is no table 'nothing' in .*in.db. Create it"),
        ({"column": "number"}, "table 'orders' has no column 'number' in .*It has id, item"),
        ({"columns": ("rowid",)}, "has no column 'rowid'"),
        ({"column": "item"}, "holds 'i1', which is not a whole number"),
    ],
)
def test_what_cannot_be_read_is_named(path: Path, options: Any, words: str) -> None:
    add(path, 1, 1)
    own = {"path": path, "table": "orders", **options}
    log = SQLiteSourceConfig("orders", **own).open_log(LogContext(Path()))
    with pytest.raises(PeerError, match=f"Source 'orders': .*{words}"):
        log.beginning()


def test_a_table_without_rowids_needs_a_column(path: Path) -> None:
    ask(path, "CREATE TABLE bare (id INTEGER PRIMARY KEY) WITHOUT ROWID")
    ask(path, "INSERT INTO bare VALUES (?)", (1,))
    with pytest.raises(PeerError, match="no such column: rowid"):
        SQLiteSourceConfig("bare", path, "bare").open_log(LogContext(Path())).beginning()
    assert read(SQLiteSourceConfig("bare", path, "bare", column="id")) == [{"id": 1}]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"table": ""}, "table='' is not a name"),
        ({"column": ""}, "column='' is not a name"),
        ({"columns": "item"}, "are not names"),
        ({"poll_s": 0}, "poll_s=0 is not a time"),
    ],
)
def test_a_wrong_configuration_is_refused(options: Any, words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        SQLiteSourceConfig(**{"name": "orders", "path": "x", "table": "orders", **options})
