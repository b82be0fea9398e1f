"""Who may ask: Host headers, tokens, open paths."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.unit.checkpoints.inspection.conftest import Book
from tests.unit.monitoring.status_api.conftest import Start
from tests.unit.monitoring.status_api.fakes import get
from wallaroo.errors import PeerError
from wallaroo.monitoring.status_api.access import TOKEN_VARIABLE, Admission, access_for

Command = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_every_run_gets_a_fresh_token(host: str) -> None:
    first, second = access_for(host, 1, "").token, access_for(host, 1, "").token
    assert len(first) >= 32
    assert first != second
    assert access_for(host, 1, "chosen").token == "chosen"


@pytest.mark.parametrize("host", ["[::1", "[", "localhost:x", "localhost:99999999"])
def test_a_host_header_that_cannot_be_read_is_a_bad_request(host: str) -> None:
    assert access_for("127.0.0.1", 1, "").judge("/", "", {"Host": host}) is Admission.BAD_HOST


@pytest.mark.parametrize(
    ("headers", "query", "verdict"),
    [
        ({}, "", Admission.NO_TOKEN),
        ({"Authorization": "Bearer secret"}, "", Admission.ALLOWED),
        ({"Authorization": "bearer  secret"}, "", Admission.ALLOWED),
        ({"Authorization": "Basic secret"}, "", Admission.NO_TOKEN),
        ({"Authorization": "Bearer secre"}, "", Admission.NO_TOKEN),
        ({"Authorization": "Bearer sécret"}, "", Admission.NO_TOKEN),
        ({"Cookie": "wallaroo-7=secret"}, "", Admission.ALLOWED),
        ({"Cookie": "wallaroo-8=secret"}, "", Admission.NO_TOKEN),
        ({}, "secret", Admission.ALLOWED),
        ({}, "guess", Admission.NO_TOKEN),
    ],
)
def test_the_token_comes_as_a_header_a_cookie_or_a_parameter(
    headers: dict[str, str], query: str, verdict: Admission
) -> None:
    assert access_for("0.0.0.0", 7, "secret").judge("/status", query, headers) is verdict


def test_without_the_token_only_health_is_answered(start: Start) -> None:
    server = start(token="secret")
    assert get(server.address, "/status", token="")[0] == 401
    assert get(server.address, "/metrics", token="")[0] == 401
    assert get(server.address, "/readyz", token="")[0] == 200
    assert get(server.address, "/status", token="secret")[0] == 200


FIGURES = ("/", "/status", "/graph", "/history", "/source-ids", "/partition-query")
PRIVATE = (
    "/details",
    "/errors",
    "/stream",
    "/ui/index.html",
    "/state-entity",
    "/state-entity-query",
    "/state-entity-count",
    "/state-search?text=the",
    "/state-object?key=the",
)


def test_on_loopback_figures_are_open_and_keys_state_and_events_ask_for_the_token(
    start: Start,
) -> None:
    address = start().address
    assert [get(address, path, token="")[0] for path in FIGURES] == [200] * len(FIGURES)
    for token in ("", "guess"):
        codes = [get(address, path, token=token)[0] for path in PRIVATE]
        assert codes == [401] * len(PRIVATE)
    assert get(address, "/state-search?text=the")[0] == 200  # with what the private file says


_AS_ANOTHER = """
import os, sys, http.client, encodings.idna, encodings.latin_1
os.setgid(65534)
os.setuid(65534)
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=400)
for path in sys.argv[3:]:
    connection.request("GET", path)
    reply = connection.getresponse()
    reply.read()
    print(reply.status)
try:
    open(sys.argv[2])
except PermissionError:
    print("private")
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_of_the_host_reads_no_state_and_finds_no_token(
    book: Book, start: Start
) -> None:
    port = str(start().address[1])
    paths = ["/readyz", *PRIVATE]
    command = [sys.executable, "-c", _AS_ANOTHER, port, str(book.root / "run.json"), *paths]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert said == ["200", *["401"] * len(PRIVATE), "private"]


def test_the_dashboards_link_has_the_token_and_a_browser_without_it_learns_where_it_is(
    start: Start, wallaroo: Command
) -> None:
    server = start()
    code, link, _ = wallaroo("status", "--link")
    assert (code, link) == (
        0,
        f"http://127.0.0.1:{server.address[1]}/?token={server.token}\n",
    )
    connection = http.client.HTTPConnection(*server.address, timeout=400)
    connection.request("GET", "/", headers={"Accept": "text/html"})
    reply = connection.getresponse()
    assert reply.status == 401
    assert b"wallaroo status --link" in reply.read()
    connection.close()


def test_a_browsers_token_moves_from_the_address_to_a_cookie(start: Start) -> None:
    server = start(token="secret")
    connection = http.client.HTTPConnection(*server.address, timeout=400)
    connection.request("GET", "/?token=secret", headers={"Accept": "text/html"})
    reply = connection.getresponse()
    cookie = str(reply.headers["Set-Cookie"])
    assert (reply.status, reply.headers["Location"]) == (303, "/")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    connection.close()
    connection.request("GET", "/status", headers={"Cookie": cookie.split(";")[0]})
    assert connection.getresponse().status == 200
    connection.close()


def test_wallaroo_status_finds_the_token_of_a_run_on_this_machine(
    book: Book, start: Start, wallaroo: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(token="secret")
    assert wallaroo("status", book.root)[0] == 0
    assert wallaroo("status")[0] == 0
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    assert wallaroo("status", f"127.0.0.1:{server.address[1]}")[0] == 0
    assert json.loads((book.root / "run.json").read_text())["token"] == "secret"


def test_a_token_that_cannot_be_a_cookie_is_refused_with_a_fix(start: Start) -> None:
    with pytest.raises(PeerError, match="Use letters, digits"):
        start(token="a;b")
