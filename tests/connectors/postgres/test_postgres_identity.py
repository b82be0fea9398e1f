"""A PostgreSQL table is the one that was read, or the run is refused: with a real server."""

from __future__ import annotations

import pickle
import shutil
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.connectors.postgres.server import Server, running_server
from tests.connectors.postgres.test_postgres_source import Order, copying
from wallaroo.errors import CheckpointError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import row_decoder
from wallaroo.sources import LogContext, PostgresSourceConfig
from wallaroo.sources.log import Position, SourceLog

Eventually = Callable[..., None]
MADE = "(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text)"
_numbers = count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as started:
        yield started


def add(server: Server, table: str, rows: int) -> None:
    server.ask(f"INSERT INTO {table} (item) SELECT 'i' || n FROM generate_series(1, {rows}) n")


class Reading:
    """A source of a table of five rows, and a position after them, as a commit has it."""

    def __init__(self, server: Server, eventually: Eventually, **options: Any):
        self.table = f"orders_{next(_numbers)}"
        self.dsn = server.dsn
        server.ask(f"CREATE TABLE {self.table} {MADE}")
        add(server, self.table, 5)
        self.log = self.opened(**options)
        self.start = self.log.beginning()
        self.read: list[Any] = []
        eventually(lambda: self.advance() == 5, "the rows")

    def opened(self, **options: Any) -> SourceLog:
        source: PostgresSourceConfig[Any] = PostgresSourceConfig(
            "orders", options.pop("dsn", self.dsn), self.table, "id", poll_s=0.001, **options
        )
        return source.open_log(LogContext(Path()))

    def advance(self) -> int:
        """Read on; return how many rows came until now."""
        end = self.log.advance(self.start, 1 << 40)
        for part in self.log.split(self.start, end, 1):
            self.read += [row["id"] for each in part for run in self.log.read(each)
                          for row in run.payloads]  # fmt: skip
        self.start = Position.from_json(pickle.loads(pickle.dumps(end.to_json())))
        return len(self.read)


@pytest.mark.postgres
class TestOnAServer:
    @pytest.mark.parametrize(
        ("replaced", "words"),
        [
            (("DROP TABLE {0}", "CREATE TABLE {0} " + MADE), "its table's object id is"),
            (("TRUNCATE {0} RESTART IDENTITY",), "its sequence's file is"),
            (("DELETE FROM {0}", "ALTER SEQUENCE {0}_id_seq RESTART"), "its sequence's file is"),
        ],
    )
    @pytest.mark.parametrize("rows", [2, 50])
    def test_a_table_that_is_another_one_is_refused_while_it_is_read_and_at_the_start(
        self,
        server: Server,
        eventually: Eventually,
        replaced: tuple[str, ...],
        words: str,
        rows: int,
    ) -> None:
        reading = Reading(server, eventually)
        for statement in replaced:
            server.ask(statement.format(reading.table))
        add(server, reading.table, rows)
        for log in (reading.log, reading.opened()):
            with pytest.raises(CheckpointError, match=f"is not what was read.*{words}.*start=5"):
                eventually(lambda log=log: log.require(reading.start), "it is noticed")
            with pytest.raises(CheckpointError, match=words):
                log.advance(reading.start, 100)
        assert reading.read == [1, 2, 3, 4, 5]

    def test_numbers_that_go_back_are_refused(self, server: Server, eventually: Eventually) -> None:
        reading = Reading(server, eventually)
        server.ask(f"DELETE FROM {reading.table}")
        server.ask(f"SELECT setval('{reading.table}_id_seq', 1)")
        with pytest.raises(CheckpointError, match="its sequence's last number is 1 and was 5"):
            reading.opened().require(reading.start)

    def test_a_copy_in_another_database_is_refused(
        self, server: Server, eventually: Eventually
    ) -> None:
        reading = Reading(server, eventually)
        server.ask("CREATE DATABASE restored TEMPLATE template1")
        dsn = server.dsn.replace("dbname=postgres", "dbname=restored")
        with psycopg.connect(dsn, autocommit=True) as restored:
            restored.execute(f"CREATE TABLE {reading.table} {MADE}".encode())
        with pytest.raises(CheckpointError, match="its database's object id is"):
            reading.opened(dsn=dsn).require(reading.start)

    def test_another_cluster_is_refused(self, server: Server, eventually: Eventually) -> None:
        reading = Reading(server, eventually)
        ((identifier,),) = server.ask("SELECT system_identifier::text FROM pg_control_system()")
        content = repr(reading.start.to_json())
        assert identifier in content, "the position carries it"
        elsewhere = Position.from_json(eval(content.replace(identifier, "7")))
        with pytest.raises(CheckpointError, match=f"system identifier is {identifier} and was 7"):
            reading.opened().require(elsewhere)

    def test_a_server_that_was_promoted_or_restored_is_refused(
        self, eventually: Eventually
    ) -> None:
        """Though it has as many numbers: rows that it lacks may have been read."""
        with running_server() as server:
            reading = Reading(server, eventually)
            add(server, reading.table, 40)
            server.stop(signal.SIGQUIT)
            server.start()
            reading.opened().require(reading.start)
            server.ask("ALTER SYSTEM SET restore_command = 'false'")
            server.stop()
            signalled = server.folder / "cluster" / "recovery.signal"
            signalled.touch()
            signalled.chmod(0o666)
            shutil.chown(signalled, *(server.folder.owner(),))
            server.start()
            eventually(lambda: server.ask("SELECT pg_is_in_recovery()") == [(False,)], "promotion")
            with pytest.raises(CheckpointError, match="its timeline is 00000002 and was 00000001"):
                reading.opened().require(reading.start)

    def test_what_happens_to_a_table_that_stays_is_no_reason(
        self, server: Server, eventually: Eventually
    ) -> None:
        reading = Reading(server, eventually)
        table = reading.table
        for statement in (f"UPDATE {table} SET item = 'x'", f"DELETE FROM {table} WHERE id > 2",
                          f"VACUUM FULL {table}", f"ALTER TABLE {table} ADD COLUMN more text",
                          f"CLUSTER {table} USING {table}_pkey"):  # fmt: skip
            server.ask(statement)
            reading.opened().require(reading.start)
        server.ask(f"TRUNCATE {table}")  # the numbers continue
        server.stop(signal.SIGQUIT)
        server.start()
        add(server, table, 2)
        reading.log = reading.opened()
        eventually(lambda: reading.advance() == 7, "the rows after all that")
        assert reading.read[:6] == [1, 2, 3, 4, 5, reading.read[5]]
        assert reading.read[5] > 5

    def test_a_position_of_an_earlier_version_adopts_the_table_that_is_there(
        self, server: Server, eventually: Eventually
    ) -> None:
        reading = Reading(server, eventually)
        earlier = Position({"0": 6}, 6)
        adopted = reading.log.reconcile(earlier)
        assert (adopted.place[0], adopted.events) == ({"0": 6}, 6)
        assert reading.log.reconcile(adopted) is adopted
        server.ask(f"TRUNCATE {reading.table} RESTART IDENTITY")
        log = reading.opened()
        with pytest.raises(CheckpointError, match="is not what was read"):
            log.require(adopted)

    def test_a_user_without_rights_to_see_all_of_it_reads_all_the_same(
        self, server: Server, eventually: Eventually
    ) -> None:
        reading = Reading(server, eventually)
        role = f"reader_of_{reading.table}"
        server.ask(f"CREATE ROLE {role} LOGIN")
        server.ask(f"GRANT SELECT ON {reading.table} TO {role}")
        server.ask("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        reading.log = reading.opened(dsn=server.dsn.replace("user=postgres", f"user={role}"))
        add(server, reading.table, 2)
        eventually(lambda: reading.advance() == 7, "the rows")
        server.ask(f"TRUNCATE {reading.table} RESTART IDENTITY")
        with pytest.raises(CheckpointError, match="its sequence's file is"):
            eventually(lambda: reading.log.reconcile(reading.start) is None, "it is noticed")

    def test_the_way_out_continues_after_the_last_row(
        self, server: Server, eventually: Eventually
    ) -> None:
        reading = Reading(server, eventually)
        server.ask(f"ALTER SEQUENCE {reading.table}_id_seq RESTART WITH 6")
        add(server, reading.table, 1)
        with pytest.raises(CheckpointError, match="start=5: it continues after the last row"):
            reading.opened().require(reading.start)
        reading.log = reading.opened(start=5)
        reading.start = reading.log.beginning()
        eventually(lambda: reading.advance() == 6, "the row after those")
        assert reading.read == [1, 2, 3, 4, 5, 6]

    def test_a_run_ends_when_its_table_is_made_again_and_is_refused_afterwards(
        self, tmp_path: Path, server: Server, eventually: Eventually
    ) -> None:
        out = tmp_path / "out.txt"
        table = f"orders_{next(_numbers)}"
        server.ask(f"CREATE TABLE {table} {MADE}")
        add(server, table, 5)
        source: PostgresSourceConfig[Order] = PostgresSourceConfig(
            "orders", server.dsn, table, "id", row_decoder(Order), poll_s=0.01
        )
        options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
        run = Run(copying(source, out), options, InProcessHost(1))
        run.begin()
        eventually(lambda: out.exists() and out.read_text().count("\n") == 5, "the rows")
        server.ask(f"BEGIN; DROP TABLE {table}; CREATE TABLE {table} {MADE}; INSERT INTO {table} "
                   "(item) SELECT 'again' FROM generate_series(1, 50); COMMIT")  # fmt: skip
        assert run.wait(400)
        assert f"Source 'orders' (table '{table}' of PostgreSQL at" in str(run.exception)
        again = Run(copying(source, out), options, InProcessHost(1))
        again.begin()
        assert again.wait(400)
        assert "its table's object id is" in str(again.exception)
        assert out.read_text().splitlines() == [f"{n} i{n}" for n in range(1, 6)]
