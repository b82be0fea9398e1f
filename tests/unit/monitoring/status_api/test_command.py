"""``wallaroo status`` as it is typed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.unit.checkpoints.inspection.conftest import Book
from tests.unit.monitoring.status_api.conftest import Start
from tests.unit.monitoring.status_api.fakes import (
    COUNTER,
    MOVED,
    RUNNING,
    word_count,
)
from wallaroo.errors import PeerError
from wallaroo.monitoring.status_api.client import ask
from wallaroo.monitoring.status_api.discovery import RunRecord, register
from wallaroo.monitoring.status_api.queries import answer, status_json
from wallaroo.spark.local_cluster.hosts import free_ports
from wallaroo.state.log.layout import OWNERS
from wallaroo.state.log.lease import LEASE, Lease, process_place
from wallaroo.state.log.owners import newest_epoch

Command = Callable[..., tuple[int, str, str]]


def where(server: object) -> str:
    host, port = server.address  # type: ignore[attr-defined]
    return f"{host}:{port}"


@pytest.fixture
def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_one_application_that_runs_here_is_found(start: Start, wallaroo: Command) -> None:
    start()
    code, out, err = wallaroo("status")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].strip() == "Word Count running  1 min 03 s, 61 batches, 2 tasks"


def test_a_person_reads_rates_backlog_latency_workers_and_what_moved(
    start: Start, wallaroo: Command
) -> None:
    start()
    rows = [" ".join(line.split()) for line in wallaroo("status")[1].splitlines()]
    assert "251,400 249,870 1,204 292,000 (14.3 MiB) 912 ms 874 ms" in rows
    assert "Market Data 4.25 ms 8 ms 9.5 ms 9.5 ms 9.51 ms 40" in rows
    assert "worker-1 127.0.0.2 1 3 96 0-95" in rows
    assert "worker-2 127.0.0.3 1 1 32 96-127" in rows
    assert MOVED in rows
    assert "checkpoint /var/lib/spread" in rows


def test_the_dashboards_address_is_the_last_line_without_the_token(
    start: Start, wallaroo: Command
) -> None:
    server = start()
    last = wallaroo("status")[1].splitlines()[-1].strip()
    assert last == f"dashboard {server.dashboard} (`wallaroo status --link`: with its token)"
    assert server.dashboard == f"http://{where(server)}/"


def test_one_worker_is_shown_too(start: Start, wallaroo: Command) -> None:
    start(replace(RUNNING, workers=RUNNING.workers[:1]))
    assert "worker-1" in wallaroo("status")[1]


def test_it_can_be_asked_by_address_and_by_checkpoint(
    book: Book, start: Start, wallaroo: Command
) -> None:
    server = start()
    assert "Word Count running" in wallaroo("status", where(server))[1]
    assert "Word Count running" in wallaroo("status", book.root)[1]


def test_json_is_the_whole_status(start: Start, wallaroo: Command) -> None:
    start()
    code, out, _ = wallaroo("status", "--json")
    assert (code, json.loads(out)) == (0, json.loads(json.dumps(status_json(RUNNING))))


@pytest.mark.parametrize(
    "words", [["partition"], ["partition-query", "--json"], ["--json", "partition"]]
)
def test_a_query_is_answered_in_json(start: Start, wallaroo: Command, words: list[str]) -> None:
    start()
    code, out, _ = wallaroo("status", *words)
    assert (code, json.loads(out)) == (0, answer("partition", word_count(), RUNNING))


def test_where_and_query_may_stand_in_any_order(
    book: Book, start: Start, wallaroo: Command
) -> None:
    start()
    for words in ((book.root, "source-ids"), ("source-ids", book.root)):
        assert json.loads(wallaroo("status", *words)[1]) == {"source_ids": ["Lines"]}


def test_keys_that_are_left_out_are_spoken_of_beside_the_json(
    book: Book, start: Start, wallaroo: Command
) -> None:
    book.write({(COUNTER, word): {"n": 1} for word in ("the", "people", "of")})
    start()
    code, out, err = wallaroo("status", "state-entity", "--limit", 2)
    assert (code, len(json.loads(out)[COUNTER])) == (0, 2)
    assert err == "wallaroo: only 2 keys of a step are shown; --limit N shows more\n"
    assert wallaroo("status", "state-entity", "--limit", 3)[2] == ""


def test_several_applications_are_listed_and_one_has_to_be_named(
    start: Start, tmp_path: Path, wallaroo: Command
) -> None:
    (tmp_path / "second").mkdir()
    first, second = start(), start(root=tmp_path / "second")
    code, out, err = wallaroo("status", "--json")
    assert (code, out) == (2, "")
    assert "2 applications run here. Name one: wallaroo status WHERE" in err
    for server in (first, second):
        assert f"{where(server)}  Word Count" in err
    assert str(tmp_path / "second") in err
    assert wallaroo("status", where(second))[0] == 0


def test_where_nothing_runs_it_says_so(wallaroo: Command) -> None:
    code, out, err = wallaroo("status")
    assert (code, out) == (1, "")
    assert err.startswith("wallaroo: error: no application of this user runs on this machine.")


def test_what_a_killed_run_left_behind_is_ignored_and_removed(
    start: Start, registry: Path, tmp_path: Path, gone: int, wallaroo: Command
) -> None:
    dead = RunRecord(gone, "127.0.0.1:1", "Word Count", 1.0, socket.gethostname(), "")
    register(tmp_path, dead)
    (registry / "1-1.json").write_text("{")
    start()
    assert "Word Count running" in wallaroo("status")[1]
    assert [file.name.split("-")[0] for file in registry.iterdir()] == [str(os.getpid())]


def test_a_process_number_that_went_to_another_process_is_seen_by_the_port(
    registry: Path, tmp_path: Path, wallaroo: Command
) -> None:
    (port,) = free_ports(1)
    register(
        tmp_path,
        RunRecord(os.getpid(), f"127.0.0.1:{port}", "Word Count", 1.0, socket.gethostname(), ""),
    )
    assert wallaroo("status")[0] == 1
    assert list(registry.iterdir()) == []


def test_a_registry_that_belongs_to_everybody_is_not_believed(
    start: Start, registry: Path, wallaroo: Command
) -> None:
    start()
    registry.chmod(0o777)
    assert wallaroo("status")[0] == 1


def test_a_checkpoint_whose_run_was_killed_says_so_in_a_sentence(
    book: Book, gone: int, wallaroo: Command
) -> None:
    register(
        book.root,
        RunRecord(gone, "127.0.0.1:1", "Word Count", 1.0, socket.gethostname(), str(book.root)),
    )
    code, _, err = wallaroo("status", book.root)
    assert code == 1
    assert (
        f"Word Count no longer runs: process {gone}, which used {book.root}, has ended without a "
        f"stop." in err
    )


@pytest.mark.parametrize("has_record", [False, True])
def test_the_run_that_failed_while_it_took_over_is_named_not_the_one_before(
    book: Book, gone: int, wallaroo: Command, has_record: bool
) -> None:
    """The former leader's record stays if the other run failed before it could answer."""
    if has_record:
        words = "127.0.0.1:1", "Word Count", 1.0, socket.gethostname(), str(book.root)
        register(book.root, RunRecord(1, *words))
    lease = Lease(newest_epoch(book.root / OWNERS), f"process {gone} on a", process_place(), gone)
    (book.root / LEASE).write_text(json.dumps(asdict(lease)))
    code, _, err = wallaroo("status", book.root)
    said = f"no application runs on checkpoint {book.root}. The last run, process {gone} on a, did"
    assert (code, said in err) == (1, True), err

    elsewhere = replace(lease, place="elsewhere")
    (book.root / LEASE).write_text(json.dumps(asdict(elsewhere)))
    code, _, err = wallaroo("status", book.root)
    said = f"process {gone} on a leads checkpoint {book.root} and does not answer: it is starting,"
    assert (code, said in err) == (1, True), err


def test_a_checkpoint_that_is_not_in_use_says_so(book: Book, wallaroo: Command) -> None:
    code, _, err = wallaroo("status", book.root)
    assert (code, f"no application runs on checkpoint {book.root}." in err) == (1, True)


def test_a_folder_that_is_no_checkpoint_is_called_so(tmp_path: Path, wallaroo: Command) -> None:
    code, _, err = wallaroo("status", tmp_path)
    assert (code, "is not a checkpoint" in err) == (1, True)


def test_an_address_where_nothing_listens_is_reported(wallaroo: Command) -> None:
    (port,) = free_ports(1)
    code, _, err = wallaroo("status", f"127.0.0.1:{port}")
    assert code == 1
    assert (
        f"no application answers at 127.0.0.1:{port}: Connection refused. It has ended, or "
        f"listens elsewhere." in err
    )


@contextmanager
def stranger(says: bytes) -> Iterator[str]:
    """Something else that listens, and says this to every client; nothing: keeps silent."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(says)
                if not says:
                    connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join(400)


@pytest.mark.parametrize(
    "says",
    [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.0 200 OK\r\n\r\n<html>", b"HTTP/1.0 200 OK\r\n\r\n\xff"],
)
def test_something_else_at_the_address_is_called_so(wallaroo: Command, says: bytes) -> None:
    with stranger(says) as address:
        code, _, err = wallaroo("status", address)
    assert code == 1
    assert f"what answers at {address} is not an application of wallaroo." in err


def test_a_run_that_does_not_answer_is_reported() -> None:
    with stranger(b"") as address:
        host, _, port = address.partition(":")
        with pytest.raises(PeerError, match=r"does not answer within 0\.2 s"):
            ask((host, int(port)), "/status", timeout_s=0.2)


def test_another_version_is_reported_with_the_way_to_read_it_anyway(wallaroo: Command) -> None:
    with stranger(b'HTTP/1.0 200 OK\r\n\r\n{"application": "x"}') as address:
        code, _, err = wallaroo("status", address)
    assert (
        code,
        "runs in another version of wallaroo-spark. `wallaroo status --json` shows its status"
        in err,
    ) == (
        1,
        True,
    )


def test_what_the_application_does_not_know_is_passed_on(
    book: Book, start: Start, wallaroo: Command
) -> None:
    book.write({(COUNTER, "the"): {"n": 1}})
    for delta in (book.root / "deltas").iterdir():
        delta.write_bytes(b"nothing")
    start()
    code, _, err = wallaroo("status", "state-entity-count")
    assert (code, "cannot answer:" in err, "truncated or not a state file" in err) == (
        1,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["weather"],
            "'weather' is neither HOST:PORT, nor a folder, nor a query. Queries: cluster-status, "
            "partition,",
        ),
        (["partition", "source-ids"], "partition and source-ids were given. Give one of them."),
        (
            ["127.0.0.1:1", "127.0.0.1:2"],
            "127.0.0.1:1 and 127.0.0.1:2 were given. Give one of them.",
        ),
    ],
)
def test_words_that_cannot_be_understood_are_an_error_of_the_command_line(
    wallaroo: Command, words: list[str], text: str
) -> None:
    code, _, err = wallaroo("status", *words)
    assert (code, text in err) == (2, True)


@pytest.mark.parametrize("limit", ["0", "100001"])
def test_a_limit_out_of_bounds_is_refused(
    wallaroo: Command, capsys: pytest.CaptureFixture[str], limit: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        wallaroo("status", "state-entity", "--limit", limit)
    assert caught.value.code == 2
    assert f"{limit} is not from 1 to 100000" in capsys.readouterr().err


def test_help_lists_the_queries(wallaroo: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        wallaroo("status", "--help")
    assert "cluster-state-entity-count" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("http", "host", "address"),
    [
        ("127.0.0.1:4000", "", ("127.0.0.1", 4000)),
        ("0.0.0.0:4000", "", ("127.0.0.1", 4000)),
        ("[::1]:4000", "", ("::1", 4000)),
        ("0.0.0.0:4000", "elsewhere.example", ("elsewhere.example", 4000)),
    ],
)
def test_a_run_that_listens_everywhere_is_asked_where_it_runs(
    http: str, host: str, address: tuple[str, int]
) -> None:
    record = RunRecord(0, http, "Word Count", 1.0, host)
    assert record.address == address
    # of another machine it cannot be known
    assert record.is_alive is (host == "elsewhere.example")
