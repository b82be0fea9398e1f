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
