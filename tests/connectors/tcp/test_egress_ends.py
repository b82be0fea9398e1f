"""Ends of an egress: the driver killed, an orderly stop with output in the socket, both killed.
The receiver writes back, holds still, serves connections in parallel.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.connectors.tcp.outbox import (
    SECONDS,
    Driver,
    Job,
    committing,
    frame,
    is_running,
    until,
)
from tests.connectors.tcp.receivers import HeldReceiver, answers_under_way, is_in_order
from tests.unit.sinks.identities import commit_of
from wallaroo.connectors.tcp.process import STOP_S

SIZE = 1000


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize("is_parallel", [False, True])
def test_a_killed_driver_loses_and_reorders_nothing(
    tmp_path: Path, answers: bool, is_parallel: bool
) -> None:
    """The egress finishes what its connection holds; the next run's continues after it."""
    job = Job(tmp_path, is_durable=True)
    with HeldReceiver(answers=answers, is_parallel=is_parallel, free_bytes=300_000) as receiver:
        with Driver(receiver.port, tmp_path) as driver:
            for batch in range(3):
                tokens = job.tokens(batch, 2000, SIZE)
                driver.commit(batch, tokens)
            until(lambda: receiver.last > 200)
        with committing(receiver.port, tmp_path, is_durable=True, last=2, tokens=tokens):
            receiver.release()
            until(lambda: receiver.last == job.number - 1)
    assert receiver.numbers == list(range(job.number))


@pytest.mark.parametrize("is_parallel", [False, True])
def test_a_stop_before_the_receiver_has_read_leaves_the_rest_to_the_next_run(
    tmp_path: Path, is_parallel: bool
) -> None:
    job = Job(tmp_path)
    with HeldReceiver(is_parallel=is_parallel, free_bytes=300_000) as receiver:
        with committing(receiver.port, tmp_path, drain=0.2) as committer:
            tokens = job.tokens(0, 3000, SIZE)
            committer.commit(commit_of(0), tokens)
            until(lambda: receiver.last > 200)
        with committing(receiver.port, tmp_path, last=0, tokens=tokens):
            receiver.release()
            until(lambda: receiver.last == job.number - 1)
    assert receiver.numbers == list(range(job.number))


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize("is_parallel", [False, True])
def test_driver_and_egress_killed_at_once_lose_and_reorder_nothing(
    tmp_path: Path, answers: bool, is_parallel: bool
) -> None:
    """What was not recorded as acknowledged comes again, after the end of the old connection."""
    job = Job(tmp_path, is_durable=True)
    with HeldReceiver(
        answers=answers, reads_on=True, is_parallel=is_parallel, free_bytes=300_000
    ) as receiver:
        with Driver(receiver.port, tmp_path) as driver:
            for batch in range(3):
                tokens = job.tokens(batch, 2000, SIZE)
                driver.commit(batch, tokens)
            # with an answer unread its end would be a reset, which leaves nothing to wait for
            until(lambda: receiver.holds.is_set() and answers_under_way(receiver.port) == 0)
            # stopped first, so that it does not notice the driver's end
            os.kill(driver.egress_pid, signal.SIGSTOP)
            driver.kill()
            os.kill(driver.egress_pid, signal.SIGKILL)
        with committing(
            receiver.port, tmp_path, is_durable=True, last=2, tokens=tokens
        ) as committer:
            waiting = "the connection of a killed sending process to end"
            until(lambda: receiver.connections == 2 or waiting in committer.status().waiting_for)
            receiver.release()
            until(lambda: receiver.last == job.number - 1)
    assert is_in_order(receiver.numbers)


def test_a_receiver_that_only_stops_writing_gets_the_rest_after_the_driver_was_killed(
    tmp_path: Path,
) -> None:
    """It half-closes at once, as `nc` does, and reads on."""
    job = Job(tmp_path, is_durable=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with Driver(port, tmp_path) as driver:
            tokens = job.tokens(0, 3000, SIZE)
            driver.commit(0, tokens)
            peer, _ = listener.accept()
            peer.shutdown(socket.SHUT_WR)
            arrived = peer.recv(100_000)
        with peer:
            while chunk := peer.recv(1 << 20):
                arrived += chunk
        with committing(port, tmp_path, is_durable=True, last=0, tokens=tokens):
            peer, _ = listener.accept()
            with peer:
                while not arrived.endswith(frame(job.number - 1, SIZE)):
                    arrived += peer.recv(1 << 20)
    is_whole = arrived == b"".join(frame(number, SIZE) for number in range(job.number))
    assert is_whole


def test_a_stop_says_what_is_not_acknowledged_and_what_follows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(tmp_path)
    with HeldReceiver(free_bytes=300_000) as receiver:
        with committing(receiver.port, tmp_path, drain=0.1) as committer:
            committer.commit(commit_of(0), job.tokens(0, 3000, SIZE))
            until(lambda: receiver.last > 200)
        waiting = committer.status().waiting_for
        assert re.search(r"to acknowledge [1-9]\d* of [1-9]\d* bytes; the next run", waiting)
        assert waiting in caplog.text
        receiver.release()
        until(lambda: not is_running(committer.egress_pid))


def test_a_stop_ends_at_once_where_the_receiver_has_everything(tmp_path: Path) -> None:
    """Also where the receiver never ends its side."""
    job = Job(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with committing(listener.getsockname()[1], tmp_path) as committer:
            committer.commit(commit_of(0), job.tokens(0, 10))
            peer, _ = listener.accept()
            until(lambda: committer.backlog() == 0)
            began = time.monotonic()
            committer.close(SECONDS)
            assert time.monotonic() - began < STOP_S
        peer.close()
        until(lambda: not is_running(committer.egress_pid))
