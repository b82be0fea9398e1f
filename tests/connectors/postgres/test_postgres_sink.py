"""The PostgreSQL sink against a real server: each row exactly once and in order, whatever is killed
and whenever.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.connectors.postgres.child import (
    DRAIN_SECONDS,
    TASKS,
    rows_of,
    stage,
)
from tests.connectors.postgres.server import Server, running_server
from tests.forks import Forks
from tests.unit.sinks.broken import error_of
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.connectors.sql.target_table import Table
from wallaroo.durable.commit_id import CommitHistory, CommitId
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.sinks import PostgresSinkConfig
from wallaroo.sinks.interface import SinkCommitter

ROOT = Path(__file__).parents[3]
BATCHES = 5
FAULTS = (
    *(
        "commit.before:1",
        "commit.after:1",
        "commit.after:3",
        "outbox.target.rename:1",
        "postgres.handed:2",
    ),
    "outbox.target.sync_folder:1",
    "outbox.left.rename:1",
    "outbox.left.published:2",
    *(
        "postgres.begin:1",
        "postgres.begin:4",
        "postgres.inserted:1",
        "postgres.inserted:3",
        "postgres.committed:1",
    ),
    *(
        "postgres.committed:4",
        "postgres.left:2",
        "outbox.pending.write:1",
        "outbox.pending.rename:1",
        "outbox.pending.remove:2",
    ),
)
pytestmark = pytest.mark.postgres
Eventually = Callable[..., None]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


class Place:
    """A table, a ledger and an outbox of one test."""

    def __init__(self, server: Server, child: Forks, folder: Path, name: str):
        self.child = child
        self.server, self.folder, self.table, self.ledger = (
            server,
            folder,
            f"{name}_rows",
            f"{name}_ledger",
        )
        self.staging = folder / "staging"
        self.staging.mkdir()
        self.config = PostgresSinkConfig(
            server.dsn, self.table, ("key", "value"), ledger=self.ledger
        )
        server.ask(
            f"CREATE TABLE {self.table} (id bigint GENERATED ALWAYS AS IDENTITY, key text, value "
            f"bigint)"
        )

    def opened(
        self, history: CommitHistory | int = -1, tokens: list[Any] | None = None
    ) -> SinkCommitter:
        committer = self.config.committer("s", self.staging, True)
        found = history_to(history) if isinstance(history, int) else history
        committer.recover(found, tokens or [])
        return committer

    def staged(self, batch: int) -> list[Any]:
        return stage(self.config, self.staging, batch)

    def rows(self) -> list[tuple[str, int]]:
        return [
            (key, value)
            for key, value in self.server.ask(f"SELECT key, value FROM {self.table} ORDER BY id")
        ]

    def ledger_batches(self) -> list[int]:
        return [
            batch for (batch,) in self.server.ask(f"SELECT batch FROM {self.ledger} ORDER BY batch")
        ]

    def run_child(self, fault: str = "") -> int:
        arguments = (self.server.dsn, self.table, self.ledger, self.folder, BATCHES)
        return self.child.run(*arguments, WALLAROO_FAULT=fault)[0]


@pytest.fixture
def place(
    server: Server,
    child_of: Callable[..., Forks],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Place:
    child = child_of("tests.connectors.postgres.child")
    return Place(server, child, tmp_path, f"t{abs(hash(request.node.nodeid))}")


def expected(batches: int) -> list[tuple[str, int]]:
    return [
        row for batch in range(batches) for task in range(TASKS) for row in rows_of(batch, task)
    ]


def test_batches_arrive_in_order_and_the_outbox_is_empty_afterwards(place: Place) -> None:
    committer = place.opened()
    for batch in range(6):
        committer.commit(commit_of(batch), place.staged(batch))
    committer.commit(commit_of(6), [None, None])
    committer.close(DRAIN_SECONDS)
    assert place.rows() == expected(6)
    status = committer.status()
    assert (status.committed_batch, status.outputs, status.pending_bytes) == (
        6,
        len(expected(6)),
        0,
    )
    assert sorted(status.sent_at_ns) == [0, 1, 2, 3, 4, 5]
    files = sorted(path.name for path in place.staging.rglob("*") if path.is_file())
    assert files == ["left.json", "target.json"]


def test_a_batch_committed_again_puts_nothing(place: Place) -> None:
    tokens = place.staged(0)
    committer = place.opened()
    committer.commit(commit_of(0), tokens)
    committer.commit(commit_of(0), tokens)
    committer.close(DRAIN_SECONDS)
    again = place.opened(0, tokens)
    again.close(DRAIN_SECONDS)
    assert place.rows() == expected(1)
    assert (again.status().committed_batch, again.status().outputs) == (0, 0)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_driver_killed_at_any_point_and_started_again_puts_every_row_once_and_in_order(
    place: Place, fault: str
) -> None:
    assert place.run_child(fault) == -signal.SIGKILL, "the fault point was never passed"
    assert place.run_child() == 0
    assert place.rows() == expected(BATCHES)


def test_a_driver_killed_again_and_again_puts_every_row_once_and_in_order(place: Place) -> None:
    faults = [
        "postgres.inserted:1",
        "postgres.committed:1",
        "postgres.committed:1",
        "postgres.committed:2",
        "postgres.begin:2",
    ]
    assert [place.run_child(fault) for fault in faults] == [-signal.SIGKILL] * len(faults)
    assert place.run_child() == 0
    assert place.rows() == expected(BATCHES)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["in order", "crash"])
def test_a_server_that_restarts_between_batches_costs_nothing_and_repeats_nothing(
    place: Place, how: signal.Signals
) -> None:
    committer = place.opened()
    for batch in range(12):
        committer.commit(commit_of(batch), place.staged(batch))
        if batch == 5:
            place.server.stop(how)
            place.server.start()
    committer.close(DRAIN_SECONDS)
    assert place.rows() == expected(12)


def test_connections_that_break_at_random_moments_lose_and_repeat_nothing(
    place: Place, eventually: Eventually
) -> None:
    committer = place.opened()
    broken = 0
    with psycopg.connect(place.server.dsn, autocommit=True) as other:
        for batch in range(60):
            committer.commit(commit_of(batch), place.staged(batch))
            mine = (
                "datname = 'postgres' AND pid <> pg_backend_pid() AND application_name = 'wallaroo'"
            )
            found = other.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}".encode()
            )
            broken += len(found.fetchall())
    eventually(lambda: committer.status().committed_batch == 59, "all batches are in the table")
    committer.close(DRAIN_SECONDS)
    assert broken >= 1
    assert place.rows() == expected(60)


def test_transactions_that_the_server_ends_for_their_time_are_tried_again(
    place: Place, eventually: Eventually
) -> None:
    limit = "idle_in_transaction_session_timeout"
    with psycopg.connect(place.server.dsn, autocommit=True) as other:
        other.execute(f"ALTER ROLE CURRENT_USER SET {limit} = '1ms'".encode())
        try:
            committer = place.opened()
            for batch in range(20):
                committer.commit(commit_of(batch), place.staged(batch))
            time.sleep(0.5)
        finally:
            other.execute(f"ALTER ROLE CURRENT_USER RESET {limit}".encode())
    eventually(lambda: committer.status().committed_batch == 19, "all batches are in the table")
    committer.close(DRAIN_SECONDS)
    assert place.rows() == expected(20)


def test_while_the_server_is_away_commits_return_and_rows_wait_over_a_restart(
    place: Place, eventually: Eventually
) -> None:
    place.server.stop()
    try:
        committer = place.opened()
        tokens = [place.staged(batch) for batch in range(4)]
        began = time.monotonic()
        for batch in range(4):
            committer.commit(commit_of(batch), tokens[batch])
        assert time.monotonic() - began < 30
        eventually(
            lambda: "Connection refused" in committer.status().waiting_for,
            "the status says what is waited for",
        )
        assert committer.backlog() == committer.status().pending_bytes > 0
        assert committer.status().committed_batch == -1
        committer.close(0)
        again = place.opened(3, tokens[3])  # the checkpoint names its last batch only
        again.commit(commit_of(4), place.staged(4))
    finally:
        place.server.start()
    again.close(DRAIN_SECONDS)
    assert again.status().waiting_for == ""
    assert place.rows() == expected(5)


def test_closing_does_not_wait_for_a_locked_table_and_the_next_run_goes_on(
    place: Place, eventually: Eventually
) -> None:
    committer = place.opened()
    eventually(
        lambda: place.server.ask(f"SELECT to_regclass('{place.ledger}')") != [(None,)],
        "the committer is connected",
    )
    tokens = place.staged(0)
    with psycopg.connect(place.server.dsn) as other:
        other.execute(f"LOCK TABLE {place.table} IN ACCESS EXCLUSIVE MODE".encode())
        committer.commit(commit_of(0), tokens)
        began = time.monotonic()
        committer.close(0.2)
        assert time.monotonic() - began < 30
    # the server may have gone on with what it was asked for before
    assert place.rows() in ([], expected(1))
    place.opened(0, tokens).close(DRAIN_SECONDS)
    assert place.rows() == expected(1)


def test_a_fresh_checkpoint_begins_at_batch_0_again_and_its_rows_come_too(place: Place) -> None:
    for checkpoint in ("a" * 32, "b" * 32):
        committer = place.opened(history_to(checkpoint=checkpoint))
        committer.commit(commit_of(0, checkpoint=checkpoint), place.staged(0))
        committer.close(DRAIN_SECONDS)
        shutil.rmtree(place.staging)
        place.staging.mkdir()
    assert place.rows() == expected(1) * 2


def test_aborted_and_forgotten_output_never_comes_and_leaves_no_file(place: Place) -> None:
    committer = place.opened()
    committer.abort(1, place.staged(1))
    place.staged(4)  # of a driver that died
    committer.close(DRAIN_SECONDS)
    place.opened().close(DRAIN_SECONDS)
    assert place.rows() == []
    assert list(place.staging.glob("*.out")) == []


def test_the_ledger_keeps_the_last_batches_only(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Table, "ledger_batches", 3)
    committer = place.opened()
    for batch in range(8):
        committer.commit(commit_of(batch), place.staged(batch))
    committer.close(DRAIN_SECONDS)
    assert place.ledger_batches() == [5, 6, 7]


@contextlib.contextmanager
def unsent(place: Place, batches: int) -> Iterator[None]:
    """Stop the server, so that the output of batches waits, and start it again."""
    place.server.stop()
    try:
        committer = place.opened()
        for batch in range(batches):
            committer.commit(commit_of(batch), place.staged(batch))
        committer.close(0)
        yield
    finally:
        place.server.start()


def test_batches_that_the_ledger_no_longer_keeps_are_not_written_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of waiting output returned after a power cut, without the note of what had left."""
    monkeypatch.setattr(Table, "ledger_batches", 3)
    with unsent(place, 8):
        shutil.copytree(place.staging, place.folder / "copy")
    for staging in (place.staging, place.folder / "copy"):
        place.staging = staging
        place.opened(7).close(DRAIN_SECONDS)
        assert place.rows() == expected(8)
        assert list(staging.glob("pending/*.json")) == []


def test_a_missing_table_ends_the_run_with_the_fix(
    server: Server, tmp_path: Path, eventually: Eventually
) -> None:
    committer = PostgresSinkConfig(server.dsn, "nowhere", ("a",)).committer("s", tmp_path, True)
    committer.recover(history_to(), [])
    eventually(lambda: "nowhere" in committer.status().waiting_for, "the error is known")
    with pytest.raises(
        PeerError,
        match=(
            r'refuses rows for table nowhere: relation "nowhere" does not exist.*Change the '
            r"table"
        ),
    ):
        committer.backlog()
    with pytest.raises(PeerError, match="nowhere"):
        committer.close(0)


def test_a_row_the_table_refuses_ends_the_run_and_comes_when_the_table_takes_it(
    place: Place,
) -> None:
    place.server.ask(f"ALTER TABLE {place.table} ADD CHECK (value < 10000)")
    committer = place.opened()
    committer.commit(commit_of(0), place.staged(0))
    tokens = place.staged(1)
    committer.commit(commit_of(1), tokens)
    with pytest.raises(
        PeerError,
        match=f"refuses batch 1 for table {place.table}.*violates check.*line 1.*Nothing is lost",
    ):
        committer.close(DRAIN_SECONDS)
    with pytest.raises(PeerError, match="violates check"):
        committer.commit(commit_of(2), [])
    assert place.rows() == expected(1)
    place.server.ask(f"ALTER TABLE {place.table} DROP CONSTRAINT {place.table}_value_check")
    place.opened(1, tokens).close(DRAIN_SECONDS)
    assert place.rows() == expected(2)


def test_a_checkpoint_that_was_set_back_is_refused(place: Place) -> None:
    first = place.staged(0)
    committer = place.opened()
    committer.commit(commit_of(0), first)
    committer.commit(commit_of(1), place.staged(1))
    committer.close(DRAIN_SECONDS)
    again = place.opened(0, first)
    with pytest.raises(
        CheckpointError, match="output of batch 1 from a commit that its checkpoint, which ends"
    ):
        again.close(DRAIN_SECONDS)
    assert place.rows() == expected(2)


def test_a_server_that_returns_without_rows_that_had_left_ends_the_run(
    place: Place, tmp_path: Path, eventually: Eventually
) -> None:
    """It was restored from an older copy while the run went on."""
    committer = place.opened()
    committer.commit(commit_of(0), place.staged(0))
    eventually(lambda: place.rows() == expected(1), "the first batch leaves")
    cluster = place.server.folder / "cluster"
    place.server.stop()
    subprocess.run(["cp", "-a", cluster, tmp_path / "copy"], check=True)
    place.server.start()
    committer.commit(commit_of(1), place.staged(1))
    eventually(lambda: not committer.backlog(), "the second batch leaves")
    place.server.stop()
    shutil.rmtree(cluster)
    subprocess.run(["cp", "-a", tmp_path / "copy", cluster], check=True)
    place.server.start()
    committer.commit(commit_of(2), place.staged(2))
    words = f"output up to batch 1 has left, and {place.ledger} at .* only up to batch 0"
    assert re.search(words, error_of(committer, eventually))
    assert place.rows() == expected(1)


def test_a_batch_whose_number_was_used_before_a_rollback_is_refused(place: Place) -> None:
    """The commit was removed by hand and made again, as another one."""
    committer = place.opened()
    committer.commit(commit_of(0), place.staged(0))
    committer.close(DRAIN_SECONDS)
    again = place.opened()
    with pytest.raises(CheckpointError, match="batch 0 from a commit that its checkpoint"):
        _commit_and_close(again, commit_of(0, "b"), place.staged(0))
    other = place.opened(history_to(0, "b"), place.staged(0))
    with pytest.raises(CheckpointError, match="batch 0 from a commit that its checkpoint"):
        other.close(DRAIN_SECONDS)
    assert place.rows() == expected(1)


def test_pending_rows_of_a_commit_that_was_rolled_back_are_refused(place: Place) -> None:
    with (
        unsent(place, 3),
        pytest.raises(CheckpointError, match="batch 2 from a commit that its checkpoint"),
    ):
        place.opened(1, [])
    assert len(list((place.staging / "pending").glob("*.json"))) == 3


def test_rows_that_left_are_not_put_again_into_another_ledger(place: Place) -> None:
    """The sink was moved to another table after its last batch had left."""
    tokens = place.staged(0)
    committer = place.opened()
    committer.commit(commit_of(0), tokens)
    committer.close(DRAIN_SECONDS)
    place.config = replace(place.config, ledger=f"{place.ledger}_2")
    place.opened(0, tokens).close(DRAIN_SECONDS)
    assert place.rows() == expected(1)


def test_a_ledger_of_an_earlier_version_is_refused(place: Place, eventually: Eventually) -> None:
    place.server.ask(
        f"CREATE TABLE {place.ledger} (sink text, lineage text, batch bigint, row_count bigint)"
    )
    committer = place.opened()
    eventually(lambda: committer.status().waiting_for, "the error is known")
    with pytest.raises(CheckpointError, match=f"earlier version.*ledger='{place.ledger}_2'"):
        committer.close(0)


def test_a_table_that_is_no_ledger_is_refused(place: Place, eventually: Eventually) -> None:
    place.server.ask(f"CREATE TABLE {place.ledger} (sink text, batch bigint)")
    committer = place.opened()
    eventually(lambda: committer.status().waiting_for, "the error is known")
    with pytest.raises(PeerError, match="no column checkpoint, commit_id, row_count, crc"):
        committer.close(0)


def _commit_and_close(committer: SinkCommitter, commit: CommitId, tokens: list[Any]) -> None:
    committer.commit(commit, tokens)
    committer.close(DRAIN_SECONDS)


def test_a_second_run_on_a_copy_of_the_checkpoint_is_noticed(
    place: Place, tmp_path: Path, eventually: Eventually
) -> None:
    committer = place.opened()
    shutil.copytree(place.staging, tmp_path / "copy")
    copied = place.config.committer("s", tmp_path / "copy", True)
    copied.recover(history_to(), [])
    eventually(
        lambda: place.server.ask(f"SELECT to_regclass('{place.ledger}')") != [(None,)],
        "one is connected",
    )
    committer.commit(commit_of(0), place.staged(0))
    committer.close(DRAIN_SECONDS)
    with pytest.raises(
        CheckpointError, match=r"rows of another commit 0 of sink 's'|batch 0 from a commit"
    ):
        _commit_and_close(copied, commit_of(0, "b"), stage(place.config, tmp_path / "copy", 1))
    assert place.rows() == expected(1)


def test_an_outbox_that_was_removed_is_refused(place: Place) -> None:
    tokens = place.staged(0)
    with pytest.raises(CheckpointError, match=r"target\.json is missing.*backup"):
        place.opened(0, tokens)


def test_a_damaged_staged_file_ends_the_run_and_nothing_of_its_batch_is_put(place: Place) -> None:
    place.opened().close(0)
    tokens = place.staged(1)
    (place.staging / tokens[2]["file"]).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="Staged output"):
        place.opened(1, tokens).close(DRAIN_SECONDS)
    assert (place.rows(), place.ledger_batches()) == ([], [])


def test_a_dsn_that_cannot_be_read_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"cannot be read.*Write it as"):
        PostgresSinkConfig("host", "t", ("a",)).committer("s", tmp_path, True)


def test_without_psycopg_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in ("committer", "table"):
        monkeypatch.delitem(sys.modules, f"wallaroo.connectors.sql.postgres.{name}", raising=False)
    with pytest.raises(PeerError, match=r"pip install 'psycopg\[binary\]'"):
        PostgresSinkConfig("", "t", ("a",)).committer("s", tmp_path, True)
