"""The driver's side of ingress hosts that join: who is admitted, and who is refused."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.ingress.conftest import wait_until
from wallaroo.ingress.joining.host_listener import HostListener
from wallaroo.ingress.joining.messages import JOIN, LATER, READY, REFUSED, WELCOME, Terms
from wallaroo.network.proved_connections import TaskListener, connect
from wallaroo.network.replica_link import Fields, read_message, write_message
from wallaroo.sources.joined.hosts import IngressHost, IngressHosts

HOST = "127.0.0.1"
SECRET = b"x" * 32
FIRST = "00" * 8  # ids of folders
SECOND = "11" * 8


class Joining:
    """A run without a commit, and ingress hosts that join it."""

    def __init__(self, spool_root: Path) -> None:
        self.hosts = IngressHosts(["in"], spool_root, lambda: None)
        self._listener = TaskListener(HOST, SECRET, reachable_as=HOST)
        self._admitting = HostListener(self._listener, self.hosts, Terms("", (), 0))
        self._admitting.begin()
        self._links: list[socket.socket] = []

    def ask(self, id_: str) -> tuple[socket.socket, Fields]:
        """Ask to join as 'edge' with a folder; return the connection and the answer."""
        link = connect(self._listener.endpoint)
        self._links.append(link)
        link.settimeout(60)
        write_message(link, {"op": JOIN, "name": "edge", "id": id_, "is_leaving": False})
        return link, read_message(link)[0]

    def known(self, link: socket.socket) -> IngressHost:
        """Say that 'edge' listens; return the host that the driver then knows."""
        write_message(link, {"op": READY, "ranges": [HOST, 1], "certificate": ""})
        wait_until(lambda: self.hosts.named("edge"))
        (host,) = self.hosts.all()
        return host

    def close(self) -> None:
        for link in self._links:
            link.close()
        self._admitting.close()


@pytest.fixture
def joining(tmp_path: Path) -> Iterator[Joining]:
    there = Joining(tmp_path)
    yield there
    there.close()


def test_another_folder_is_refused_after_a_host_vanished_before_any_commit(
    joining: Joining,
) -> None:
    """It listened, and may have acknowledged input: that folder joins again, and no other."""
    link, answer = joining.ask(FIRST)
    assert answer["op"] == WELCOME
    host = joining.known(link)
    link.close()
    wait_until(lambda: host.session is None)
    _, answer = joining.ask(SECOND)
    assert answer["op"] == REFUSED
    assert "ingress 'edge' has joined this run with another folder" in answer["words"]
    assert joining.ask(FIRST)[1]["op"] == WELCOME


def test_of_two_folders_that_join_under_one_name_at_the_same_time_one_is_refused(
    joining: Joining,
) -> None:
    """The second one waits until the first one is ready, then is refused; it never listens."""
    first, answer = joining.ask(FIRST)
    assert answer["op"] == WELCOME
    _, answer = joining.ask(SECOND)
    assert answer["op"] == LATER
    assert answer["words"] == "another ingress 'edge' is just joining"
    joining.known(first)
    assert joining.ask(SECOND)[1]["op"] == REFUSED


def test_a_folder_whose_name_another_one_failed_to_join_with_is_admitted(joining: Joining) -> None:
    """One that could not listen has received nothing."""
    first, answer = joining.ask(FIRST)
    assert answer["op"] == WELCOME
    write_message(first, {"op": REFUSED, "words": "the port is taken"})
    assert first.recv(1) == b""  # the driver has ended the connection
    assert joining.ask(SECOND)[1]["op"] == WELCOME


def test_a_run_that_ended_before_a_commit_knows_whom_it_let_in(
    joining: Joining, tmp_path: Path
) -> None:
    """From its welcome on it may acknowledge: the next run waits for that folder alone."""
    _, answer = joining.ask(FIRST)
    assert answer["op"] == WELCOME
    following = Joining(tmp_path)
    (host,) = following.hosts.all()
    assert host.has_joined
    _, answer = following.ask(SECOND)
    assert answer["op"] == REFUSED
    assert "ingress 'edge' has joined this run with another folder" in answer["words"]
    assert following.ask(FIRST)[1]["op"] == WELCOME
    following.close()


def test_a_host_whose_link_broke_before_it_was_ready_is_known(joining: Joining) -> None:
    """It may listen: the next commit lists it."""
    link, _ = joining.ask(FIRST)
    link.close()
    wait_until(lambda: joining.hosts.named("edge"))
    (host,) = joining.hosts.all()
    assert host.has_joined
    assert joining.ask(SECOND)[1]["op"] == REFUSED


def test_a_host_that_could_not_listen_is_not_known_to_the_next_run(
    joining: Joining, tmp_path: Path
) -> None:
    link, _ = joining.ask(FIRST)
    write_message(link, {"op": REFUSED, "words": "the port is taken"})
    assert link.recv(1) == b""
    assert IngressHosts(["in"], tmp_path, lambda: None).all() == []
