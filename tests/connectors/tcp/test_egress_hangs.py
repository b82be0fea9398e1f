"""An egress that hangs (stopped, not dead): the driver never waits for it, says so, replaces it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.connectors.tcp.outbox import (
    SECONDS,
    Job,
    committing,
    is_running,
    until,
)
from tests.connectors.tcp.receivers import HeldReceiver
from tests.unit.sinks.identities import commit_of
from wallaroo.cli.receive.receiver import Receiver
from wallaroo.connectors.tcp.process import STOP_S, EgressTimeouts

QUICK = EgressTimeouts(ping_s=0.05, named_s=0.2, killed_s=1.0)
NEVER = EgressTimeouts(ping_s=0.05, named_s=0.2, killed_s=1e9)


def test_commits_do_not_wait_for_a_hung_egress_and_the_status_names_it(tmp_path: Path) -> None:
    job = Job(tmp_path)
    with (
        Receiver(form="frames") as receiver,
        committing(receiver.address[1], tmp_path, timeouts=NEVER) as committer,
    ):
        committer.commit(commit_of(0), job.tokens(0, 10))
        assert receiver.wait_for(job.number, SECONDS)
        os.kill(committer.egress_pid, signal.SIGSTOP)
        try:
            for batch in range(1, 200):  # its pipe takes a few of them
                committer.commit(commit_of(batch), job.tokens(batch, 100))
            until(lambda: "has not answered for" in committer.status().waiting_for)
            assert str(committer.egress_pid) in committer.status().waiting_for
            assert committer.backlog() > 0
        finally:
            os.kill(committer.egress_pid, signal.SIGCONT)
        assert receiver.wait_for(job.number, SECONDS)
        until(lambda: not committer.status().waiting_for)
        assert receiver.payloads == job.expected


def test_a_hung_egress_is_replaced_and_its_connection_goes_on_exactly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is stopped with full buffers, in the middle of an output."""
    job = Job(tmp_path)
    with (
        HeldReceiver(free_bytes=300_000) as receiver,
        committing(receiver.port, tmp_path, timeouts=QUICK) as committer,
    ):
        committer.commit(commit_of(0), job.tokens(0, 3000, 1000))
        until(lambda: receiver.last > 200)
        hung = committer.egress_pid
        os.kill(hung, signal.SIGSTOP)
        until(lambda: committer.egress_pid != hung)
        assert not is_running(hung)
        receiver.release()
        until(lambda: receiver.last == job.number - 1)
        until(lambda: committer.backlog() == 0)
        assert receiver.numbers == list(range(job.number))
        assert receiver.connections == 1
    assert f"sending process {hung}" in caplog.text


def test_close_ends_in_time_although_the_egress_hangs(tmp_path: Path) -> None:
    job = Job(tmp_path)
    with HeldReceiver(free_bytes=300_000) as receiver:
        with committing(receiver.port, tmp_path, timeouts=NEVER, drain=0.2) as committer:
            tokens = job.tokens(0, 3000, 1000)
            committer.commit(commit_of(0), tokens)
            until(lambda: receiver.last > 200)
            os.kill(committer.egress_pid, signal.SIGSTOP)
            began = time.monotonic()
            for _ in range(2):  # the run closes what it opened, and again where it fails
                committer.close(0.2)
            assert time.monotonic() - began < 0.2 + 3 * STOP_S
        with committing(receiver.port, tmp_path, last=0, tokens=tokens):
            receiver.release()
            until(lambda: receiver.last == job.number - 1)
        assert receiver.numbers == list(range(job.number))
