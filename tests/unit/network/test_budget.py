"""Which connection makes room for another."""

from __future__ import annotations

import math
import time

from wallaroo.network.connection_budget import Budget, Visitor


def entered(budget: Budget, name: str, closed: list[str], within_s: float = math.inf) -> Visitor:
    visitor = budget.enter(lambda: closed.append(name), within_s)
    assert visitor is not None
    return visitor


def test_the_oldest_that_has_not_proved_itself_makes_room() -> None:
    budget = Budget(3)
    closed: list[str] = []
    visitors = [entered(budget, name, closed) for name in "abc"]
    visitors[0].prove()
    entered(budget, "d", closed)
    entered(budget, "e", closed)
    assert closed == ["b", "c"]


def test_one_that_has_proved_itself_is_never_closed_and_a_new_one_is_refused() -> None:
    budget = Budget(2)
    closed: list[str] = []
    visitors = [entered(budget, name, closed) for name in "ab"]
    for visitor in visitors:
        visitor.prove()
    assert budget.is_full
    assert budget.enter(lambda: None) is None
    visitors[0].leave()
    visitors[0].leave()
    entered(budget, "c", closed)
    assert closed == []


def test_one_that_is_in_doubt_again_makes_room_after_those_before_it() -> None:
    budget = Budget(2)
    closed: list[str] = []
    first = entered(budget, "a", closed)
    first.prove()
    entered(budget, "b", closed)
    first.doubt()
    entered(budget, "c", closed)
    entered(budget, "d", closed)
    assert closed == ["b", "a"]


def test_those_whose_time_is_over_are_closed_once() -> None:
    budget = Budget(3)
    closed: list[str] = []
    entered(budget, "a", closed, 1.0)
    entered(budget, "b", closed, 1.0).within(math.inf)
    for _ in range(2):
        budget.close_late(time.monotonic() + 10.0)
    assert closed == ["a"]
