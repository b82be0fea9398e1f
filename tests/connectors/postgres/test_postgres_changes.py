"""Changes of PostgreSQL tables by logical replication, from a real server: whole transactions, in
the order of their commits, each once, whatever is killed.
"""

from __future__ import annotations

import pickle
import re
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

import wallaroo
from tests.connectors.postgres.server import UNUSUAL, Server, running_server
from tests.forks import Forks
from wallaroo.connectors.sql.postgres.changes import PostgresChanges
from wallaroo.connectors.sql.postgres.pgoutput import lsn_of, lsn_text
from wallaroo.errors import CheckpointError, PeerError, WallarooParameterError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Change, change_decoder
from wallaroo.sources import LogContext, PostgresChangesConfig
from wallaroo.sources.log import Range, SourceLog
from wallaroo.sources.replayable import offsets_of

Eventually = Callable[..., None]
pytestmark = pytest.mark.postgres
_numbers = count()


@dataclass(frozen=True)
class Order:
    id: int
    item: str | None


@dataclass(frozen=True)
class OrderKey:
    id: int


@wallaroo.encoder
def as_line(change: Change[Order]) -> str:
    return f"{change.op} {change.row.id}\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server("wal_level=logical", "max_replication_slots=40") as started:
        yield started


@dataclass
class Table:
    """A table with a publication, and the source of its changes."""

    server: Server
    name: str

    def ask(self, statement: str) -> list[Any]:
        return self.server.ask(statement.replace("orders", self.name))

    def config(self, **options: Any) -> PostgresChangesConfig[Any]:
        options = {"poll_s": 0.01, "slot": self.name, **options}
        return PostgresChangesConfig("changes", self.server.dsn, self.name, **options)

    def log(self, **options: Any) -> SourceLog:
        return self.config(**options).open_log(LogContext(Path()))

    def copying(self, out: Path, **options: Any) -> wallaroo.Application:
        decoder = change_decoder(Order, before=OrderKey)
        changes = wallaroo.source("changes", self.config(decoder=decoder, **options))
        sink = wallaroo.FileSinkConfig(out, as_line)
        return wallaroo.build_application("copy", changes.to_sink(sink))


@pytest.fixture
def table(server: Server) -> Iterator[Table]:
    made = Table(server, f"orders_{next(_numbers)}")
    made.ask("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    made.ask("CREATE PUBLICATION orders FOR TABLE orders")
    yield made
    slots = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name"
    made.ask(f"{slots} = 'orders'")


def read(log: SourceLog, start: Any, end: Any = None) -> list[Change[Any]]:
    """All changes up to the head, read as a task does."""
    end = log.advance(start, 1 << 40) if end is None else end
    parts = log.split(start, end, 4) if end.place != start.place else []
    assert len(parts) <= 1
    log = pickle.loads(pickle.dumps(log))
    return [
        row for part in parts for each in part for run in log.read(each) for row in run.payloads
    ]


def test_changes_have_rows_before_and_after_with_values_of_their_types(table: Table) -> None:
    table.ask("ALTER TABLE orders ADD price numeric, ADD at timestamptz, ADD is_new bool")
    table.ask("ALTER TABLE orders ADD tags text[], ADD facts jsonb, ADD raw bytea")
    start = table.log().beginning()
    table.ask(
        "INSERT INTO orders VALUES (1, 'tea', 2.50, '2026-01-02 03:04:05+00', true, '{a,b}', "
        """'{"n": [1]}', '\\x0001')"""
    )
    table.ask("UPDATE orders SET item = NULL, price = 3")
    table.ask("UPDATE orders SET id = 2")
    table.ask("DELETE FROM orders")
    table.ask("TRUNCATE orders")
    inserted, updated, moved, deleted, truncated = read(table.log(), start)
    moment = datetime.fromisoformat("2026-01-02T03:04:05+00:00")
    row = {
        "id": 1,
        "item": "tea",
        "price": Decimal("2.50"),
        "at": moment,
        "is_new": True,
        "tags": ["a", "b"],
        "facts": {"n": [1]},
        "raw": b"\x00\x01",
    }
    assert (inserted.op, inserted.before, inserted.after) == ("insert", None, row)
    assert (updated.op, updated.before) == ("update", None)
    assert updated.after == {**row, "item": None, "price": Decimal(3)}
    assert (moved.op, moved.before, moved.after and moved.after["id"]) == ("update", {"id": 1}, 2)
    assert (deleted.op, deleted.before, deleted.after) == ("delete", {"id": 2}, None)
    assert (truncated.op, truncated.before, truncated.after) == ("truncate", None, None)
    assert inserted.table == f"public.{table.name}"
    assert inserted.source.keys() == {"lsn", "time", "transaction"}


def test_times_that_python_has_no_value_for_are_texts_whatever_the_session_is(
    table: Table,
) -> None:
    """As rows of the snapshot and as changes: a slot could never be passed again."""
    table.ask("ALTER TABLE orders ADD until timestamptz, ADD span interval, ADD f float")
    insert = "INSERT INTO orders VALUES ({}, 'a', {}, '-1 day +1 hour', 0.1::float + 0.2)"
    table.ask(insert.format(1, "'2026-01-02 03:04:05+00'"))
    table.ask(insert.format(2, "'infinity'"))
    config = replace(table.config(snapshot=True), dsn=table.server.dsn + UNUSUAL)
    log = config.open_log(LogContext(Path()))
    start = log.beginning()
    place = log.advance(start, 1)
    rows = [change.after for change in read(log, start, place)]
    log.committed(place, None)
    table.ask(insert.format(3, "'-infinity'"))
    rows += [change.after for change in read(log, place)]
    log.close()
    assert [row["id"] for row in rows] == [1, 2, 3]
    moment = datetime.fromisoformat("2026-01-02T03:04:05+00:00")
    assert [row["until"] for row in rows] == [moment, "infinity", "-infinity"]
    assert {row["span"] for row in rows} == {timedelta(days=-1, hours=1)}
    assert {row["f"] for row in rows} == {0.1 + 0.2}


def test_rows_have_the_columns_of_their_time(table: Table) -> None:
    """A batch that begins before `ALTER TABLE` and ends after it reads both forms."""
    start = table.log().beginning()
    table.ask("INSERT INTO orders VALUES (1, 'tea')")
    table.ask("ALTER TABLE orders ADD price int")
    table.ask("INSERT INTO orders VALUES (2, 'cup', 9)")
    table.ask("ALTER TABLE orders DROP item")
    table.ask("INSERT INTO orders VALUES (3, 9)")
    table.ask("ALTER TABLE orders ALTER price TYPE text")
    table.ask("INSERT INTO orders VALUES (4, 'nine')")
    assert [change.after for change in read(table.log(), start)] == [
        {"id": 1, "item": "tea"},
        {"id": 2, "item": "cup", "price": 9},
        {"id": 3, "price": 9},
        {"id": 4, "price": "nine"},
    ]


@pytest.mark.parametrize(
    ("alter", "row", "words"),
    [
        ("ADD price int", "(2, 'cup', 9)", ""),
        ("DROP item", "(2)", "after: object missing required field 'item'"),
        ("ALTER item TYPE int USING 7", "(2, 8)", "after.item: expected str | null, got 8 (int)"),
    ],
    ids=["added", "dropped", "retyped"],
)
def test_a_typed_decoder_reads_on_after_a_column_more_and_names_one_that_does_not_fit(
    table: Table, tmp_path: Path, alter: str, row: str, words: str, eventually: Eventually
) -> None:
    table.log().beginning()
    table.ask("INSERT INTO orders VALUES (1, 'tea')")
    table.ask(f"ALTER TABLE orders {alter}")
    table.ask(f"INSERT INTO orders VALUES {row}")
    out = tmp_path / "out.txt"
    options = RunOptions(checkpoint=tmp_path / "state", status_address=None, until_now=True)
    run = Run(table.copying(out), options, InProcessHost(2))
    run.begin()
    assert run.wait(400)
    if words:
        assert words in str(run.exception)
        assert "step 'decode change of Order'" in str(run.exception)
    else:
        assert run.exception is None
        assert out.read_text().splitlines() == ["insert 1", "insert 2"]


def test_a_large_value_that_is_not_changed_comes_with_full_identity(table: Table) -> None:
    start = table.log().beginning()
    table.ask("ALTER TABLE orders ADD n int, ALTER item SET STORAGE EXTERNAL")
    large = "x" * 20_000
    table.ask(f"INSERT INTO orders VALUES (1, '{large}', 1)")
    table.ask("UPDATE orders SET n = 2")
    table.ask("ALTER TABLE orders REPLICA IDENTITY FULL")
    table.ask("UPDATE orders SET n = 3")
    _, without, full = read(table.log(), start)
    assert without.after == {"id": 1, "n": 2}
    assert full.before == {"id": 1, "item": large, "n": 2}
    assert full.after == {"id": 1, "item": large, "n": 3}
    assert without.source["unchanged"] == ("item",)
    assert "unchanged" not in full.source


@dataclass(frozen=True)
class Numbered:
    id: int
    n: int


@dataclass(frozen=True)
class Described(Numbered):
    item: str | None = None


def test_a_large_value_that_is_not_sent_is_no_default_of_a_typed_row(table: Table) -> None:
    start = table.log().beginning()
    table.ask("ALTER TABLE orders ADD n int, ALTER item SET STORAGE EXTERNAL")
    table.ask(f"INSERT INTO orders VALUES (1, '{'x' * 20_000}', 1)")
    table.ask("UPDATE orders SET n = 2")
    _, change = read(table.log(), start)
    assert change_decoder(Numbered).function(change).after == Numbered(1, 2)
    with pytest.raises(ValueError, match=r"after\.item.* did not change and the server did not"):
        change_decoder(Described).function(change)


def test_transactions_are_whole_and_in_the_order_of_their_commits(table: Table) -> None:
    log = table.log()
    start = log.beginning()
    insert = f"INSERT INTO {table.name} VALUES (%s)".encode()
    with psycopg.connect(table.server.dsn) as late, psycopg.connect(table.server.dsn) as early:
        late.execute(insert, (1,))
        early.execute(insert, (2,))
        late.execute(insert, (3,))
        early.commit()
        middle = table.log().advance(start, 1 << 40)
        assert [change.row["id"] for change in read(table.log(), start, middle)] == [2]
        late.execute(insert, (4,))
        late.commit()
        late.execute(insert, (5,))
        late.rollback()
    found = read(table.log(), middle)
    assert [(change.row["id"], change.order) for change in found] == [(1, 1), (3, 2), (4, 3)]
    assert len({change.transaction for change in found}) == 1
    assert [change.row["id"] for change in read(table.log(), start)] == [2, 1, 3, 4]


def test_every_cut_of_the_log_gives_each_transaction_once(table: Table) -> None:
    log = table.log()
    start = log.beginning()
    for number in range(6):
        table.ask(f"INSERT INTO orders SELECT n FROM generate_series({number}0, {number}2) n")
    end = log.advance(start, 1 << 40)
    wanted = [change.row["id"] for change in read(table.log(), start, end)]
    (first,), (last,) = (offsets_of(each).values() for each in (start, end))
    for cut in range(first, last + 1, max(1, (last - first) // 40)):
        source = table.log()._source  # type: ignore[attr-defined]
        parts = [[*source.read("0", first, cut)], [*source.read("0", cut, last)]]
        assert [change.row["id"] for part in parts for change in part] == wanted
        assert all(len(part) % 3 == 0 for part in parts)


COPIES = "SELECT slot_name, confirmed_flush_lsn::text FROM pg_replication_slots WHERE temporary"


def copies_of(table: Table) -> dict[str, int]:
    """The places of a slot's temporary copies, by name."""
    found = dict(table.ask(COPIES))
    return {name: lsn_of(place) for name, place in found.items() if name.startswith(table.name)}


def test_what_was_read_is_not_decoded_again_though_the_slot_stays(table: Table) -> None:
    source = table.log()._source  # type: ignore[attr-defined]
    first = source.start("0")
    table.ask("INSERT INTO orders VALUES (1)")
    middle = source.end("0")
    table.ask("INSERT INTO orders VALUES (2)")
    end = source.end("0")
    assert [change.row["id"] for change in source.read("0", first, middle)] == [1]
    [(name, place)] = copies_of(table).items()
    assert place >= middle
    assert [change.row["id"] for change in source.read("0", middle, end)] == [2]
    [(same, place)] = copies_of(table).items()
    assert same == name
    assert place >= end
    assert source.start("0") == first


def test_a_copy_serves_no_other_range_than_the_next(table: Table, eventually: Eventually) -> None:
    source = table.log()._source  # type: ignore[attr-defined]
    first = source.start("0")
    for number in range(6):
        table.ask(f"INSERT INTO orders VALUES ({number})")
    end = source.end("0")

    def ids() -> list[int]:
        return [change.row["id"] for change in source.read("0", first, end)]

    assert ids() == ids() == [*range(6)]
    begun = source.read("0", first, end)
    assert next(begun).row["id"] == 0
    begun.close()
    eventually(lambda: copies_of(table) == {}, "the server has dropped the copy")
    assert ids() == [*range(6)]
    terminated = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name"
    for name in copies_of(table):
        table.ask(f"{terminated} = '{name}'")
    table.ask("INSERT INTO orders VALUES (6)")
    assert [change.row["id"] for change in source.read("0", end, source.end("0"))] == [6]


def test_a_server_without_room_for_a_copy_is_read_all_the_same(table: Table) -> None:
    source = table.log()._source  # type: ignore[attr-defined]
    first = source.start("0")
    for number in range(2):
        table.ask(f"INSERT INTO orders VALUES ({number})")
    free = 40 - len(table.ask("SELECT 1 FROM pg_replication_slots"))
    others = [f"{table.name}_other_{number}" for number in range(free)]
    for other in others:
        table.ask(f"SELECT pg_create_physical_replication_slot('{other}')")
    try:
        middle = source.end("0")
        assert [change.row["id"] for change in source.read("0", first, middle)] == [0, 1]
        assert copies_of(table) == {}
        table.ask("INSERT INTO orders VALUES (2)")
        assert [change.row["id"] for change in source.read("0", middle, source.end("0"))] == [2]
    finally:
        for other in others:
            table.ask(f"SELECT pg_drop_replication_slot('{other}')")


def test_a_part_of_a_record_at_a_new_runs_first_look_is_no_older_log(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = table.log()
    start = log.beginning()
    table.ask("INSERT INTO orders VALUES (1, 'tea')")
    position = log.advance(start, 1 << 40)
    block = 8192
    flushed = -(-offsets_of(position)["0"] // block) * block  # the end of a block, in a record
    ends = f"'{lsn_text(flushed)}', '{lsn_text(flushed + block)}', {block}"
    monkeypatch.setattr(PostgresChanges, "ends_query", f"SELECT {ends}")
    new = table.log()
    assert new.reconcile(position).place == position.place
    assert new.advance(position, 1 << 40).place[0] == position.place[0]


def test_a_server_that_does_not_answer_is_reported(
    table: Table, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresChanges, "answer_s", 1.0)
    log = table.log()
    log.beginning()
    with table.server.frozen():
        assert "the server has not answered for 1 s" in log.head().error
    eventually(lambda: not log.head().error, "it answers again")


def test_a_truncation_is_a_change_without_a_row(table: Table) -> None:
    log = table.log()
    start = log.beginning()
    table.ask("TRUNCATE orders")
    (change,) = read(log, start)
    assert change.op == "truncate"
    with pytest.raises(ValueError, match="truncate"):
        change.row  # noqa: B018


def test_the_slot_moves_with_what_is_released(table: Table) -> None:
    log = table.log()
    start = log.beginning()
    table.ask("INSERT INTO orders VALUES (1)")
    middle = log.advance(start, 1 << 40)
    table.ask("INSERT INTO orders VALUES (2)")
    log = table.log()
    end = log.advance(middle, 1 << 40)
    log.committed(end, None)
    assert [change.row["id"] for change in read(table.log(), start)] == [1, 2]
    log.committed(end, middle)
    assert [change.row["id"] for change in read(table.log(), middle)] == [2]
    with pytest.raises(CheckpointError, match=r"slot begins at .* it was moved or created again"):
        read(table.log(), start)
    trial = table.log(is_trial=True)
    trial.head()
    trial.committed(end, end)
    assert [change.row["id"] for change in read(table.log(), middle)] == [2]


def test_each_change_comes_once_while_the_server_is_killed(
    table: Table, tmp_path: Path, eventually: Eventually
) -> None:
    out = tmp_path / "out.txt"
    options = RunOptions(checkpoint=tmp_path / "state", status_address=None)

    def add(first: int, last: int) -> None:
        table.ask(f"INSERT INTO orders SELECT n FROM generate_series({first}, {last}) n")

    def came(wanted: list[str]) -> bool:
        return out.exists() and out.read_text().splitlines() == wanted

    run = Run(table.copying(out), options, InProcessHost(2))
    run.begin()
    name = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{table.name}'"
    eventually(lambda: bool(table.server.ask(name)), "the slot is there")
    add(1, 3000)
    wanted = [f"insert {n}" for n in range(1, 3001)]
    eventually(lambda: came(wanted), "the first changes")
    table.server.stop(signal.SIGQUIT)
    eventually(lambda: "PostgreSQL at 127.0.0.1" in run.status().waiting_for, "it says so")
    table.server.start()
    table.ask("DELETE FROM orders WHERE id <= 2")
    wanted += ["delete 1", "delete 2"]
    eventually(lambda: came(wanted), "the changes after the crash")
    run.stop()
    assert run.wait(400)
    assert run.exception is None
    add(3001, 3010)
    again = Run(table.copying(out), options, InProcessHost(2))
    again.begin()
    wanted += [f"insert {n}" for n in range(3001, 3011)]
    eventually(lambda: came(wanted), "the changes that came in between")
    again.stop()
    assert again.wait(400)


@pytest.mark.parametrize(
    "fault",
    ["postgres_changes.move:1", "postgres_changes.moved:1", "commit.before:2", "commit.after:1"],
)
def test_a_killed_driver_copies_each_change_once(
    table: Table, tmp_path: Path, child_of: Callable[..., Forks], fault: str
) -> None:
    child = child_of("tests.connectors.postgres.changes_child")
    arguments = (table.server.dsn, table.name, tmp_path)
    child_lines = [f"insert {n}" for n in range(1, 21)]
    table.log().beginning()
    for number in range(1, 11):
        table.ask(f"INSERT INTO orders VALUES ({number})")
    killed = child.run(*arguments, 10_000, WALLAROO_FAULT=fault)
    assert killed[0] == -signal.SIGKILL
    for number in range(11, 21):
        table.ask(f"INSERT INTO orders VALUES ({number})")
    assert child.run(*arguments, 20)[0] == 0
    assert (tmp_path / "out.txt").read_text().splitlines() == child_lines


def test_a_snapshot_has_the_rows_before_the_slot_and_changes_those_after_it(
    table: Table, eventually: Eventually
) -> None:
    table.ask("INSERT INTO orders VALUES (1, 'a'), (2, NULL), (3, 'c')")
    log = table.log(snapshot=True)
    start = log.beginning()
    middle = log.advance(start, 1)
    table.ask("UPDATE orders SET item = 'b' WHERE id = 2")
    table.ask("DELETE FROM orders WHERE id = 1")
    (part,) = log.split(start, middle, 4)
    copy = pickle.loads(pickle.dumps(log))
    for _ in range(2):  # a task may be run again
        rows = [row for one in part for run in copy.read(one) for row in run.payloads]
        assert [row.after for row in rows] == [
            {"id": 1, "item": "a"},
            {"id": 2, "item": None},
            {"id": 3, "item": "c"},
        ]
        assert {(row.op, row.table, row.is_snapshot) for row in rows} == {
            ("insert", f"public.{table.name}", True)
        }
    log.committed(middle, start)
    rest = table.log()  # it reads to the end of a whole record: the server may be writing another
    wanted = [("update", False), ("delete", False)]
    eventually(
        lambda: [(change.op, change.is_snapshot) for change in read(rest, middle)] == wanted,
        "the changes after the slot",
    )


def test_a_snapshot_has_what_is_published_of_a_table(table: Table) -> None:
    table.ask("ALTER TABLE orders ADD COLUMN twice int GENERATED ALWAYS AS (id * 2) STORED")
    table.ask("ALTER TABLE orders ADD COLUMN secret text DEFAULT 'x'")
    table.ask("ALTER PUBLICATION orders SET TABLE orders (id, item) WHERE (id > 1)")
    table.ask("INSERT INTO orders (id, item) VALUES (1, 'a'), (2, 'b')")
    log = table.log(snapshot=True)
    start = log.beginning()
    middle = log.advance(start, 1)
    ((part,),) = log.split(start, middle, 1)
    (rows,) = [run.payloads for run in log.read(part)]
    assert [row.after for row in rows] == [{"id": 2, "item": "b"}]
    log.close()


def test_rows_of_a_snapshot_and_changes_meanwhile_come_once(
    table: Table, tmp_path: Path, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    out = tmp_path / "out.txt"
    table.ask("INSERT INTO orders SELECT n FROM generate_series(1, 20000) n")
    ids = count(20_001)
    options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
    run = Run(table.copying(out, snapshot=True), options, InProcessHost(2))
    run.begin()
    while not out.exists() or out.read_text().count("\n") <= 20_000:
        table.ask(f"INSERT INTO orders VALUES ({next(ids)})")
        assert run.exception is None
    last = next(ids) - 1
    wanted = [f"insert {n}" for n in range(1, last + 1)]
    eventually(lambda: out.read_text().splitlines() == wanted, "all of them, in order")
    eventually(lambda: run.status().sources[0].events_done == last, "changes are counted")
    run.stop()
    assert run.wait(400)
    again = Run(table.copying(out, snapshot=True), options, InProcessHost(2))
    again.begin()
    table.ask(f"INSERT INTO orders VALUES ({last + 1})")
    wanted.append(f"insert {last + 1}")
    eventually(lambda: out.read_text().splitlines() == wanted, "what is new, and no snapshot")
    assert f"{last:,} events are in the state" in caplog.text
    again.stop()
    assert again.wait(400)


@pytest.mark.parametrize(
    "fault", ["postgres_changes.exported:1", "commit.before:1", "commit.after:1"]
)
def test_a_driver_that_is_killed_at_its_snapshot_copies_each_row_once(
    table: Table, tmp_path: Path, child_of: Callable[..., Forks], fault: str
) -> None:
    child = child_of("tests.connectors.postgres.changes_child")
    table.ask("INSERT INTO orders SELECT n FROM generate_series(1, 10) n")
    arguments = (table.server.dsn, table.name, tmp_path)
    killed = child.run(*arguments, 10_000, "snapshot", WALLAROO_FAULT=fault)
    assert killed[0] == -signal.SIGKILL
    table.ask("INSERT INTO orders SELECT n FROM generate_series(11, 20) n")
    assert child.run(*arguments, 20, "snapshot")[0] == 0
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert lines == [f"insert {n}" for n in range(1, 21)]


def test_a_snapshots_slot_is_known_before_the_next_look(table: Table) -> None:
    log = table.log(snapshot=True, poll_s=3600.0)
    end = log.advance(log.beginning(), 1)
    assert log.reconcile(end) is end
    log.close()


def test_a_snapshot_that_is_gone_before_it_was_committed_is_named(table: Table) -> None:
    log = table.log(snapshot=True)
    start = log.beginning()
    end = log.advance(start, 1)
    log.close()
    part = Range("0", "00000003-00000002-1", end.place, 1)
    with pytest.raises(PeerError, match=r"before the first batch was committed\. Run again"):
        next(log.read(part))


def test_a_slot_that_is_gone_ends_the_run_with_the_ways_on(table: Table) -> None:
    start = table.log().beginning()
    table.ask("SELECT pg_drop_replication_slot('orders')")
    with pytest.raises(CheckpointError, match=r"slot does not exist any more\. Begin again"):
        table.log().reconcile(start)
    table.ask("INSERT INTO orders VALUES (1)")
    table.log().beginning()
    with pytest.raises(CheckpointError, match="it was moved or created again"):
        table.log().reconcile(start)


@pytest.mark.parametrize(
    "removal", ["DROP TABLE orders", "ALTER TABLE orders RENAME TO orders_old"]
)
def test_a_table_that_is_created_again_and_not_published_ends_the_run_until_it_is(
    table: Table, removal: str
) -> None:
    start = table.log().beginning()
    table.ask("INSERT INTO orders VALUES (1)")
    log = table.log()
    end = log.advance(start, 1 << 40)
    table.ask(removal)
    assert log.reconcile(end) == end  # as long as there is no other
    table.ask("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    for position in (start, end):
        with pytest.raises(CheckpointError, match=r"created again, and the publication lacks") as e:
            table.log().reconcile(position)
    (statement,) = re.findall(r"ALTER PUBLICATION .*?;", str(e.value))
    table.server.ask(statement)
    table.ask("INSERT INTO orders VALUES (2)")
    again = table.log()
    again.reconcile(end)
    assert [change.row["id"] for change in read(again, end)] == [2]


def test_tables_may_leave_the_publication_and_all_tables_may_be_created_again(table: Table) -> None:
    start = table.log().beginning()
    table.ask("ALTER PUBLICATION orders SET TABLES IN SCHEMA public")
    table.ask("DROP TABLE orders")
    table.ask("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    table.ask("INSERT INTO orders VALUES (1)")
    log = table.log()
    log.reconcile(start)
    assert [change.row["id"] for change in read(log, start)] == [1]


def test_a_publication_that_did_not_exist_at_a_change_is_named_with_the_way_out(
    table: Table,
) -> None:
    start = table.log().beginning()
    table.ask("DROP PUBLICATION orders")
    table.ask("INSERT INTO orders VALUES (1)")
    table.ask("CREATE PUBLICATION orders FOR TABLE orders")
    words = r"to create it again does not help.* another slot= and a copy"
    with pytest.raises(PeerError, match=words):
        read(table.log(), start)


def test_a_slot_that_the_server_gave_up_ends_the_run(table: Table) -> None:
    start = table.log().beginning()
    table.ask("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    table.ask("SELECT pg_reload_conf()")
    try:
        state = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = 'orders'"
        for _ in range(4):
            table.ask("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000))")
            table.ask("SELECT pg_switch_wal()")
        lost = table.ask(state)[0][0]
        if lost == "unreserved":
            words = table.log().head().error
            assert f"slot '{table.name}' is about to be lost: " in words
        table.ask("CHECKPOINT")
        assert table.ask(state) == [("lost",)]
        with pytest.raises(CheckpointError, match="slot is lost: the server has removed changes"):
            table.log().reconcile(start)
    finally:
        table.ask("ALTER SYSTEM RESET max_slot_wal_keep_size")
        table.ask("SELECT pg_reload_conf()")


may_pass = threading.Event()


@wallaroo.encoder
def as_held_line(change: Change[dict[str, Any]]) -> str:
    assert may_pass.wait(400)
    return f"{change.op} {change.row['id']}\n"


def test_a_slot_that_lags_is_reported_and_a_lost_one_ends_the_run_and_the_next_at_its_start(
    tmp_path: Path, eventually: Eventually
) -> None:
    settings = ("wal_level=logical", "max_slot_wal_keep_size=1MB", "checkpoint_timeout=1d")
    options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
    with running_server(*settings) as server:
        table = Table(server, "orders")
        table.ask("CREATE TABLE orders (id int PRIMARY KEY, item text)")
        table.ask("CREATE PUBLICATION orders FOR TABLE orders")
        changes = wallaroo.source("changes", table.config())
        sink = wallaroo.FileSinkConfig(tmp_path / "out.txt", as_held_line)
        application = wallaroo.build_application("copy", changes.to_sink(sink))
        state = "SELECT wal_status FROM pg_replication_slots"

        may_pass.set()
        run = Run(application, options, InProcessHost(2))
        run.begin()
        eventually(lambda: bool(table.ask(state)), "the slot is there")
        table.ask("INSERT INTO orders VALUES (1)")
        eventually(lambda: run.status().events_done == 1, "the first change")
        assert "slot" not in run.status().waiting_for
        may_pass.clear()
        table.ask("INSERT INTO orders VALUES (2)")
        for _ in range(4):  # each begins another segment of the log, of 16 MB
            table.ask("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000))")
            table.ask("SELECT pg_switch_wal()")
        words = "slot 'orders' is about to be lost: "
        eventually(lambda: words in run.status().waiting_for, "the status warns")
        assert "are kept for it, more than max_slot_wal_keep_size" in run.status().waiting_for
        large = 40 << 20
        eventually(lambda: run.status().sources[0].backlog_bytes > large, "the lag is shown")
        assert run.status().sources[0].lags["0"] > 0

        table.ask("CHECKPOINT")
        assert table.ask(state) == [("lost",)]
        may_pass.set()
        assert run.wait(400)
        lost = "slot is lost: the server has removed changes that were not read. Begin again with"
        assert lost in str(run.exception)

        again = Run(application, options, InProcessHost(2))
        again.begin()
        assert again.wait(400)
        assert lost in str(again.exception)
        assert (tmp_path / "out.txt").read_text() in ("insert 1\n", "insert 1\ninsert 2\n")


def test_what_is_missing_is_named_before_the_first_run(table: Table, server: Server) -> None:
    table.ask("DROP PUBLICATION orders")
    with pytest.raises(PeerError, match=r'CREATE PUBLICATION "orders_\d+" FOR TABLE'):
        table.log().beginning()
    table.ask("CREATE PUBLICATION orders FOR TABLE orders")
    with pytest.raises(PeerError, match=r"a trial creates none\. Run the application once"):
        table.log(is_trial=True).beginning()
    table.ask("SELECT pg_create_logical_replication_slot('orders', 'test_decoding')")
    with pytest.raises(PeerError, match="belongs to another plugin or database"):
        table.log().beginning()
    with running_server() as plain, pytest.raises(PeerError, match="Set wal_level=logical"):
        Table(plain, "t").log().beginning()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"publication": ""}, "publication must not be empty"),
        ({"slot": "A b"}, "slot='A b' is not a valid slot name"),
        ({"poll_s": 0}, "poll_s=0 is not a positive number"),
    ],
)
def test_a_wrong_configuration_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        PostgresChangesConfig(**{"name": "a", "dsn": "", "publication": "p", **options})
    assert PostgresChangesConfig("My orders", "", "p").slot == "wallaroo_my_orders"
