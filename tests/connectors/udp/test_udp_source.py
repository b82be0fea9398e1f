"""Datagrams as events: what was received comes once, and what the system dropped is counted."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.sources.own import copying
from wallaroo.connectors.udp.source import dropped
from wallaroo.errors import PeerError, WallarooParameterError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sources import UDPSourceConfig
from wallaroo.sources.feeds.inbox import EVENTS_MAX
from wallaroo.spark.local_cluster.hosts import free_ports

Eventually = Callable[..., None]


def counts_drops() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        return dropped(made) is not None


def source(port: int, **options: Any) -> UDPSourceConfig[Any]:
    return UDPSourceConfig("ticks", "127.0.0.1", port, Json(str).decoder, **options)


@pytest.fixture
def port() -> int:
    (found,) = free_ports(1)
    return found


@pytest.fixture
def sender() -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        yield made


def test_each_datagram_is_an_event(
    tmp_path: Path, port: int, sender: socket.socket, eventually: Eventually
) -> None:
    out = tmp_path / "out.txt"
    options = RunOptions(checkpoint=tmp_path / "state", status_address=None)

    def came() -> list[str]:
        return out.read_text().splitlines() if out.exists() else []

    def arrives() -> bool:
        """Send until one is there: before the socket is open datagrams are lost."""
        sender.sendto(b'"first"', ("127.0.0.1", port))
        return "first" in came()

    run = Run(copying(source(port), out), options, InProcessHost(2))
    run.begin()
    eventually(arrives, "a datagram")
    for number in range(20):
        sender.sendto(b'"t %d"' % number, ("127.0.0.1", port))
    wanted = [f"t {number}" for number in range(20)]
    eventually(lambda: [line for line in came() if line != "first"] == wanted, "all of them")
    run.stop()
    assert run.wait(400)
    assert run.exception is None


@pytest.mark.skipif(not counts_drops(), reason="only Linux counts what it drops")
def test_what_the_system_dropped_is_counted(
    port: int, sender: socket.socket, eventually: Eventually
) -> None:
    feed: Any = source(port, buffer_bytes=4096).open_feed(b"")

    def is_open() -> bool:
        sender.sendto(b"first", ("127.0.0.1", port))
        return bool(feed.next_run().events)

    eventually(is_open, "the first datagram")
    feed.next_run()
    sent = 3 * EVENTS_MAX
    for number in range(sent):  # faster than the inbox, which takes no more than EVENTS_MAX
        sender.sendto(b"%d" % number, ("127.0.0.1", port))
    came = 0

    def lost() -> int:
        nonlocal came
        run = feed.next_run()
        came += run.events
        found = re.match(r"UDP 127\.0\.0\.1:\d+ has lost (\d+) datagrams", run.problem)
        return int(found[1]) if found else 0

    eventually(lambda: lost() + came >= sent, "all are accounted for")
    assert 0 < came < sent


def test_an_address_that_is_taken_ends_the_run(port: int, sender: socket.socket) -> None:
    sender.bind(("127.0.0.1", port))
    words = f"Source 'ticks' cannot listen on UDP 127.0.0.1:{port}: Address already in use"
    with pytest.raises(PeerError, match=words):
        list(iter(source(port).open_feed(b"").next_run, None))


@pytest.mark.parametrize(
    ("options", "words"),
    [({"port": 70_000}, "port=70000 is not a port"), ({"buffer_bytes": 0}, "holds nothing")],
)
def test_a_wrong_configuration_is_refused(options: Any, words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        source(**{"port": 1, **options})
