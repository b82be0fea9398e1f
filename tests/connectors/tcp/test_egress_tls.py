"""Output over TLS: encrypted, complete, in order; what is acknowledged is known all the same."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connectors.tcp.outbox import Job, kill, until
from tests.unit.ingress.test_tls import make_certificate
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.connectors.tcp.committer import OutboxCommitter
from wallaroo.connectors.tcp.pipe import GREETING, OFFSET
from wallaroo.connectors.tcp.progress import read_progress
from wallaroo.connectors.tcp.sink import TCPSinkConfig
from wallaroo.errors import PeerError
from wallaroo.network.tls import TLS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> TLS:
    return make_certificate(tmp_path_factory.mktemp("tls"), "receiver")


class TlsReceiver:
    """Takes one connection after the other; ``received`` is what all of them gave."""

    def __init__(self, tls: TLS, is_resuming: bool = False):
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(tls.certificate, tls.key)
        self._is_resuming = is_resuming
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.received: list[bytearray] = []
        self.versions: list[str | None] = []
        self.is_reading = threading.Event()
        self.is_reading.set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                with contextlib.suppress(OSError):
                    self._serve(self._context.wrap_socket(plain, server_side=True))

    def _serve(self, connection: ssl.SSLSocket) -> None:
        self.versions.append(connection.version())
        if self._is_resuming:
            has = sum(map(len, self.received))
            connection.sendall(GREETING + OFFSET.pack(has))
        own = bytearray()
        self.received.append(own)
        while chunk := connection.recv(1 << 16):
            own += chunk
            self.is_reading.wait(400)
            if self._is_resuming:
                connection.sendall(OFFSET.pack(sum(map(len, self.received))))
        connection.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextlib.contextmanager
def committing(port: int, staging: Path, tls: TLS, resume: bool) -> Iterator[OutboxCommitter]:
    config = TCPSinkConfig("127.0.0.1", port, resume=resume, tls=tls)
    committer = config.committer("s", staging, True)
    assert isinstance(committer, OutboxCommitter)
    try:
        committer.recover(history_to(), ())
        yield committer
    finally:
        committer.close(180.0)


def content(job: Job) -> bytes:
    return b"".join(len(one).to_bytes(4, "big") + one for one in job.expected)


@pytest.mark.parametrize("resume", [False, True])
def test_output_arrives_encrypted_and_what_was_acknowledged_is_released(
    tmp_path: Path, server: TLS, resume: bool
) -> None:
    """More than the kernel takes at once, to a receiver that reads nothing for a while."""
    receiver, job = TlsReceiver(server, resume), Job(tmp_path)
    receiver.is_reading.clear()
    with committing(receiver.port, tmp_path, TLS(ca=server.certificate), resume) as committer:
        for batch in range(3):
            committer.commit(commit_of(batch), job.tokens(batch, 2000, size=1024))
        until(lambda: receiver.received)
        receiver.is_reading.set()
        until(lambda: bytes(receiver.received[0]) == content(job))
        until(lambda: read_progress(tmp_path).released_batch == 2)  # type: ignore[union-attr]
    assert receiver.versions[0] in ("TLSv1.2", "TLSv1.3")
    assert bytes(receiver.received[0]) == content(job)
    receiver.close()


@pytest.mark.parametrize("resume", [False, True])
def test_a_killed_egress_begins_a_new_connection_and_loses_nothing(
    tmp_path: Path, server: TLS, resume: bool
) -> None:
    """A plain receiver gets some again, from a boundary on; one that resumes gets all once."""
    receiver, job = TlsReceiver(server, resume), Job(tmp_path)
    with committing(receiver.port, tmp_path, TLS(ca=server.certificate), resume) as committer:
        for batch in range(6):
            committer.commit(commit_of(batch), job.tokens(batch, 300, size=512))
            if batch == 3:
                until(lambda: any(receiver.received))
                kill(committer)
    whole = content(job)
    if resume:
        assert b"".join(receiver.received) == whole
    else:
        assert whole.startswith(bytes(receiver.received[0]))
        assert whole.endswith(bytes(receiver.received[-1]))
        assert sum(map(len, receiver.received)) >= len(whole)
    receiver.close()


def test_a_receiver_that_another_authority_signed_gets_nothing(tmp_path: Path, server: TLS) -> None:
    """The status says why; with the right file everything continues."""
    other = make_certificate(tmp_path, "other")
    receiver, job = TlsReceiver(server), Job(tmp_path / "outbox")
    with committing(receiver.port, tmp_path / "outbox", TLS(ca=other.certificate), False) as one:
        one.commit(commit_of(0), job.tokens(0, 3))
        until(
            lambda: (
                "(TLS failed: certificate verify failed: self-signed" in one.status().waiting_for
            )
        )
        assert not any(receiver.received)
        one.close(0.0)
    receiver.close()


def test_files_that_cannot_be_used_are_reported_at_the_start(tmp_path: Path) -> None:
    """Before anything runs."""
    with pytest.raises(PeerError, match=r"nowhere\.pem is not a file"):
        TCPSinkConfig("127.0.0.1", 1, tls=TLS(ca="nowhere.pem")).committer("s", tmp_path, True)
