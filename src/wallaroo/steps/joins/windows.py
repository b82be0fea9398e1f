"""Window joins: the accumulator of a window holds both sides' events.

Invariant: a pair is emitted once for each window that both of its events are in; an unmatched
event, if wanted, once for that window.  ``windows.range_machine`` determines the events of a
window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallaroo.steps.joins.step import HOW, LEFT, RIGHT, WindowJoin
from wallaroo.steps.losses import UNCOUNTED, Cell
from wallaroo.steps.windows.aggregation import BoundAggregation
from wallaroo.steps.windows.spec import Window

Sides = tuple[list[Any], list[Any]]  # events of the left side, and of the right one
Emit = Callable[[Any, Any, int, int], None]  # key, result, its time, the watermark before it
ALONE = (None,)


def _nothing() -> Sides:
    return [], []


def _add(sided: tuple[int, Any], sides: Sides) -> None:
    side, event = sided
    sides[side].append(event)


def _both(one: Sides, other: Sides) -> Sides:
    return one[LEFT] + other[LEFT], one[RIGHT] + other[RIGHT]


def _whole(key: Any, sides: Sides, window: Window) -> Sides:
    return sides


SIDES = BoundAggregation(_nothing, _add, _both, _whole, _both)


class Pairs:
    """Builder of results from a window's events."""

    def __init__(
        self,
        step: WindowJoin[Any],
        emit: Emit,
        failed: Callable[[Any, BaseException, Any], None],
        unmatched: Cell = UNCOUNTED,
    ):
        self._unmatched = unmatched
        self._function = step.function
        self._alone = HOW[step.spec.how]
        self._emit = emit
        self._failed = failed

    def emit(self, key: Any, sides: Sides, time: int, watermark: int) -> None:
        """Emit the pairs of one window, in the order of their left events."""
        lefts, rights = sides
        if not rights and LEFT in self._alone:
            self._cross(key, lefts, ALONE, time, watermark)
        elif not lefts and RIGHT in self._alone:
            self._cross(key, ALONE, rights, time, watermark)
        elif lefts and rights:
            self._cross(key, lefts, rights, time, watermark)
        else:
            self._unmatched[0] += len(lefts) + len(rights)

    def _cross(self, key: Any, lefts: Any, rights: Any, time: int, watermark: int) -> None:
        for left in lefts:
            for right in rights:
                try:
                    output = self._function(left, right)
                except BaseException as error:
                    self._failed((left, right), error, key)
                    continue
                if output is not None:
                    self._emit(key, output, time, watermark)
