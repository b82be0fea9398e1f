"""Tables of SQL databases that are kept by a key: rows are replaced and removed, each change once,
also if the driver is killed.
"""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.postgres.server import Server, running_server
from tests.forks import Forks
from tests.unit.sinks.broken import error_of
from tests.unit.sinks.identities import commit_of, history_to
from tests.unit.sinks.killed_driver import stage
from wallaroo.errors import WallarooParameterError
from wallaroo.sinks import Delete, PostgresSinkConfig, SinkCommitter, SQLiteSinkConfig

Eventually = Callable[..., None]
DRAIN_S = 400.0
KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
# counts how often a row was updated: what is put twice would show
COUNT_IN_SQLITE = (
    "CREATE TRIGGER counted AFTER UPDATE OF value ON counts BEGIN "
    "UPDATE counts SET changes = changes + 1 WHERE key = NEW.key; END"
)
COUNT_IN_POSTGRES = (
    "CREATE OR REPLACE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN NEW.changes = OLD.changes + 1; RETURN NEW; END'",
    "CREATE TRIGGER counted BEFORE UPDATE ON counts FOR EACH ROW EXECUTE FUNCTION counted()",
)


@dataclass
class Database:
    """A database of one kind, whose table and ledger are made again for each test."""

    kind: str
    folder: Path
    server: Server | None

    def ask(self, query: str) -> list[Any]:
        if self.server is not None:
            return list(self.server.ask(query))
        with closing(sqlite3.connect(self.folder / "out.db")) as connection, connection:
            return connection.execute(query).fetchall()

    def sink(self, columns: Any = ("key", "value"), **options: Any) -> Any:
        if self.server is not None:
            return PostgresSinkConfig(self.server.dsn, "counts", columns, **options)
        return SQLiteSinkConfig(self.folder / "out.db", "counts", columns, **options)

    def opened(self, config: Any, last: int = -1) -> SinkCommitter:
        committer: SinkCommitter = config.committer("s", self.folder / "s", True)
        committer.recover(history_to(last), [])
        return committer

    def put(self, config: Any, *batches: list[Any], last: int = -1) -> None:
        """Commit batches and let them leave."""
        (self.folder / "s").mkdir(exist_ok=True)
        committer = self.opened(config, last)
        for number, outputs in enumerate(batches, last + 1):
            tokens = stage(config, self.folder / "s", number, 1, lambda *_, o=outputs: list(o))
            committer.commit(commit_of(number), tokens)
        committer.close(DRAIN_S)

    def rows(self) -> list[Any]:
        return self.ask("SELECT key, value FROM counts ORDER BY key, value")


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Server | None]:
    if request.param == "sqlite":
        yield None
        return
    with running_server() as started:
        yield started


@pytest.fixture
def database(server: Server | None, tmp_path: Path) -> Database:
    made = Database("sqlite" if server is None else "postgres", tmp_path, server)
    for table in ("counts", "wallaroo_ledger"):
        made.ask(f"DROP TABLE IF EXISTS {table}")
    made.ask("CREATE TABLE counts (key text, value numeric, changes bigint NOT NULL DEFAULT 1)")
    made.ask("CREATE UNIQUE INDEX one ON counts (key)")
    return made


def test_an_output_replaces_the_row_with_its_key(database: Database) -> None:
    config = database.sink(key="key")
    database.put(config, [("a", 1), ("b", 2), ("a", 3)])
    database.put(config, [("b", 4), ("c\t5", 5), Delete("a"), Delete("none")], last=0)
    assert database.rows() == [("b", 4), ("c\t5", 5)]
    database.put(
        config,
        [Delete("b"), ("b", 6), ("c\t5", 7), Delete({"key": "c\t5"})],
        [("d", None), Delete("b")],
        [("b", 8)],
        last=1,
    )
    assert database.rows() == [("b", 8), ("d", None)]


def test_a_key_may_have_several_columns_and_odd_names(database: Database) -> None:
    database.ask('ALTER TABLE counts RENAME value TO "a %s ""part"""')
    database.ask("DROP INDEX one")
    database.ask('CREATE UNIQUE INDEX two ON counts ("a %s ""part""", key)')
    columns = ("key", 'a %s "part"', "changes")
    config = database.sink(columns, key=("key", 'a %s "part"'))
    database.put(config, [("a", 1, 10), ("a", 2, 20), ("b", 1, 30)])
    database.put(config, [("a", 2, 21), Delete(("b", 1)), Delete(("a", 3))], last=0)
    found = database.ask('SELECT key, "a %s ""part""", changes FROM counts ORDER BY 1, 2')
    assert found == [("a", 1, 10), ("a", 2, 21)]


def test_a_table_of_keys_alone_is_a_set(database: Database) -> None:
    config = database.sink(("key",), key="key")
    database.put(config, [("a",), ("b",), ("a",)], [("b",), Delete("a")])
    assert database.rows() == [("b", None)]


def test_keys_that_only_the_database_holds_equal_keep_their_order(database: Database) -> None:
    """Numbers written in two ways are one key: the last change counts."""
    config = database.sink(("value", "key"), key="value")
    database.ask("CREATE UNIQUE INDEX number ON counts (value)")
    database.put(config, [(1, "a"), (1.0, "b"), Delete(1), (2.0, "c"), Delete(1.0), (2, "d")])
    assert database.rows() == [("d", 2)]


@pytest.mark.parametrize("point", ["begin", "inserted", "committed", "left"])
def test_a_killed_driver_makes_each_change_once(
    database: Database, child_of: Callable[..., Forks], point: str
) -> None:
    if database.kind == "sqlite":
        database.ask(COUNT_IN_SQLITE)
        arguments: tuple[Any, ...] = (database.folder / "out.db", database.folder, 3, "key")
    else:
        for statement in COUNT_IN_POSTGRES:
            database.ask(statement)
        assert database.server is not None
        ledger = "wallaroo_ledger"
        arguments = (database.server.dsn, "counts", ledger, database.folder, 3, "key")
    driver = child_of(f"tests.connectors.{database.kind}.child")
    fault = f"{database.kind}.{point}:1"
    assert driver.run(*arguments, WALLAROO_FAULT=fault)[0] == -signal.SIGKILL
    assert driver.run(*arguments)[0] == 0
    found = database.ask("SELECT key, value, changes FROM counts ORDER BY key")
    tasks = 2 if database.kind == "sqlite" else 3
    assert found == [(f"task {task}", 20_003, 3) for task in range(tasks)]


def test_a_table_without_a_unique_index_is_refused_with_the_statement_that_creates_it(
    database: Database, eventually: Eventually
) -> None:
    database.ask("DROP INDEX one")
    config = database.sink(key=("key", "value"))
    words = error_of(database.opened(config), eventually)
    assert "has no unique index on the key (key, value). Create it, then run again: " in words
    assert words.startswith("Sink 's': Table")
    database.ask(words.partition("run again: ")[2].rstrip(";"))
    database.put(config, [("a", 1), Delete(("a", 1))])
    assert database.rows() == []


def test_a_missing_column_or_table_is_an_error_at_the_start(
    database: Database, eventually: Eventually
) -> None:
    database.ask("ALTER TABLE counts RENAME value TO total")
    assert "value" in error_of(database.opened(database.sink(key="key")), eventually)
    database.ask("DROP TABLE counts")
    assert "counts" in error_of(database.opened(database.sink(key="key")), eventually)


def test_an_output_that_is_no_change_is_an_error_of_the_encoder(database: Database) -> None:
    encode = database.sink(key="key").encoder.function
    with pytest.raises(ValueError, match="key column 'key' is None"):
        encode((None, 1))
    with pytest.raises(ValueError, match=r"\('a', 1\).* is not a key of \(key\)"):
        encode(Delete(("a", 1)))
    with pytest.raises(ValueError, match="key column 'key' is None"):
        encode(Delete(None))
    with pytest.raises(TypeError, match="this one returned 1"):
        encode(("a",))
    with pytest.raises(ValueError, match="a Delete needs a sink with key="):
        database.sink().encoder.function(Delete("a"))
    with pytest.raises(WallarooParameterError, match=r"names 'none', which is not a column\."):
        database.sink(key="none")


def test_outputs_are_shown_as_they_are_written(database: Database) -> None:
    config = database.sink(key="key")
    encode = config.encoder.function
    assert config.decoded(encode(("a", None))) == {"key": "a", "value": None}
    assert config.decoded(encode(Delete("a"))) == Delete("a")
