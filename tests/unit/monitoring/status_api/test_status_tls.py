"""The status server over TLS, asked by clients that check its certificate."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.checkpoints.inspection.conftest import Book
from tests.unit.ingress.test_tls import make_certificate
from tests.unit.monitoring.status_api.conftest import Start
from tests.unit.monitoring.status_api.fakes import get
from wallaroo.cli.main import main
from wallaroo.errors import PeerError
from wallaroo.monitoring.status_api.client import ask
from wallaroo.network.tls import TLS

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def server_tls(tmp_path_factory: pytest.TempPathFactory) -> TLS:
    return make_certificate(tmp_path_factory.mktemp("tls"), "server")


def https(address: tuple[str, int], ca: TLS, own: TLS | None = None) -> http.client.HTTPSConnection:
    """A client that trusts one certificate only, and knows nothing of ours."""
    context = ssl.create_default_context(cafile=ca.certificate)
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return http.client.HTTPSConnection(*address, timeout=400, context=context)


def test_it_answers_a_client_that_checks_the_certificate_and_no_plain_one(
    start: Start, server_tls: TLS
) -> None:
    address = start(tls=server_tls).address
    client = https(address, server_tls)
    client.request("GET", "/readyz")
    assert client.getresponse().status == 200
    client.close()
    with pytest.raises((http.client.HTTPException, OSError)):
        get(address, "/readyz")


def test_wallaroo_status_trusts_the_certificate_of_a_run_that_it_finds(
    book: Book, start: Start, server_tls: TLS, wallaroo: Command
) -> None:
    port = start(tls=server_tls, token="secret").address[1]
    for words in ((), (book.root,), (f"127.0.0.1:{port}",), (f"https://127.0.0.1:{port}",)):
        assert "Word Count running" in wallaroo("status", *words)[1]


def test_a_certificate_that_is_not_trusted_is_refused_with_a_fix(
    start: Start, server_tls: TLS
) -> None:
    address = start(tls=server_tls).address
    with pytest.raises(PeerError, match=r"is not trusted: .*SSL_CERT_FILE"):
        ask(address, "/status", context=ssl.create_default_context())


def test_a_client_that_speaks_the_other_protocol_learns_it(start: Start, server_tls: TLS) -> None:
    plain = start().address
    with pytest.raises(PeerError, match="Ask without https://"):
        ask(plain, "/status", context=ssl.create_default_context())
    encrypted = start(tls=server_tls).address
    with pytest.raises(PeerError, match="https://"):
        ask(encrypted, "/status")


def test_a_client_that_never_shakes_hands_delays_no_other_one(
    start: Start, server_tls: TLS
) -> None:
    address = start(tls=server_tls).address
    with socket.create_connection(address, 10):
        client = https(address, server_tls)
        client.request("GET", "/readyz")
        assert client.getresponse().status == 200
        client.close()


def test_only_clients_with_a_certificate_are_answered_where_one_is_asked_for(
    start: Start, server_tls: TLS, tmp_path: Path
) -> None:
    own = make_certificate(tmp_path, "client")
    asking = TLS(server_tls.certificate, server_tls.key, ca=own.certificate)
    address = start(tls=asking).address
    client = https(address, server_tls, own)
    client.request("GET", "/readyz")
    assert client.getresponse().status == 200
    client.close()
    with pytest.raises(PeerError):
        ask(address, "/readyz", context=ssl.create_default_context(cafile=server_tls.certificate))


def test_a_browsers_cookie_is_never_sent_unencrypted(start: Start, server_tls: TLS) -> None:
    address = start(tls=server_tls, token="secret").address
    client = https(address, server_tls)
    client.request("GET", "/?token=secret", headers={"Accept": "text/html"})
    assert "; Secure" in str(client.getresponse().headers["Set-Cookie"])
    client.close()


def test_a_missing_file_is_named(start: Start, book: Book) -> None:
    with pytest.raises(PeerError, match=r"gone\.pem is not a file"):
        start(tls=TLS("gone.pem", "gone.key"))
    assert not (book.root / "run.json").exists()


def test_certificate_and_key_belong_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    application = ["tests.verification.applications.sequence"]
    ends = ["--in", "Sequence@127.0.0.1:0", "--out", "127.0.0.1:1"]
    assert main(["run", "--status-cert", "server.pem", *application, *ends]) != 0
    assert "--status-cert and --status-key belong together" in capsys.readouterr().err


def test_what_leads_to_the_run_holds_its_certificate_and_not_its_key(
    book: Book, start: Start, server_tls: TLS
) -> None:
    start(tls=server_tls)
    said = json.loads((book.root / "run.json").read_text())
    assert said["certificate"] == Path(server_tls.certificate).read_text()
    assert "PRIVATE KEY" not in json.dumps(said)
