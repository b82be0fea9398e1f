"""Messages between the driver and resident tasks."""

from __future__ import annotations

import socket
import threading
from itertools import combinations

import pytest

from wallaroo.runtime.resident.framing import Mesh


def meshes(count: int) -> list[Mesh]:
    """All tasks of a mesh, in this process."""
    peers: list[dict[int, socket.socket]] = [{} for _ in range(count)]
    for low, high in combinations(range(count), 2):
        peers[low][high], peers[high][low] = socket.socketpair()
    return [Mesh(some) for some in peers]


def test_all_tasks_exchange_large_messages_at_once() -> None:
    """Each would wait for another one to receive, if sending and receiving took turns."""
    tasks = meshes(3)
    got: dict[int, dict[int, bytes]] = {}

    def work(own: int) -> None:
        outgoing = {peer: bytes([own]) * 5_000_000 for peer in range(3) if peer != own}
        got[own] = tasks[own].exchange(outgoing, outgoing)

    threads = [threading.Thread(target=work, args=(own,)) for own in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(400)

    for own in range(3):
        assert got[own] == {peer: bytes([peer]) * 5_000_000 for peer in range(3) if peer != own}


def test_a_peer_that_is_a_level_ahead_does_not_mix_its_messages() -> None:
    slow, quick = meshes(2)

    assert quick.exchange({0: b"first"}, []) == {}
    assert quick.exchange({0: b"second"}, []) == {}

    assert slow.exchange({}, [1]) == {1: b"first"}
    assert slow.exchange({}, [1]) == {1: b"second"}


def test_a_task_that_waits_for_another_one_reports_it_again_and_again() -> None:
    one, other = socket.socketpair()
    reports: list[str] = []

    def report() -> None:
        reports.append("awaiting")
        if len(reports) == 3:
            slow.exchange({0: b"late"}, [])

    slow = Mesh({0: other})
    quick = Mesh({1: one}, report, slow_s=0.01)
    assert quick.exchange({}, [1]) == {1: b"late"}
    assert len(reports) == 3


def test_a_peer_that_has_gone_ends_the_exchange() -> None:
    left, right = meshes(2)
    right.close()

    with pytest.raises((EOFError, OSError)):
        left.exchange({1: b"hello"}, [1])
