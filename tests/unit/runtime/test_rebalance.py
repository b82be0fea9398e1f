"""What a change of the cluster cost."""

from __future__ import annotations

import pytest

from wallaroo.runtime.rebalance import Move, MoveMeter

ONE, TWO = frozenset({"one"}), frozenset({"one", "two"})
ALL_ONE = dict.fromkeys(range(128), "one")
HALVES = {group: "one" if group < 64 else "two" for group in range(128)}


def settled() -> MoveMeter:
    meter = MoveMeter(128)
    for _ in range(5):
        meter.batch_begins()
        assert meter.batch_done(ALL_ONE, 0, 0.5, ONE) is None
    return meter


def test_a_joining_worker_is_reported_with_the_first_batch_that_began_with_it() -> None:
    meter = settled()
    meter.warmed(1000)
    meter.changed(ONE, ALL_ONE)
    assert meter.batch_done(ALL_ONE, 0, 0.5, TWO) is None  # had begun before
    meter.batch_begins()
    assert meter.batch_done(HALVES, 24, 0.7, TWO) == Move(
        ("two",), (), 64, 128, 1024, pytest.approx(0.2)
    )


def test_the_batch_that_waited_for_a_lost_host_is_part_of_the_pause() -> None:
    meter = settled()
    meter.batch_begins()
    meter.changed(TWO, HALVES)  # noticed while the batch was under way
    assert meter.batch_done(ALL_ONE, 10, 3.5, ONE) is None
    meter.batch_begins()
    move = meter.batch_done(ALL_ONE, 0, 0.5, ONE)
    assert move == Move((), ("two",), 64, 128, 10, pytest.approx(3.0))
    assert str(move) == "two left: key groups moved: 64 of 128, state moved: 0.0 MB, pause 3.0 s"


def test_changes_in_quick_succession_are_reported_as_one() -> None:
    meter = settled()
    meter.changed(ONE, ALL_ONE)
    meter.batch_begins()
    meter.changed(TWO, HALVES)
    three = TWO | {"three"}
    assert meter.batch_done(HALVES, 0, 0.5, three) is None
    meter.batch_begins()
    move = meter.batch_done({**HALVES, 0: "three"}, 0, 0.5, three)
    assert move is not None
    assert (move.joined, move.groups) == (("three", "two"), 65)


def test_a_key_group_that_comes_back_has_not_moved() -> None:
    meter = settled()
    meter.changed(TWO, HALVES)
    meter.batch_done(ALL_ONE, 0, 0.5, ONE)
    meter.batch_begins()
    move = meter.batch_done(HALVES, 0, 0.5, TWO)
    assert move is not None
    assert move.groups == 0


def test_after_a_change_is_reported_the_next_one_begins_at_nothing() -> None:
    meter = settled()
    meter.changed(ONE, ALL_ONE)
    meter.batch_begins()
    meter.batch_done(HALVES, 5, 0.5, TWO)
    meter.changed(TWO, HALVES)
    meter.batch_begins()
    assert meter.batch_done(ALL_ONE, 0, 0.5, ONE) == Move((), ("two",), 64, 128, 0, 0.0)
