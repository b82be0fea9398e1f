"""Fences that a run's own earlier session may explain, and those that it may not."""

from __future__ import annotations

from wallaroo.connectors.kafka.fencing import DOUBT_S, RETRIES_MAX, OwnSessions


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def opened(own: OwnSessions) -> None:
    own.begin()
    own.opened()


def test_a_fence_of_the_only_session_comes_from_another_process() -> None:
    own = OwnSessions(Clock())
    opened(own)
    assert not own.explain()


def test_a_fence_after_sessions_that_ended_in_order_comes_from_another_process() -> None:
    own = OwnSessions(Clock())
    for _ in range(3):
        opened(own)
        own.end()
    opened(own)
    assert not own.explain()


def test_a_fence_soon_after_the_successor_of_a_session_was_opened_is_retried() -> None:
    clock = Clock()
    own = OwnSessions(clock)
    own.begin()  # and nothing answers
    clock.now += 300
    opened(own)
    clock.now += DOUBT_S
    assert own.explain()


def test_a_fence_long_afterwards_comes_from_another_process() -> None:
    clock = Clock()
    own = OwnSessions(clock)
    own.begin()
    opened(own)
    clock.now += DOUBT_S + 1
    assert not own.explain()


def test_fences_in_a_row_are_retried_a_bounded_number_of_times() -> None:
    own = OwnSessions(Clock())
    own.begin()
    explained = 0
    opened(own)
    while own.explain():
        explained += 1
        opened(own)
    assert explained == RETRIES_MAX
    own.succeed()
    assert own.explain()
