"""Ends of an egress: the driver killed, an orderly stop with output in the socket, both killed.
The receiver writes back, holds still, serves connections in parallel.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.sinks.identities import commit_of
from tests.unit.sinks.tcp.outbox import Driver, Job, committing, until
from tests.unit.sinks.tcp.receivers import HeldReceiver

SIZE = 1000


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize("is_parallel", [False, True])
def test_a_killed_driver_loses_and_reorders_nothing(
    tmp_path: Path, answers: bool, is_parallel: bool
) -> None:
    """The egress finishes what its connection holds; the next run's goes on after it."""
    job = Job(tmp_path, is_durable=True)
    with HeldReceiver(answers=answers, is_parallel=is_parallel, free_bytes=300_000) as receiver:
        with Driver(receiver.port, tmp_path) as driver:
            for batch in range(3):
                tokens = job.tokens(batch, 2000, SIZE)
                driver.commit(batch, tokens)
            until(lambda: receiver.last > 200)
        with committing(receiver.port, tmp_path, is_durable=True, last=2, tokens=tokens):
            receiver.release()
            until(lambda: receiver.last == job.number - 1, 20)
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
            until(lambda: receiver.last == job.number - 1, 20)
    assert receiver.numbers == list(range(job.number))
