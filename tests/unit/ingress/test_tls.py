"""TLS: sources whose clients encrypt, and ranges that cross the network encrypted."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.ingress.conftest import Running, tcp, wait_until
from wallaroo.errors import PeerError
from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import TlsSocket, server_context
from wallaroo.spool import Boundary, SpoolReader, folder_of
from wallaroo.spool.remote.client import RemoteSpool
from wallaroo.spool.writer import SpoolWriter


def make_certificate(folder: Path, name: str) -> TLS:
    """A self-signed certificate for 127.0.0.1."""
    certificate, key = str(folder / f"{name}.pem"), str(folder / f"{name}.key")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    return TLS(certificate, key)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> TLS:
    return make_certificate(tmp_path_factory.mktemp("tls"), "server")


def context_for(server: TLS, own: TLS | None = None) -> ssl.SSLContext:
    """What an independent client trusts and shows."""
    context = ssl.create_default_context(cafile=server.certificate)
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return context


@contextlib.contextmanager
def connected(running: Running, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    with running.connect() as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted:
            yield encrypted


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def test_frames_of_any_size_arrive_decrypted_and_in_order(running: Running, server: TLS) -> None:
    running.start(tcp(tls=server, max_size=1 << 20))
    payloads = [bytes([65 + number % 26]) * (number * 977 % 300_000) for number in range(60)]

    with connected(running, context_for(server)) as client:
        for payload in payloads:
            client.sendall(frame(payload))
        found = running.source(framing=tcp(max_size=1 << 20).wire_framing).wait_for(len(payloads))

    assert found == payloads


def test_a_line_of_an_orderly_end_counts_and_one_that_was_cut_off_does_not(
    running: Running, server: TLS
) -> None:
    running.start(tcp(tls=server, framing="lines"))
    framing = tcp(framing="lines").wire_framing
    with connected(running, context_for(server)) as client:
        client.sendall(b"one\ntwo")
        client.unwrap()  # waits for the answer
    running.source(framing=framing).wait_for(2)

    with connected(running, context_for(server)) as client:
        client.sendall(b"three\nfo")
        running.source(framing=framing).wait_for(3)
        client.shutdown(socket.SHUT_RDWR)  # without TLS's own goodbye
    wait_until(lambda: any("cut off" in line for line in running.log))

    assert running.source(framing=framing).payloads() == [b"one", b"two", b"three"]


def test_nothing_decrypted_waits_where_a_selector_cannot_see_it(server: TLS) -> None:
    """A call with less room than there is leaves whole records, in the kernel."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    taker = TlsSocket(ours, server_context(server))
    view = memoryview(bytearray(20_000))
    content = bytes(range(250)) * 120
    has_all = threading.Event()

    def send() -> None:
        with context_for(server).wrap_socket(theirs, server_hostname="127.0.0.1") as client:
            client.sendall(content)
            has_all.wait()
            client.unwrap()

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    taken = b""
    count = -1
    while count:
        assert select.select([taker], [], [], 60)[0], f"nothing to be seen after {len(taken)} bytes"
        with contextlib.suppress(BlockingIOError):
            count = taker.recv_into(view)
            taken += view[:count]
        if taken == content:
            has_all.set()
    taker.close()
    sender.join()
    assert taken == content


def test_a_client_that_does_not_speak_tls_is_closed_and_others_go_on(
    running: Running, server: TLS
) -> None:
    running.start(tcp(tls=server))
    with running.connect() as silent, running.connect() as plain:
        plain.sendall(frame(b"not encrypted"))
        wait_until(lambda: any("TLS failed" in line for line in running.log))
        with connected(running, context_for(server)) as client:
            client.sendall(frame(b"encrypted"))
            found = running.source().wait_for(1)
        silent.close()

    assert found == [b"encrypted"]


def test_only_clients_with_a_certificate_are_taken_where_one_is_asked_for(
    running: Running, server: TLS, tmp_path: Path
) -> None:
    own = make_certificate(tmp_path, "client")
    running.start(tcp(tls=TLS(server.certificate, server.key, ca=own.certificate)))

    with contextlib.suppress(ssl.SSLError, OSError):
        with connected(running, context_for(server)) as stranger:
            stranger.sendall(frame(b"stranger"))
    wait_until(lambda: any("TLS failed" in line for line in running.log))
    with connected(running, context_for(server, own)) as client:
        client.sendall(frame(b"known"))
        found = running.source().wait_for(1)

    assert found == [b"known"]


@pytest.mark.parametrize(
    ("tls", "why"),
    [
        (TLS("nowhere.pem", "nowhere.key"), "nowhere.pem is not a file. Give the path of a PEM"),
        (TLS(__file__, __file__), "cannot be used.*Are they PEM files"),
    ],
)
def test_files_that_cannot_be_used_end_the_start(running: Running, tls: TLS, why: str) -> None:
    with pytest.raises(PeerError, match=why):
        running.start(tcp(tls=tls))


def test_ranges_are_read_encrypted_by_clients_that_pin_the_certificate(
    running: Running, server: TLS, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, "In")
    writer = SpoolWriter(folder, is_durable=False)
    for number in range(40):
        writer.append(bytes([number]) * 50_000, 1, number)
    end = writer.publish()
    writer.close()
    running.start(serve_on="127.0.0.1", serve_tls=server)
    address, secret = running.feeders.range_address, running.feeders.range_secret
    assert address is not None

    remote = RemoteSpool(address, secret, "In", Path(server.certificate).read_text())
    chunks = list(remote.chunks(Boundary(), end))

    assert chunks == list(SpoolReader(folder).chunks(Boundary(), end))


def test_a_server_with_another_certificate_is_not_believed(
    running: Running, server: TLS, tmp_path: Path
) -> None:
    SpoolWriter(folder_of(tmp_path, "In"), is_durable=False).close()
    other = make_certificate(tmp_path, "other")
    running.start(serve_on="127.0.0.1", serve_tls=server)
    address, secret = running.feeders.range_address, running.feeders.range_secret
    assert address is not None
    remote = RemoteSpool(address, secret, "In", Path(other.certificate).read_text())

    with pytest.raises(PeerError):
        list(remote.chunks(Boundary(), Boundary(100, 1)))
