"""The status server over real connections."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.unit.checkpoints.inspection.conftest import Book
from tests.unit.monitoring.status_api.conftest import Start
from tests.unit.monitoring.status_api.fakes import (
    COUNTER,
    RUNNING,
    FakeRun,
    get,
    word_count,
)
from wallaroo.errors import PeerError
from wallaroo.monitoring.status_api.entities import EntityReader
from wallaroo.monitoring.status_api.http import CONNECTIONS_MAX, REQUESTS_MAX
from wallaroo.monitoring.status_api.queries import (
    QUERIES,
    TRUNCATED,
    answer,
    status_json,
)
from wallaroo.monitoring.status_api.server import StatusServer


def counted(book: Book) -> None:
    book.write(
        {(COUNTER, "the"): {"n": 1}, (COUNTER, b"\x00raw"): {"n": 1}, (COUNTER, -7): {"n": 1}}
    )
    book.write({(COUNTER, "the"): {"n": 2}})


def test_the_root_lists_every_path(start: Start) -> None:
    code, body, headers = get(start().address, "/")
    assert (code, headers["Content-Type"]) == (200, "application/json")
    assert body["application"] == "Word Count"
    assert {"/", "/status", "/metrics", *(f"/{query}" for query in QUERIES)} <= set(body["paths"])


def test_status_is_the_whole_status_as_it_is_now(book: Book) -> None:
    run = FakeRun(word_count(), book.root)
    server = StatusServer(run)
    server.start()
    try:
        assert get(server.address, "/status")[1] == json.loads(json.dumps(status_json(RUNNING)))
        run.now = replace(RUNNING, batches=62)
        assert get(server.address, "/status")[1]["batches"] == 62
    finally:
        server.close()


@pytest.mark.parametrize(
    "path", ["/partition", "/partition-query", "/partition/", "/partition?x=1"]
)
def test_a_query_is_answered_under_both_names(start: Start, path: str) -> None:
    assert get(start().address, path)[:2] == (200, answer("partition", word_count(), RUNNING))


def test_state_entities_are_listed_as_text_numbers_and_written_bytes(
    book: Book, start: Start
) -> None:
    counted(book)
    code, body, headers = get(start().address, "/state-entity")
    assert (code, list(body)) == (200, [COUNTER])
    assert sorted(body[COUNTER], key=str) == [-7, r"b'\x00raw'", "the"]
    assert TRUNCATED not in headers


@pytest.mark.parametrize("query", ["state-entity-count", "cluster-state-entity-count-query"])
def test_state_entities_are_counted(book: Book, start: Start, query: str) -> None:
    counted(book)
    assert get(start().address, f"/{query}")[:2] == (200, {COUNTER: 3})


def test_a_limit_cuts_the_list_and_a_header_says_so(book: Book, start: Start) -> None:
    counted(book)
    address = start().address
    _, body, headers = get(address, "/state-entity?limit=2")
    assert (len(body[COUNTER]), headers[TRUNCATED]) == (2, "true")
    _, body, headers = get(address, "/state-entity?limit=3")
    assert (len(body[COUNTER]), headers.get(TRUNCATED)) == (3, None)


def test_before_the_first_commit_there_are_no_entities(start: Start) -> None:
    address = start().address
    assert get(address, "/state-entity")[1] == {COUNTER: []}
    assert get(address, "/state-entity-count")[1] == {COUNTER: 0}


@pytest.mark.parametrize("limit", ["0", "-1", "x", "100001", "000000001999999999", "²", "9" * 5000])
def test_a_limit_that_is_no_number_in_bounds_is_refused(start: Start, limit: str) -> None:
    code, body, _ = get(start().address, f"/state-entity?limit={quote(limit)}")
    assert code == 400
    assert "from 1 to 100000" in body["error"]


def test_a_damaged_checkpoint_is_reported_to_the_client(book: Book, start: Start) -> None:
    counted(book)
    for delta in (book.root / "deltas").iterdir():
        delta.write_bytes(b"nothing")
    code, body, _ = get(start().address, "/state-entity-count")
    assert code == 503
    assert "truncated or not a state file" in body["error"]


def test_an_unknown_path_is_not_found_and_lists_the_paths(start: Start) -> None:
    code, body, _ = get(start().address, "/weather")
    assert code == 404
    assert "/partition" in body["paths"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"])
def test_nothing_but_get_is_allowed(start: Start, method: str) -> None:
    code, _, headers = get(start().address, "/status", method=method)
    assert (code, headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("localhost", 200),
        ("127.0.0.1", 200),
        ("evil.example", 403),
        ("[", 400),
        ("[::1", 400),
        ("localhost:x", 400),
    ],
)
def test_a_server_on_loopback_answers_loopback_names_only(
    start: Start, name: str, code: int
) -> None:
    address = start().address
    assert get(address, "/source-ids", host=f"{name}:{address[1]}")[0] == code


def test_an_error_of_the_run_is_reported_to_the_client(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start()

    def broken(run: FakeRun) -> Any:
        raise ZeroDivisionError("rates")

    monkeypatch.setattr(FakeRun, "status", broken)
    assert get(server.address, "/status")[:2] == (500, {"error": "ZeroDivisionError: rates"})


def test_nonsense_is_refused_in_json(start: Start) -> None:
    with socket.create_connection(start().address, 10) as connection:
        connection.sendall(b"\x00\x01\x02 what\r\n\r\n")
        said = b"".join(iter(lambda: connection.recv(4096), b""))
    assert json.loads(said.partition(b"\r\n\r\n")[2] or said)["error"].startswith("Bad")


def test_clients_that_say_nothing_keep_none_out_and_the_oldest_are_closed(start: Start) -> None:
    address = start().address
    silent = [socket.create_connection(address, 180) for _ in range(3 * CONNECTIONS_MAX)]
    assert get(address, "/status")[0] == 200
    assert silent[0].recv(1) == b""
    silent[-1].sendall(b"GET /readyz HTTP/1.0\r\n\r\n")  # the newest may still ask
    assert silent[-1].recv(4096).startswith(b"HTTP/1.0 200")
    for connection in silent:
        connection.close()


def test_a_request_that_trickles_in_is_cut_off_as_a_whole(start: Start, eventually: Any) -> None:
    with socket.create_connection(start(request_s=1.0).address, 180) as slow:
        slow.sendall(b"GET /status HTTP/1.0\r\nX: ")
        slow.setblocking(False)

        def is_cut_off() -> bool:
            try:
                slow.sendall(b"y")  # never silent for long, and no limit of headers is reached
                return slow.recv(1) == b""
            except BlockingIOError:
                return False
            except OSError:
                return True

        eventually(is_cut_off, "the request's time is over")


def test_health_is_answered_while_as_many_requests_are_under_way_as_may_be(
    start: Start, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    server = start()
    release = threading.Event()
    waiting: list[int] = []

    def read(*_: Any) -> Any:
        waiting.append(1)
        release.wait()
        raise PeerError("nothing was read")

    monkeypatch.setattr(EntityReader, "read", read)
    asking = [
        threading.Thread(target=lambda: get(server.address, "/state-entity"))
        for _ in range(REQUESTS_MAX)
    ]
    for thread in asking:
        thread.start()
    eventually(lambda: len(waiting) == REQUESTS_MAX, "all requests are under way")
    assert get(server.address, "/readyz")[0] == 200
    assert get(server.address, "/healthz", token="")[0] in (200, 503)  # what it says of the run
    code, body, _ = get(server.address, "/status")
    assert (code, body["error"]) == (503, "32 requests are under way. Ask again.")
    release.set()
    for thread in asking:
        thread.join()


def test_many_can_ask_at_once(book: Book, start: Start) -> None:
    counted(book)
    address = start().address
    codes: list[int] = []
    threads = [
        threading.Thread(target=lambda path=path: codes.append(get(address, path)[0]))
        for path in ("/status", "/state-entity", "/state-entity-count", "/partition") * 2
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [200] * 8


def test_a_run_says_where_it_answers_until_it_is_closed(
    book: Book, start: Start, registry: Path
) -> None:
    server = start()
    file = book.root / "run.json"
    said = json.loads(file.read_text())
    assert (said["pid"], said["http"], said["application"]) == (
        os.getpid(),
        f"127.0.0.1:{server.address[1]}",
        "Word Count",
    )
    assert said["started_at"] == RUNNING.started_at
    (registered,) = registry.iterdir()
    for one in (file, registered):
        assert stat.S_IMODE(one.stat().st_mode) == 0o600
    assert stat.S_IMODE(registry.stat().st_mode) == 0o700
    server.close()
    server.close()
    assert not file.exists()
    assert list(registry.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        get(server.address, "/")


def test_a_run_without_a_users_folder_of_its_own_runs_on(
    start: Start, registry: Path, tmp_path: Path
) -> None:
    registry.mkdir(mode=0o777)
    registry.chmod(0o777)
    assert get(start().address, "/")[0] == 200
    assert list(registry.iterdir()) == []


def test_a_taken_port_is_reported_with_a_fix(book: Book, start: Start) -> None:
    port = start().address[1]
    with pytest.raises(
        PeerError, match=rf"cannot listen on 127\.0\.0\.1:{port}: .* Choose another port"
    ):
        start(port=port)


@pytest.mark.parametrize("host", ["0.0.0.0", "localhost"])
def test_it_listens_where_it_is_configured(start: Start, host: str) -> None:
    server = start(host=host)
    assert server.address[0] == host
    called = "any.example" if host == "0.0.0.0" else "localhost"
    address = "127.0.0.1", server.address[1]
    assert get(address, "/source-ids", host=called, token=server.token)[0] == 200


def test_a_checkpoint_that_cannot_be_written_is_reported_and_nothing_listens(
    tmp_path: Path,
) -> None:
    server = StatusServer(FakeRun(word_count(), tmp_path / "missing"))
    with pytest.raises(PeerError, match=r"run\.json cannot be written"):
        server.start()
    with pytest.raises(ConnectionRefusedError):
        get(server.address, "/")


def test_closing_ends_a_reading_of_state_that_is_under_way(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    begun, endless = tmp_path / "begun", tmp_path / "endless"
    endless.write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 60\n")
    endless.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(endless))
    server = start()
    seen: list[tuple[int, Any]] = []
    asking = threading.Thread(target=lambda: seen.append(get(server.address, "/state-entity")[:2]))
    asking.start()
    eventually(begun.exists, "the reading has begun")
    server.close()
    asking.join(400)
    assert seen == [(503, {"error": "the run is ending."})]


def test_a_key_that_is_asked_for_is_on_no_command_line(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of the machine reads those of all processes."""
    arguments = tmp_path / "arguments"
    shown = tmp_path / "shown"
    configuration = "/proc/self/fd/$WALLAROO_CONFIGURATION"
    shown.write_text(f'#!/bin/sh\necho "$@" > {arguments}\ncat {configuration} >&2\n')
    shown.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(shown))
    _, body, _ = get(start().address, "/state-object?key=personal")
    assert "personal" in body["error"]  # what the process read
    assert "entities" in arguments.read_text()
    assert "personal" not in arguments.read_text()


def test_a_reading_that_is_killed_is_reported_to_the_client(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(killed))
    assert get(start().address, "/state-entity")[:2] == (
        503,
        {"error": "the state could not be read: it was killed."},
    )


def test_a_reading_that_takes_too_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = tmp_path / "endless"
    endless.write_text("#!/bin/sh\nexec sleep 60\n")
    endless.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(endless))
    with pytest.raises(PeerError, match="could not be read within"):
        EntityReader(tmp_path, [], read_s=0.2).read("state-entity", 1)
