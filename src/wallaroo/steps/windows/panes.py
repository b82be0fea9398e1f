"""The panes of range windows: entries by time and watermark.

Invariant: an event's pane depends on its time, and on its watermark only through ``Grid.oldest``
and the round of early results, which never fall as a watermark rises. So events of one pane stay in
one pane if their watermarks are raised to a floor: they may be aggregated before that floor is
known.
"""

from __future__ import annotations

from typing import NamedTuple

from wallaroo.steps.windows.entries import Slot
from wallaroo.steps.windows.grid import Grid
from wallaroo.steps.windows.spec import DROP, NO_WATERMARK, RangeWindowSpec

PANE = 1  # the kind of a pane's slot


class Pane(NamedTuple):
    """A slot with its half-open times and watermarks.

    It is empty if they are unknown.
    """

    slot: Slot
    lower: int
    upper: int
    floor: int
    ceiling: int


def may_add_up(spec: object) -> bool:
    """Return whether events of a pane may be aggregated before lateness is known.

    They may if late ones are dropped, and none is in a window twice.
    """
    return isinstance(spec, RangeWindowSpec) and spec.policy == DROP and not spec.lateness_ns


def are_stored_by_pane(spec: object) -> bool:
    """Return whether a pane's entries of all keys are due together.

    Corrections and empty windows are due by key.  Early results of sliding windows combine panes of
    the keys that had events, which are looked up by key.
    """
    if not isinstance(spec, RangeWindowSpec) or spec.lateness_ns or spec.empty_limit:
        return False
    return spec.early_ns is None or spec.range_ns == spec.slide_ns


class Panes:
    def __init__(self, spec: RangeWindowSpec) -> None:
        self.grid = Grid.of(spec)
        self._early_ns = spec.early_ns

    def at(self, time: int, watermark: int) -> Pane | None:
        """Return the pane of an event; None if all its windows have fired."""
        grid = self.grid
        first = grid.first(time)
        last = grid.last(time)
        oldest = grid.oldest(watermark)
        if last < oldest:
            return None
        if first < oldest:
            slot, _, _ = self.slot_of(oldest, last, watermark)
            return Pane(slot, 1, 0, 0, 0)
        slot, floor, ceiling = self.slot_of(first, last, watermark)
        return Pane(slot, *grid.pane(time), floor, ceiling)

    def slot_of(self, first: int, last: int, watermark: int) -> tuple[Slot, int, int]:
        """Return the slot of the times in the windows ``first`` to ``last``, and its watermarks.

        The two watermarks are the half-open range in which the slot is valid.
        """
        due = self.grid.due(first)
        early = self._early_ns
        if early is None:
            return Slot(due, PANE, last, first), NO_WATERMARK, due
        # the pane contributes to a result as soon as its last window has begun
        begin = self.grid.start(last)
        shown = (max(watermark, begin) // early + 1) * early
        floor = NO_WATERMARK if watermark < begin else shown - early
        return Slot(min(shown, due), PANE, last, first, shown), floor, min(shown, due)
