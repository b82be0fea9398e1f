"""A process of the sources that hangs: it is named, killed and replaced."""

from __future__ import annotations

import os
import signal

from tests.unit.ingress.conftest import Running, tcp, wait_until

FRAME = b"\0\0\0\1a"


def test_a_hung_ingress_is_named_killed_and_replaced_on_its_port(running: Running) -> None:
    running.start(tcp(), hung_s=2.0)
    feeders = running.feeders
    port, pid = feeders.addresses["In"], feeders.pids["ingress"]
    os.kill(pid, signal.SIGSTOP)

    wait_until(lambda: feeders.poll() or feeders.silent)
    assert "ingress to show a sign of life" in feeders.silent
    wait_until(lambda: feeders.poll() or feeders.pids["ingress"] != pid)

    assert any("ingress has shown no sign of life for 2 s" in line for line in running.log)
    assert feeders.addresses["In"] == port
    with running.connect() as client:
        client.sendall(FRAME)
        running.source().wait_for(1)


def test_an_idle_ingress_is_not_taken_for_hung(running: Running) -> None:
    running.start(tcp(), hung_s=30.0)
    child = running.feeders._children[0]
    wait_until(lambda: child.silent_s < 0.2)
    wait_until(lambda: child.silent_s > 0.25)
    wait_until(lambda: child.silent_s < 0.2)  # again, with nothing to do


def test_stopping_ends_a_hung_ingress(running: Running) -> None:
    running.start(tcp())
    os.kill(running.feeders.pids["ingress"], signal.SIGSTOP)
    running.feeders.stop()
    assert running.feeders.pids == {}
