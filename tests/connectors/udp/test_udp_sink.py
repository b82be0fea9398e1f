"""Outputs as datagrams, on loopback."""

from __future__ import annotations

import pickle
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.file.files import staged
from tests.connectors.udp.child import OUTPUTS, outputs_of
from tests.forks import Forks
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.errors import PeerError, WallarooParameterError
from wallaroo.sinks import SinkCommitter, UDPSinkConfig

DRAIN_S = 400.0


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        made.settimeout(60)
        yield made


def opened(config: UDPSinkConfig, folder: Path) -> SinkCommitter:
    committer = config.committer("s", folder, True)
    committer.recover(history_to(-1), [])
    return committer


def tokens_of(config: UDPSinkConfig, folder: Path, *outputs: bytes) -> list[Any]:
    return staged(config, folder, 0, list(outputs))  # type: ignore[arg-type]  # any sink's


def test_each_output_is_a_datagram_at_the_rate_that_is_asked_for(
    tmp_path: Path, receiver: socket.socket
) -> None:
    config = UDPSinkConfig("127.0.0.1", receiver.getsockname()[1], per_s=500)
    committer = opened(config, tmp_path)
    outputs = [b"m %d" % number for number in range(150)]
    began = time.monotonic()
    committer.commit(commit_of(0), tokens_of(config, tmp_path, *outputs))
    committer.close(DRAIN_S)
    assert time.monotonic() - began >= 0.3
    assert [receiver.recv(100) for _ in outputs] == outputs
    assert committer.status().outputs == 150


@pytest.mark.parametrize(("point", "times"), [("udp.send", 1), ("udp.sent", 2)])
def test_a_killed_driver_sends_again_what_it_may_not_have_sent(
    tmp_path: Path,
    receiver: socket.socket,
    child_of: Callable[..., Forks],
    point: str,
    times: int,
) -> None:
    driver = child_of("tests.connectors.udp.child")
    arguments = (receiver.getsockname()[1], tmp_path, 3)
    assert driver.run(*arguments, WALLAROO_FAULT=f"{point}:1")[0] == -signal.SIGKILL
    assert driver.run(*arguments)[0] == 0
    wanted = [output for batch in range(3) for output in outputs_of(batch, 0)]
    came = [receiver.recv(100) for _ in range(len(wanted) + (times - 1) * OUTPUTS)]
    assert came == wanted[:OUTPUTS] * (times - 1) + wanted


def test_that_nothing_listens_is_no_error(tmp_path: Path, receiver: socket.socket) -> None:
    port = receiver.getsockname()[1]
    receiver.close()
    config = UDPSinkConfig("127.0.0.1", port)
    committer = opened(config, tmp_path)
    committer.commit(commit_of(0), tokens_of(config, tmp_path, *(b"m" for _ in range(500))))
    committer.close(DRAIN_S)
    assert committer.status().outputs == 500


def test_an_output_that_is_no_datagram_ends_the_run(
    tmp_path: Path, receiver: socket.socket
) -> None:
    config = UDPSinkConfig("127.0.0.1", receiver.getsockname()[1])
    committer = opened(config, tmp_path)
    committer.commit(commit_of(0), tokens_of(config, tmp_path, b"x" * 65_508))
    with pytest.raises(PeerError, match=r"of sink 's': Message too long\. Nothing is lost"):
        committer.close(DRAIN_S)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"port": 0}, "port=0 is not a port"), ({"port": 1, "per_s": 0}, "per_s=0 sends nothing")],
)
def test_a_wrong_configuration_is_refused(options: Any, words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        UDPSinkConfig("h", **options)


def test_a_configuration_travels() -> None:
    assert pickle.loads(pickle.dumps(UDPSinkConfig("h", 1))).label == "udp h:1"
