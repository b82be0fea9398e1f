"""Rows of a PostgreSQL table, from a real server: each once, in order, whichever commits first."""

from __future__ import annotations

import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, time, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

import wallaroo
from tests.connectors.postgres.server import UNUSUAL, Server, running_server
from wallaroo.connectors.sql.postgres.reader import PostgresTableSource
from wallaroo.connectors.sql.source_table import Rows
from wallaroo.errors import PeerError, WallarooParameterError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import row_decoder
from wallaroo.sources import LogContext, PostgresChangesConfig, PostgresSourceConfig
from wallaroo.sources.log import SourceLog
from wallaroo.sources.replayable import TableLog
from wallaroo.testing import run_local

Eventually = Callable[..., None]
_numbers = count()


@dataclass(frozen=True)
class Order:
    id: int
    item: str


@wallaroo.encoder
def as_line(order: Order) -> str:
    return f"{order.id} {order.item}\n"


def copying(source: PostgresSourceConfig[Order], out: Path) -> wallaroo.Application:
    orders = wallaroo.source("orders", source)
    return wallaroo.build_application("copy", orders.to_sink(wallaroo.FileSinkConfig(out, as_line)))


def read(log: SourceLog, pieces: int = 2) -> list[dict[str, Any]]:
    """All rows up to the head, read as tasks do."""
    start = log.beginning()
    end = log.advance(start, 1 << 40)
    parts = log.split(start, end, pieces) if end.place != start.place else []
    log = pickle.loads(pickle.dumps(log))
    return [
        row for part in parts for each in part for run in log.read(each) for row in run.payloads
    ]


@pytest.mark.postgres
class TestOnAServer:
    @pytest.fixture
    def table(self, server: Server) -> str:
        name = f"orders_{next(_numbers)}"
        server.ask(
            f"CREATE TABLE {name} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text)"
        )
        return name

    def source(
        self, server: Server, table: str, *, poll_s: float = 0.01, **options: Any
    ) -> PostgresSourceConfig[Any]:
        return PostgresSourceConfig("orders", server.dsn, table, "id", poll_s=poll_s, **options)

    def log(self, server: Server, table: str, **options: Any) -> SourceLog:
        return self.source(server, table, **options).open_log(LogContext(Path()))

    def test_a_server_that_does_not_answer_is_waited_for(
        self,
        tmp_path: Path,
        server: Server,
        table: str,
        eventually: Eventually,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(PostgresTableSource, "answer_s", 1.0)
        out = tmp_path / "out.txt"
        options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
        server.ask(f"INSERT INTO {table} (item) VALUES ('before')")
        source = self.source(server, table, decoder=row_decoder(Order))
        run = Run(copying(source, out), options, InProcessHost(2))
        run.begin()
        eventually(lambda: out.exists() and out.read_text() == "1 before\n", "the first row")
        with server.frozen():
            eventually(lambda: "PostgreSQL at 127.0.0.1" in run.status().waiting_for, "it says so")
        server.ask(f"INSERT INTO {table} (item) VALUES ('after')")
        eventually(lambda: out.read_text() == "1 before\n2 after\n", "the row after it")
        run.stop()
        assert run.wait(400)
        assert run.exception is None

    def test_rows_come_once_in_order_while_the_server_is_restarted(
        self, tmp_path: Path, server: Server, table: str, eventually: Eventually
    ) -> None:
        out = tmp_path / "out.txt"
        options = RunOptions(checkpoint=tmp_path / "state", status_address=None)

        def add(first: int, last: int) -> None:
            server.ask(f"INSERT INTO {table} (item) SELECT 'i' || n FROM "
                       f"generate_series({first}, {last}) n")  # fmt: skip

        def came(count: int) -> bool:
            lines = out.read_text().splitlines() if out.exists() else []
            # a crash of the server leaves a gap in the numbers
            return [line.split()[1] for line in lines] == [f"i{n}" for n in range(1, count + 1)]

        add(1, 9000)
        source = self.source(server, table, decoder=row_decoder(Order))
        run = Run(copying(source, out), options, InProcessHost(2))
        run.begin()
        eventually(lambda: came(9000), "the rows that were there")
        server.stop(signal.SIGQUIT)
        eventually(lambda: "PostgreSQL at 127.0.0.1" in run.status().waiting_for, "it says so")
        server.start()
        add(9001, 9010)
        eventually(lambda: came(9010), "the rows after the crash")
        run.stop()
        assert run.wait(400)
        assert run.exception is None
        add(9011, 9020)
        again = Run(copying(source, out), options, InProcessHost(2))
        again.begin()
        eventually(lambda: came(9020), "the rows that came in between")
        again.stop()
        assert again.wait(400)

    def test_a_column_that_is_added_does_not_end_the_reading(
        self, server: Server, table: str, eventually: Eventually
    ) -> None:
        log = self.log(server, table)
        for number in range(12):  # psycopg prepares a statement after some uses
            server.ask(f"INSERT INTO {table} (item) VALUES ('i{number}')")
            eventually(lambda count=number + 1: len(read(log)) == count, "the row")
        server.ask(f"ALTER TABLE {table} ADD COLUMN extra text DEFAULT 'x'")
        server.ask(f"INSERT INTO {table} (item) VALUES ('last')")
        eventually(lambda: len(read(log)) == 13, "the row with another column")

    def test_a_row_whose_transaction_commits_late_is_not_missed(
        self, server: Server, table: str, eventually: Eventually
    ) -> None:
        rows = Rows("orders", server.dsn, table, "id", ())
        log = TableLog(PostgresTableSource(rows, None, poll_s=0.01, held_up_s=0.2))
        insert = f"INSERT INTO {table} (item) VALUES (%s)".encode()
        with psycopg.connect(server.dsn) as late, psycopg.connect(server.dsn) as early:
            late.execute(insert, ("late",))
            early.execute(insert, ("early",))
            early.commit()
            held_up = f"rows of '{table}' wait for transactions that write to it"
            eventually(lambda: held_up in log.head().error, "it says what it waits for")
            assert read(log) == []
            early.execute(insert, ("after",))  # a writer that came later is not waited for
            late.commit()
            eventually(lambda: len(read(log)) == 2, "both rows")
            assert [row["item"] for row in read(log)] == ["late", "early"]
            early.rollback()

    def test_a_row_of_a_transaction_that_is_prepared_is_not_missed(
        self, server: Server, table: str, eventually: Eventually
    ) -> None:
        rows = Rows("orders", server.dsn, table, "id", ())
        log = TableLog(PostgresTableSource(rows, None, poll_s=0.01, held_up_s=0.0))
        insert = f"INSERT INTO {table} (item) VALUES (%s)".encode()
        with psycopg.connect(server.dsn, autocommit=True) as late:
            late.execute(b"BEGIN")
            late.execute(insert, ("late",))
            server.ask(f"INSERT INTO {table} (item) VALUES ('early')")
            eventually(lambda: "server process" in log.head().error, "it waits for the session")
            late.execute(f"PREPARE TRANSACTION '{table}'".encode())
        prepared = f"prepared transaction '{table}'"
        eventually(lambda: prepared in log.head().error, "it waits for what was prepared")
        assert read(log) == []
        with psycopg.connect(server.dsn, autocommit=True) as later:  # it is not waited for
            later.execute(b"BEGIN")
            later.execute(insert, ("after",))
            later.execute(f"PREPARE TRANSACTION '{table}_later'".encode())
            assert read(log) == []
        server.ask(f"COMMIT PREPARED '{table}'")
        eventually(lambda: len(read(log)) == 2, "both rows")
        assert [row["item"] for row in read(log)] == ["late", "early"]
        server.ask(f"ROLLBACK PREPARED '{table}_later'")

    def test_a_prepared_transaction_is_waited_for_by_who_comes_after_a_crash_of_the_server(
        self, server: Server, table: str, eventually: Eventually
    ) -> None:
        with psycopg.connect(server.dsn, autocommit=True) as late:
            late.execute(b"BEGIN")
            late.execute(f"INSERT INTO {table} (item) VALUES ('late')".encode())
            late.execute(f"PREPARE TRANSACTION '{table}'".encode())
        server.ask(f"INSERT INTO {table} (item) VALUES ('early')")
        log = self.log(server, table)
        assert read(log) == []
        server.stop(signal.SIGQUIT)
        server.start()
        eventually(lambda: "PostgreSQL at" not in log.head().error, "it is connected again")
        for waiting in (log, self.log(server, table)):
            assert read(waiting) == []
        server.ask(f"COMMIT PREPARED '{table}'")
        items = lambda: [row["item"] for row in read(log)]  # noqa: E731
        eventually(lambda: items() == ["late", "early"], "both rows")

    def test_a_partition_that_is_written_directly_is_waited_for_too(
        self, server: Server, eventually: Eventually
    ) -> None:
        table = f"orders_{next(_numbers)}"
        server.ask(f"CREATE TABLE {table} (id bigserial, item text) PARTITION BY LIST (item)")
        server.ask(f"CREATE TABLE {table}_a PARTITION OF {table} FOR VALUES IN ('a')")
        server.ask(f"CREATE TABLE {table}_b PARTITION OF {table} FOR VALUES IN ('b')")
        log = self.log(server, table)
        with psycopg.connect(server.dsn) as late:
            late.execute(f"INSERT INTO {table}_a (item) VALUES ('a')".encode())
            server.ask(f"INSERT INTO {table} (item) VALUES ('b')")
            for _ in range(3):
                assert read(log) == []
            late.commit()
        eventually(lambda: [row["item"] for row in read(log)] == ["a", "b"], "both rows")

    def test_it_begins_after_a_number_and_reads_some_columns(
        self, server: Server, table: str, eventually: Eventually
    ) -> None:
        server.ask(f"INSERT INTO {table} (item) VALUES ('a'), ('b'), ('c')")
        log = self.log(server, table, start=1, columns=("item",))
        eventually(lambda: read(log) == [{"item": "b"}, {"item": "c"}], "the rows after it")

    def test_values_do_not_depend_on_the_settings_of_the_session(
        self, server: Server, table: str
    ) -> None:
        server.ask(f"ALTER TABLE {table} ADD d date, ADD i interval, ADD f float, ADD b bytea")
        server.ask(
            f"INSERT INTO {table} (item, d, i, f, b) VALUES "
            """('a', '2026-02-01', '-1 day +1 hour', 0.1::float + 0.2, '\\x00ff')"""
        )
        config = PostgresSourceConfig("orders", server.dsn + UNUSUAL, table, "id")
        (row,) = read(config.open_log(LogContext(Path())))
        assert (row["d"], row["b"]) == (date(2026, 2, 1), b"\x00\xff")
        assert (row["i"], row["f"]) == (timedelta(days=-1, hours=1), 0.1 + 0.2)

    def test_a_time_that_python_has_no_value_for_arrives_as_text(
        self, server: Server, table: str
    ) -> None:
        """Such a row must not end each run: the decoder may not even need the column."""
        server.ask(f"ALTER TABLE {table} ADD until timestamptz, ADD day date, ADD at time")
        server.ask(
            f"INSERT INTO {table} (item, until, day, at) VALUES "
            "('a', 'infinity', '0044-03-15 BC', '24:00'), ('b', NULL, '2026-01-02', '23:59')"
        )
        first, second = read(self.log(server, table))
        assert (first["until"], first["at"]) == ("infinity", "24:00:00")
        assert first["day"] == "0044-03-15 BC"
        assert (second["until"], second["day"]) == (None, date(2026, 1, 2))
        assert second["at"] == time(23, 59)

    @pytest.mark.parametrize(
        ("table", "column", "words"),
        [
            ("nowhere", "id", "has no table 'nowhere' with a column 'id'"),
            ("pg_class", "none", "has no table 'pg_class' with a column 'none'"),
            ("pg_class", "relname", "is of type name. Name an identity or serial column"),
            ("pg_locks", "pid", "is a view, a foreign table or one that others inherit from"),
        ],
    )
    def test_what_cannot_be_read_is_refused_at_the_start(
        self, server: Server, table: str, column: str, words: str
    ) -> None:
        source = PostgresSourceConfig("orders", server.dsn, table, column)
        with pytest.raises(PeerError, match=words):
            source.open_log(LogContext(Path())).beginning()

    def test_a_missing_right_is_named(self, server: Server, table: str) -> None:
        server.ask(f"CREATE ROLE reader_of_{table} LOGIN")
        dsn = server.dsn.replace("user=postgres", f"user=reader_of_{table}")
        source = PostgresSourceConfig("orders", dsn, table, "id")
        with pytest.raises(PeerError, match=f"permission denied for table {table}"):
            source.open_log(LogContext(Path())).beginning()

    @pytest.mark.parametrize(
        ("login", "words"),
        [
            ("user=guest password=wrong", "authentication failed.*Correct the user, the password"),
            ("user=guest", "no password supplied. Correct the user, the password"),
            ("user=missing", 'role "missing" does not exist. Correct the user, the password'),
            ("user=postgres dbname=gone", "does not exist. Correct the user, the password, dbname"),
            ("user=one_more", "too many connections.*Wait until it accepts connections"),
            ("user=postgres sslmode=require", "SSL was required. Correct sslmode, sslrootcert"),
            ("user=postgres port=1", "Connection refused. Is it running.*correct its address"),
        ],
    )
    def test_a_refusal_to_connect_comes_with_its_remedy(
        self, server: Server, table: str, guests: None, login: str, words: str
    ) -> None:
        dsn = f"{server.dsn} {login}"  # of two values of a parameter the last one counts
        rows = PostgresSourceConfig("in", dsn, table, "id")
        changes = PostgresChangesConfig("in", dsn, "pub")
        for source in (rows, changes):
            log = source.open_log(LogContext(Path()))
            with pytest.raises(PeerError, match=f"source 'in': PostgreSQL at .*{words}.*run again"):
                log.beginning()


@pytest.fixture(scope="module")
def guests(server: Server) -> None:
    """Users that the server refuses: for their password, and for their number."""
    server.ask("CREATE ROLE guest LOGIN PASSWORD 'right'")
    server.ask("CREATE ROLE one_more LOGIN CONNECTION LIMIT 0")
    rules = server.folder / "cluster" / "pg_hba.conf"
    rules.write_text(f"host all guest 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    server.ask("SELECT pg_reload_conf()")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as started:
        yield started


def test_tests_give_rows() -> None:
    source: PostgresSourceConfig[Order] = PostgresSourceConfig(
        "orders", "", "orders", "id", row_decoder(Order)
    )
    application = copying(source, Path("out.txt"))
    assert run_local(application, {"orders": [Order(1, "tea")]}).outputs == [b"1 tea\n"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"table": "a.b.c"}, "is not a name"),
        ({"column": ""}, "Name the identity column"),
        ({"columns": "item"}, "Give a tuple"),
        ({"poll_s": 0}, "is not a time"),
    ],
)
def test_a_wrong_configuration_is_refused(options: dict[str, Any], words: str) -> None:
    own = {"dsn": "", "table": "orders", "column": "id", **options}
    with pytest.raises(WallarooParameterError, match=words):
        PostgresSourceConfig("orders", **own)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wallaroo.connectors.sql.postgres.reader", None)
    source: Any = PostgresSourceConfig("orders", "", "orders", "id")
    with pytest.raises(PeerError, match=r"pip install 'psycopg\[binary\]'"):
        source.open_log(LogContext(Path()))
