"""Entries of windows with early results."""

from __future__ import annotations

from typing import Any

import wallaroo
from tests.window_machine import WindowMachine
from wallaroo.steps.windows.entries import ROW, Slot, pack_slot
from wallaroo.steps.windows.panes import PANE
from wallaroo.steps.windows.spec import RangeWindowSpec

EVERY, RANGE = 10, 1000
SPEC = RangeWindowSpec(range_ns=RANGE, slide_ns=RANGE, early_ns=EVERY)


class Numbers(wallaroo.Aggregation[int, list[int], tuple[int, ...]]):
    """The events of a window."""

    def initial_accumulator(self) -> list[int]:
        return []

    def update(self, event: int, found: list[int], /) -> None:
        found.append(event)

    def combine(self, left: list[int], right: list[int], /) -> list[int]:
        return left + right

    def output(self, key: Any, found: list[int], /) -> tuple[int, ...]:
        return tuple(found)


def test_a_key_has_few_entries_however_many_early_results_its_window_has() -> None:
    """What a batch reads and writes of a key does not grow with the length of its window."""
    machine = WindowMachine(SPEC, Numbers())
    shown = []
    for number in range(20):
        machine.put("a", number, number * EVERY)
        shown += machine.advance(number * EVERY)
        machine.commit()

        assert len(machine.entries.packed["a"]) <= 2

    assert [each.value for each in shown] == [tuple(range(end)) for end in range(2, 21)]
    assert [each.value for each in machine.end()][-1] == tuple(range(20))
    machine.commit()
    assert not machine.entries.packed


def test_the_entries_of_an_earlier_version_are_in_the_next_results() -> None:
    """Each early result had a slot of its own, which stayed until the window was over."""
    machine = WindowMachine(SPEC, Numbers())
    machine.watermark = 2 * EVERY
    machine.commit()
    for seen, number in ((EVERY, 1), (2 * EVERY, 2)):
        slot = Slot(seen, PANE, 0, 0, seen)
        machine.entries.put("a", pack_slot(slot), [number])
    machine.entries.add(RANGE, "a", ROW)

    machine.put("a", 3, 2 * EVERY)
    (early,) = machine.advance(3 * EVERY)
    machine.commit()
    (final,) = machine.end()
    machine.commit()

    assert early.value == final.value == (1, 2, 3)
    assert not machine.entries.packed


class Ended(Numbers):
    """The same, with the window's end."""

    def output(  # type: ignore[override]  # with the window
        self, key: Any, found: list[int], window: wallaroo.Window
    ) -> tuple[int, tuple[int, ...]]:
        return window.end, tuple(found)


def test_an_event_counts_in_early_results_from_the_first_multiple_after_its_slide_began() -> None:
    """17 came before 15 had passed, and is in a slide that begins then."""
    machine = WindowMachine(RangeWindowSpec(range_ns=10, slide_ns=5, early_ns=3), Ended())
    for number in (12, 14, 17):
        machine.put("a", number, number)

    shown = [(at, *each.value) for at in (15, 18, 20) for each in machine.advance(at)]

    assert [(at, numbers) for at, end, numbers in shown if end == 20] == [
        (15, (12, 14)),
        (18, (12, 14, 17)),
        (20, (12, 14, 17)),
    ]


def test_panes_are_combined_in_the_order_of_their_times_and_a_panes_events_as_they_came() -> None:
    machine = WindowMachine(RangeWindowSpec(range_ns=40, slide_ns=20), Ended())
    for number, at in ((1, 35), (2, 10), (3, 30), (4, 5)):
        machine.put("a", number, at)

    results = dict(each.value for each in machine.advance(40))

    assert results[40] == (2, 4, 1, 3)


def test_what_came_after_an_early_result_comes_after_what_it_has_shown() -> None:
    """Also in a result of the window's end that no early one precedes, though its time is older."""
    machine = WindowMachine(RangeWindowSpec(range_ns=25, slide_ns=25, early_ns=10), Numbers())
    machine.put("a", 1, 12)
    shown = [each.value for each in machine.advance(20)]
    machine.put("a", 2, 3)

    shown += [each.value for each in machine.advance(25)]

    assert shown == [(1,), (1, 2)]
