"""What a change of the cluster cost."""

from __future__ import annotations

import pytest

from wallaroo.spark.moves import Move, MoveMeter

ONE, TWO = frozenset({"one"}), frozenset({"one", "two"})


def settled() -> MoveMeter:
    meter = MoveMeter(128)
    for _ in range(5):
        meter.batch_begins()
        assert meter.batch_done(0, 0, 0.5, ONE) is None
    return meter


def test_a_joiner_is_told_with_the_first_batch_that_began_with_it() -> None:
    meter = settled()
    meter.warmed(1000)
    meter.changed(ONE)
    assert meter.batch_done(0, 0, 0.5, TWO) is None  # had begun before
    meter.batch_begins()
    assert meter.batch_done(64, 24, 0.7, TWO) == Move(("two",), (), 64, 128, 1024, pytest.approx(0.2))


def test_the_batch_that_waited_for_a_lost_host_is_part_of_the_pause() -> None:
    meter = settled()
    meter.batch_begins()
    meter.changed(ONE | {"gone"})  # noticed while the batch was under way
    assert meter.batch_done(64, 10, 3.5, ONE) is None
    meter.batch_begins()
    move = meter.batch_done(0, 0, 0.5, ONE)
    assert move == Move((), ("gone",), 64, 128, 10, pytest.approx(3.0))
    assert str(move) == "gone left: key groups moved: 64 of 128, state moved: 0.0 MB, pause 3.0 s"


def test_changes_in_quick_succession_are_told_as_one() -> None:
    meter = settled()
    meter.changed(ONE)
    meter.batch_begins()
    meter.changed(TWO)
    assert meter.batch_done(10, 0, 0.5, TWO | {"three"}) is None
    meter.batch_begins()
    move = meter.batch_done(20, 0, 0.5, TWO | {"three"})
    assert move is not None
    assert (move.joined, move.groups) == (("three", "two"), 30)


def test_after_a_change_is_told_the_next_one_begins_at_nothing() -> None:
    meter = settled()
    meter.changed(ONE)
    meter.batch_begins()
    meter.batch_done(64, 5, 0.5, TWO)
    meter.changed(TWO)
    meter.batch_begins()
    assert meter.batch_done(64, 0, 0.5, ONE) == Move((), ("two",), 64, 128, 0, 0.0)
