"""When a committer's call counts as hanging."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.sinks.identities import CHECKPOINT
from wallaroo.durable.commit_id import CommitId
from wallaroo.sinks.queued.attempt import RESTART_S, Attempt, Outcome
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import Session
from wallaroo.sinks.staging import Staged

BOUND_S = 10.0


class Marked(Session):
    """Says how far it is."""

    def __init__(self) -> None:
        self.taken = 0

    def last(self) -> CommitId:
        return CommitId(CHECKPOINT)

    def write(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        return True

    def mark(self) -> object:
        return self.taken

    def close(self) -> None:
        """Nothing to close."""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def attempt(clock: Clock) -> Attempt:
    begun = Attempt(BOUND_S, clock)
    begun.end(Marked())
    begun.begin()
    begun.judge()
    return begun


def test_a_call_that_is_silent_for_too_long_is_broken_off_and_then_abandoned_once(
    attempt: Attempt, clock: Clock
) -> None:
    clock.now += BOUND_S - 0.1
    assert attempt.judge() is Outcome.FINE
    clock.now += 0.1
    assert attempt.judge() is Outcome.BREAK_OFF
    clock.now += RESTART_S - 0.1
    assert attempt.judge() is Outcome.FINE
    clock.now += 0.1
    assert attempt.judge() is Outcome.ABANDON
    clock.now += 1000.0
    assert attempt.judge() is Outcome.FINE


def test_a_call_that_gets_on_is_left_alone(attempt: Attempt, clock: Clock) -> None:
    session = attempt.session
    assert isinstance(session, Marked)
    for _ in range(5):
        clock.now += BOUND_S - 0.1
        session.taken += 1
        assert attempt.judge() is Outcome.FINE
        assert attempt.silent_s == 0.0


def test_nothing_is_broken_off_while_nothing_is_called(attempt: Attempt, clock: Clock) -> None:
    attempt.end(attempt.session)
    clock.now += 100 * BOUND_S
    assert attempt.judge() is Outcome.FINE
    assert attempt.silent_s == 0.0


def test_a_connection_that_hangs_is_abandoned_after_twice_the_time(clock: Clock) -> None:
    attempt = Attempt(BOUND_S, clock)
    attempt.begin()
    clock.now += 2 * BOUND_S - 0.1
    assert attempt.judge() is Outcome.FINE
    clock.now += 0.1
    assert attempt.judge() is Outcome.ABANDON


def test_calls_that_are_slow_get_twice_the_time_after_each_end_until_one_succeeds(
    attempt: Attempt, clock: Clock
) -> None:
    def silence() -> float:
        attempt.end(Marked())
        attempt.begin()
        began = clock.now
        while attempt.judge() is Outcome.FINE:
            clock.now += 1.0
        return clock.now - began

    assert [silence() for _ in range(3)] == [BOUND_S, 2 * BOUND_S, 4 * BOUND_S]
    attempt.succeed()
    assert silence() == BOUND_S
