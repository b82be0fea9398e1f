"""The SQLite sink, on real databases: each row once, also where the driver is killed."""

from __future__ import annotations

import pickle
import re
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.sqlite.child import TASKS, rows_of
from tests.forks import Forks
from tests.unit.sinks.broken import error_of
from tests.unit.sinks.identities import commit_of, history_to
from tests.unit.sinks.killed_driver import stage
from wallaroo.connectors.sql.target_table import Table
from wallaroo.errors import PeerError, WallarooParameterError
from wallaroo.sinks import SinkCommitter, SQLiteSinkConfig

Eventually = Callable[..., None]
DRAIN_S = 400.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with a table ``counts``."""
    made = tmp_path / "out.db"
    ask(made, "CREATE TABLE counts (id INTEGER PRIMARY KEY, key TEXT, value CHECK (value <> -1))")
    return made


def ask(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(query).fetchall()


def rows(path: Path) -> list[tuple[Any, ...]]:
    return ask(path, "SELECT key, value FROM counts ORDER BY id")


def sink(path: Path, **options: Any) -> SQLiteSinkConfig:
    return SQLiteSinkConfig(path, "counts", ("key", "value"), **options)


def opened(config: SQLiteSinkConfig, folder: Path, last: int = -1) -> SinkCommitter:
    committer = config.committer("s", folder, True)
    committer.recover(history_to(last), [])
    return committer


def tokens_of(config: SQLiteSinkConfig, folder: Path, batch: int, *outputs: Any) -> list[Any]:
    folder.mkdir(exist_ok=True)
    return stage(config, folder, batch, 1, lambda *_: list(outputs))


def test_values_are_stored_as_sqlite_has_them(path: Path, tmp_path: Path) -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    values = [1, 2.5, "x", b"y", None, True, moment, Decimal("1.50"), {"a": [1]}]
    config = sink(path)
    committer = opened(config, tmp_path / "s")
    committer.commit(
        commit_of(0), tokens_of(config, tmp_path / "s", 0, *(("k", v) for v in values))
    )
    committer.close(DRAIN_S)
    wanted = [1, 2.5, "x", b"y", None, 1, "2026-01-02T00:00:00+00:00", "1.50", '{"a": [1]}']
    assert rows(path) == [("k", value) for value in wanted]
    assert committer.status().outputs == len(values)


@pytest.mark.parametrize(
    "point", ["sqlite.begin", "sqlite.inserted", "sqlite.committed", "sqlite.left", "commit.after"]
)
def test_a_killed_driver_puts_each_row_once(
    path: Path, tmp_path: Path, child_of: Callable[..., Forks], point: str
) -> None:
    driver = child_of("tests.connectors.sqlite.child")
    arguments = (path, tmp_path, 3)
    assert driver.run(*arguments, WALLAROO_FAULT=f"{point}:1")[0] == -signal.SIGKILL
    assert driver.run(*arguments)[0] == 0
    wanted = [row for batch in range(3) for task in range(TASKS) for row in rows_of(batch, task)]
    assert rows(path) == wanted


def test_a_locked_database_is_waited_for(
    path: Path, tmp_path: Path, eventually: Eventually
) -> None:
    config = sink(path)
    committer = opened(config, tmp_path / "s")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, ("a", 1)))
        words = f"SQLite database {path} (database is locked)"
        eventually(lambda: committer.status().waiting_for == words, "it says so")
    assert committer._silence(7.0) == f"SQLite database {path} (no answer for 7 s)"
    committer.close(DRAIN_S)
    assert rows(path) == [("a", 1)]


def test_batches_that_the_ledger_no_longer_keeps_are_not_written_again(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of waiting output returned after a power cut, without the note of what had left."""
    monkeypatch.setattr(Table, "ledger_batches", 3)
    config = sink(path)
    staging = tmp_path / "s"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        committer = opened(config, staging)
        for batch in range(8):
            committer.commit(commit_of(batch), tokens_of(config, staging, batch, ("a", batch)))
        committer.close(0)
        shutil.copytree(staging, tmp_path / "copy")
    for folder in (staging, tmp_path / "copy"):
        opened(config, folder, 7).close(DRAIN_S)
        assert rows(path) == [("a", batch) for batch in range(8)]
        assert list(folder.glob("pending/*.json")) == []


def test_a_row_that_the_table_does_not_take_ends_the_run_and_is_kept(
    path: Path, tmp_path: Path, eventually: Eventually
) -> None:
    config = sink(path)
    committer = opened(config, tmp_path / "s")
    tokens = tokens_of(config, tmp_path / "s", 0, ("a", 1), ("b", -1))
    committer.commit(commit_of(0), tokens)
    words = error_of(committer, eventually)
    assert "refuses batch 0 for table 'counts' of sink 's': CHECK constraint failed" in words
    assert "Nothing is lost" in words
    assert rows(path) == []
    ask(path, "DROP TABLE counts")
    ask(path, "CREATE TABLE counts (id INTEGER PRIMARY KEY, key TEXT, value)")
    later = config.committer("s", tmp_path / "s", True)
    later.recover(history_to(0), tokens)
    later.close(DRAIN_S)
    assert rows(path) == [("a", 1), ("b", -1)]


def test_output_of_a_checkpoint_that_was_rolled_back_is_refused(
    path: Path, tmp_path: Path, eventually: Eventually
) -> None:
    config = sink(path)
    committer = opened(config, tmp_path / "s")
    committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, ("a", 1)))
    committer.close(DRAIN_S)
    behind = opened(config, tmp_path / "older")
    assert "rolled back or is an older copy" in error_of(behind, eventually)
    assert rows(path) == [("a", 1)]


def test_an_older_copy_of_the_database_is_refused(
    path: Path, tmp_path: Path, eventually: Eventually
) -> None:
    """Rows that had left would be missing; another ledger continues without them."""
    config = sink(path)
    committer = opened(config, tmp_path / "s")
    committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, ("a", 0)))
    committer.close(DRAIN_S)
    copy = path.read_bytes()
    committer = opened(config, tmp_path / "s", 0)
    committer.commit(commit_of(1), tokens_of(config, tmp_path / "s", 1, ("a", 1)))
    committer.close(DRAIN_S)
    path.write_bytes(copy)

    words = "output up to batch 1 has left, and wallaroo_ledger .* records only up to batch 0"
    assert re.search(words, error_of(opened(config, tmp_path / "s", 1), eventually))
    assert rows(path) == [("a", 0)]

    config = sink(path, ledger="another")
    committer = opened(config, tmp_path / "s", 1)
    committer.commit(commit_of(2), tokens_of(config, tmp_path / "s", 2, ("a", 2)))
    committer.close(DRAIN_S)
    assert rows(path) == [("a", 0), ("a", 2)]


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
@pytest.mark.parametrize("is_replaced", [False, True], ids=["removed", "replaced"])
def test_a_database_that_is_gone_while_the_run_writes_ends_it_and_the_batch_waits(
    path: Path, tmp_path: Path, eventually: Eventually, mode: str, is_replaced: bool
) -> None:
    """SQLite writes to the open file all along; the path has another one, or none."""
    ask(path, f"PRAGMA journal_mode = {mode}")
    config = sink(path)
    committer = opened(config, tmp_path / "s")
    committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, ("a", 0)))
    eventually(lambda: committer.status().committed_batch == 0, "it has left")
    ask(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    kept = path.rename(tmp_path / "kept.db")
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    if is_replaced:
        shutil.copyfile(kept, path)

    tokens = tokens_of(config, tmp_path / "s", 1, ("a", 1))
    committer.commit(commit_of(1), tokens)
    assert f"{path} was removed or replaced" in error_of(committer, eventually)

    shutil.copyfile(kept, path)
    again = config.committer("s", tmp_path / "s", True)
    again.recover(history_to(1), tokens)
    again.close(DRAIN_S)
    assert rows(path) == [("a", 0), ("a", 1)]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("DROP TABLE counts", "has no table 'counts'. Create it"),
        ("ALTER TABLE counts RENAME value TO total", "has no column value; it has id, key, total"),
        ("CREATE TABLE wallaroo_ledger (x)", "not a ledger of wallaroo: it has no column sink"),
    ],
)
def test_a_table_that_does_not_fit_is_named(
    path: Path, tmp_path: Path, eventually: Eventually, query: str, words: str
) -> None:
    ask(path, query)
    assert words in error_of(opened(sink(path), tmp_path / "s"), eventually)


def test_a_file_that_is_no_database_ends_the_run(tmp_path: Path, eventually: Eventually) -> None:
    (tmp_path / "text").write_text("a text that is long enough to be no database at all" * 9)
    words = error_of(opened(sink(tmp_path / "text"), tmp_path / "s"), eventually)
    assert "file is not a database" in words


def test_a_file_that_is_not_there_is_named_when_the_sink_is_opened(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"Sink 's': there is no file .*nowhere.db. Create the"):
        sink(tmp_path / "nowhere.db").committer("s", tmp_path / "s", True)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (("a",), r"one value for each column \(key, value\), this one returned 1"),
        ("a", "this one returned 'a'"),
        (("a", object()), "SQLite has no form for"),
        (("a", 2**63), "64 bits"),
    ],
)
def test_an_output_that_is_no_row_is_an_error_of_the_encoder(output: Any, words: str) -> None:
    encoder = sink(Path("x")).encoder
    assert encoder is not None
    with pytest.raises((TypeError, ValueError), match=words):
        encoder.function(output)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": "key"}, "are not names of columns"),
        ({"columns": ()}, "are not names of columns"),
        ({"table": ""}, "table='' is not a name"),
        ({"ledger": ""}, "ledger='' is not a name"),
    ],
)
def test_a_wrong_configuration_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        SQLiteSinkConfig(**{"path": "x", "table": "t", "columns": ("a",), **options})


def test_a_configuration_travels() -> None:
    travelled = pickle.loads(pickle.dumps(sink(Path("x"))))
    assert travelled.label == "sqlite counts"
    assert pickle.loads(travelled.encoder.function(("a", True))) == ("a", 1)
