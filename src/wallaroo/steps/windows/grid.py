"""The arithmetic of aligned, sliding windows: from times to windows.

Invariants of a grid:

* Window ``k`` covers ``[start(k), end(k))``, with ``start(k) = offset + k * slide``; the grid is
  the same for all keys.
* A window is due when the watermark reaches its end and the delay, which is rounded up to a
  multiple of the slide, as in Wallaroo.
* A *pane* is all times that belong to the same windows, ``first`` to ``last``.  There are one or
  two panes to a slide, so an event costs one update however many windows overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

from wallaroo.steps.windows.spec import RangeWindowSpec


@dataclass(frozen=True, slots=True)
class Grid:
    """Windows of a range, every slide, from an offset.

    Any unit of time will do.
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
