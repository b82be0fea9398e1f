"""Who may ask: Host headers, tokens, open paths."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable

import pytest

from tests.unit.inspection.conftest import Book
from tests.unit.status_api.conftest import Start
from tests.unit.status_api.fakes import get
from wallaroo.errors import PeerError
from wallaroo.status_api.access import TOKEN_VARIABLE, Verdict, access_for

Command = Callable[..., tuple[int, str, str]]


def test_loopback_needs_no_token_and_every_other_address_gets_a_fresh_one() -> None:
    assert access_for("127.0.0.1", 1, "").token == ""
    first, second = access_for("0.0.0.0", 1, "").token, access_for("0.0.0.0", 1, "").token
    assert len(first) >= 32
    assert first != second
    assert access_for("0.0.0.0", 1, "chosen").token == "chosen"


@pytest.mark.parametrize("host", ["[::1", "[", "localhost:x", "localhost:99999999"])
def test_a_host_header_that_cannot_be_read_is_a_bad_request(host: str) -> None:
    assert access_for("127.0.0.1", 1, "").judge("/", "", {"Host": host}) is Verdict.BAD_HOST


@pytest.mark.parametrize(
    ("headers", "query", "verdict"),
    [
        ({}, "", Verdict.NO_TOKEN),
        ({"Authorization": "Bearer secret"}, "", Verdict.ALLOWED),
        ({"Authorization": "bearer  secret"}, "", Verdict.ALLOWED),
        ({"Authorization": "Basic secret"}, "", Verdict.NO_TOKEN),
        ({"Authorization": "Bearer secre"}, "", Verdict.NO_TOKEN),
        ({"Authorization": "Bearer sécret"}, "", Verdict.NO_TOKEN),
        ({"Cookie": "wallaroo-7=secret"}, "", Verdict.ALLOWED),
        ({"Cookie": "wallaroo-8=secret"}, "", Verdict.NO_TOKEN),
        ({}, "secret", Verdict.ALLOWED),
        ({}, "guess", Verdict.NO_TOKEN),
    ],
)
def test_the_token_comes_as_a_header_a_cookie_or_a_parameter(
    headers: dict[str, str], query: str, verdict: Verdict
) -> None:
    assert access_for("0.0.0.0", 7, "secret").judge("/status", query, headers) is verdict


def test_without_the_token_only_health_is_answered(start: Start) -> None:
    server = start(token="secret")
    assert get(server.address, "/status")[0] == 401
    assert get(server.address, "/metrics")[0] == 401
    assert get(server.address, "/readyz")[0] == 200
    assert get(server.address, "/status", token="secret")[0] == 200


def test_a_browsers_token_moves_from_the_address_to_a_cookie(start: Start) -> None:
    server = start(token="secret")
    connection = http.client.HTTPConnection(*server.address, timeout=180)
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
