"""Grids of aligned, sliding windows, and panes: entries by time and watermark.

Invariant: an event's pane depends on its time, and on its watermark only through ``Grid.oldest``
and the round of early results, which never fall as a watermark rises. So events of one pane stay in
one pane if their watermarks are raised to a floor: they may be aggregated before that floor is
known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from wallaroo.steps.windows.entries import Slot
from wallaroo.steps.windows.spec import DROP, NO_WATERMARK, RangeWindowSpec


@dataclass(frozen=True, slots=True)
class Grid:
    """Windows of a range, every slide, from an offset.

    Any unit of time will do.

    Invariants of a grid:

    * Window ``k`` covers ``[start(k), end(k))``, with ``start(k) = offset + k * slide``; the grid
      is the same for all keys.
    * A window is due when the watermark reaches its end and the delay, which is rounded up to a
      multiple of the slide, as in Wallaroo.
    * A *pane* is all times that belong to the same windows, ``first`` to ``last``. There are one or
      two panes to a slide, so an event costs one update however many windows overlap.
    """

    range: int
    slide: int
    delay: int
    offset: int = 0

    @classmethod
    def of(cls, spec: RangeWindowSpec) -> Grid:
        """Return a specification's grid, its delay rounded up to a multiple of the slide."""
        delay = -(-spec.delay_ns // spec.slide_ns) * spec.slide_ns
        return cls(spec.range_ns, spec.slide_ns, delay, spec.offset_ns % spec.slide_ns)

    def first(self, time: int) -> int:
        """Return the first window that ``time`` belongs to.

        >>> Grid(range=10, slide=5, delay=0).first(12)
        1
        """
        return (time - self.offset - self.range) // self.slide + 1

    def last(self, time: int) -> int:
        """Return the last window that ``time`` belongs to.

        >>> Grid(range=10, slide=5, delay=0).last(12)
        2
        """
        return (time - self.offset) // self.slide

    def start(self, window: int) -> int:
        """Return the first time of a window."""
        return self.offset + window * self.slide

    def end(self, window: int) -> int:
        """Return the first time after a window."""
        return self.offset + window * self.slide + self.range

    def due(self, window: int) -> int:
        """Return the watermark at which a window fires."""
        return self.offset + window * self.slide + self.range + self.delay

    def oldest(self, watermark: int) -> int:
        """Return the oldest window that has not fired at ``watermark``."""
        return self.first(watermark - self.delay)

    def pane(self, time: int) -> tuple[int, int]:
        """Return the half-open bounds of the times in the same windows as ``time``."""
        first = self.first(time)
        last = self.last(time)
        lower = max(self.start(last), self.end(first - 1))
        upper = min(self.start(last + 1), self.end(first))
        return lower, upper


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
