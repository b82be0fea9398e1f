"""How the driver and resident tasks are connected: by Unix sockets, by TCP, with TLS."""

from __future__ import annotations

import contextlib
import random
import secrets
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.ingress.conftest import wait_until
from tests.unit.ingress.test_tls import make_certificate
from wallaroo.network.connection_budget import Budget
from wallaroo.network.hmac_auth import CHALLENGE_BYTES, PROOF_BYTES, sign
from wallaroo.network.proved_connections import (
    CONNECT_S,
    DriverEndpoint,
    TaskListener,
    _opened,
    beside,
    connect,
    exactly,
)
from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import pem_of
from wallaroo.runtime.resident.framing import Mesh, receive, send

SECRET = b"s" * 32
HOST = "127.0.0.1"
WAIT_S = 400.0
PATIENCE_S = 2 * WAIT_S  # with those that prove nothing
REFUSED_S = 0.2  # so long one that is refused tries again
LARGE = 5_000_000
STRANGERS = 200


def listening(kind: str, folder: Path) -> TaskListener:
    """A driver's listener."""
    if kind == "unix":
        return TaskListener(str(folder / "s"), SECRET, identify_s=PATIENCE_S)
    listener = TaskListener(HOST, SECRET, reachable_as=HOST, identify_s=PATIENCE_S)
    if kind == "tls":
        listener.secure(pem_of(make_certificate(folder, "run")))
    return listener


@pytest.fixture(params=["unix", "tcp", "tls"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TaskListener]:
    with listening(request.param, tmp_path) as made:
        yield made


def connected(listener: TaskListener) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection: who listens, who connects."""
    with ThreadPoolExecutor(1) as other:
        listener.begin()
        mine = other.submit(connect, listener.endpoint)
        return listener.next(WAIT_S), mine.result()


def test_messages_go_both_ways(listener: TaskListener) -> None:
    one, other = connected(listener)
    with one, other:
        send(one, b"hello")
        assert receive(other) == b"hello"
        send(other, b"epoch")
        assert receive(one) == b"epoch"


def test_tasks_exchange_messages_larger_than_any_buffer(listener: TaskListener) -> None:
    one, other = connected(listener)
    left, right = Mesh({1: one}), Mesh({0: other})
    with ThreadPoolExecutor(2) as both:
        for number in range(3):
            message = bytes([number]) * LARGE
            lefts = both.submit(left.exchange, {1: message}, [1])
            rights = both.submit(right.exchange, {0: message}, [0])
            assert lefts.result(WAIT_S) == {1: message}
            assert rights.result(WAIT_S) == {0: message}
    left.close()
    right.close()


def test_a_task_listens_as_its_driver_does(listener: TaskListener) -> None:
    other, one = connected(listener)
    with one, other, beside(listener.endpoint, one, 3) as own:
        assert isinstance(own.address, str) == isinstance(listener.address, str)
        assert own.address != listener.address


def test_one_without_the_secret_is_not_accepted(listener: TaskListener) -> None:
    stranger = replace(listener.endpoint, secret=b"x" * 32)
    listener.begin()

    with pytest.raises((EOFError, OSError)):
        connect(stranger, REFUSED_S)
    with pytest.raises(TimeoutError):
        listener.next(0.0)


def test_one_that_listens_without_the_secret_learns_nothing() -> None:
    """It took the port of a driver that has gone, say."""
    with TaskListener(HOST, b"x" * 32, reachable_as=HOST) as stranger:
        endpoint = DriverEndpoint(stranger.address, SECRET)
        stranger.begin()

        with pytest.raises((EOFError, OSError)):
            connect(endpoint, REFUSED_S)


def test_one_that_listens_and_answers_with_a_wrong_proof_is_refused() -> None:
    with socket.create_server((HOST, 0)) as stranger:
        endpoint = DriverEndpoint(stranger.getsockname()[:2], SECRET)
        with ThreadPoolExecutor(1) as other:
            refused = other.submit(connect, endpoint)
            connection, _ = stranger.accept()
            with connection:
                challenge = secrets.token_bytes(CHALLENGE_BYTES)
                connection.sendall(challenge)
                asked = exactly(connection, CHALLENGE_BYTES + PROOF_BYTES)
                own = asked[:CHALLENGE_BYTES]
                connection.sendall(sign(b"server", b"x" * 32, challenge, own))

                with pytest.raises(ConnectionRefusedError, match="not belong to this run"):
                    refused.result(WAIT_S)


def test_without_tls_nothing_is_said_to_one_that_asks_for_it(tmp_path: Path) -> None:
    pem = pem_of(make_certificate(tmp_path, "run"))
    with TaskListener(HOST, SECRET, reachable_as=HOST) as plain:
        plain.begin()

        with pytest.raises(OSError):
            connect(replace(plain.endpoint, certificate=pem.certificate), REFUSED_S)


def test_another_certificate_is_not_trusted(tmp_path: Path) -> None:
    other_pem = pem_of(make_certificate(tmp_path, "other"))
    with listening("tls", tmp_path) as listener:
        wrong = replace(listener.endpoint, certificate=other_pem.certificate)
        listener.begin()

        with pytest.raises(OSError, match="certificate verify failed"):
            connect(wrong)


EXPIRED = """
[ca]
default_ca = own
[own]
database = index.txt
rand_serial = yes
new_certs_dir = .
default_md = sha256
policy = names
[names]
commonName = supplied
"""


def test_a_run_outlives_its_certificate(tmp_path: Path) -> None:
    """It names the certificate to its tasks itself; they start again after its end, too."""
    (tmp_path / "index.txt").touch()
    (tmp_path / "ca.conf").write_text(EXPIRED)
    for command in (
        "req -new -newkey rsa:2048 -nodes -subj /CN=run -keyout run.key -out run.csr",
        "ca -batch -notext -selfsign -config ca.conf -keyfile run.key -in run.csr -out run.pem "
        "-startdate 20200101000000Z -enddate 20200102000000Z",
    ):
        run = ["openssl", *command.split()]
        subprocess.run(run, check=True, capture_output=True, cwd=tmp_path)
    with TaskListener(HOST, SECRET, reachable_as=HOST) as listener:
        listener.secure(pem_of(TLS(str(tmp_path / "run.pem"), str(tmp_path / "run.key"))))
        listener.begin()
        connect(listener.endpoint).close()


def test_waiting_for_a_connection_ends(listener: TaskListener) -> None:
    with pytest.raises(TimeoutError):
        listener.next(0.01)


def test_strangers_delay_no_task_and_take_no_place_for_long(
    listener: TaskListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They connect and say nothing, half a proof, or anything; as many as may be connected."""
    chance = random.Random(7)
    most = 50
    monkeypatch.setattr(listener, "_budget", Budget(most))
    listener.begin()
    with contextlib.ExitStack() as held:
        for number in range(STRANGERS):
            stranger = held.enter_context(_opened(listener.address, CONNECT_S))
            with contextlib.suppress(OSError):
                stranger.sendall(
                    chance.randbytes((0, 40, CHALLENGE_BYTES + PROOF_BYTES)[number % 3])
                )
        with ThreadPoolExecutor(1) as other:
            mine = other.submit(connect, listener.endpoint, WAIT_S)
            theirs = listener.next(WAIT_S)
            send(theirs, b"hello")
            assert receive(mine.result()) == b"hello"
        for one in (theirs, mine.result()):
            one.close()
        assert threading.active_count() < STRANGERS


def test_a_listener_that_closes_leaves_no_thread_to_strangers(listener: TaskListener) -> None:
    before = set(threading.enumerate())  # others of them may end meanwhile

    def new() -> int:
        return len(set(threading.enumerate()) - before)

    listener.begin()
    with contextlib.ExitStack() as held:
        for _ in range(3):
            held.enter_context(_opened(listener.address, CONNECT_S))
        wait_until(lambda: new() > 3)

        listener.close()
        wait_until(lambda: not new())


def test_neither_secret_nor_key_is_printed(tmp_path: Path) -> None:
    pem = pem_of(make_certificate(tmp_path, "run"))

    assert "PRIVATE" not in repr(pem)
    assert "sss" not in repr(DriverEndpoint("/s", SECRET, pem.certificate))
