"""Machine of the as-of join: left events with the newest right one.

The newest one is that at the left event's time.

Invariants, in addition to those of ``joins.machines`` and ``joins.waiting``: a row waits until the
watermark has passed it, and is then joined; the newest passed row of the right side is kept by key.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, islice
from operator import eq, itemgetter
from typing import Any

from wallaroo.steps.joins.step import LEFT, RIGHT, JoinSpec
from wallaroo.steps.joins.waiting import NEWEST, Stored, WaitingRows, time_of
from wallaroo.steps.losses import UNCOUNTED, Cell
from wallaroo.steps.windows.entries import order_of
from wallaroo.steps.windows.interface import Now
from wallaroo.steps.windows.spec import FINAL_WATERMARK

Row = tuple[int, Any, Any]  # time, key, event
Walk = Callable[[list[Row], list[Row], dict[Any, Row]], None]

LEFT_HOW = "left"
END: Row = (FINAL_WATERMARK, None, None)  # later than all events
NOTHING: Row = (-4 * FINAL_WATERMARK, None, None)  # older than any age
_key = itemgetter(1)
_time_and_key = itemgetter(0, 1)


class LatestMachine(WaitingRows):
    """Machine of the as-of join.

    ``sided``: a function per side that accepts its events; ``too_late`` accepts late ones.
    ``walk``: see ``walking``.
    """

    def __init__(
        self,
        spec: JoinSpec,
        stored: Stored,
        now: Now,
        walk: Walk,
        too_late: Callable[[Any, Any], None],
        batch: int,
        began: int,
    ):
        super().__init__(stored, batch, began, 2)
        self._within = spec.within_ns
        self._walk = walk
        self._newest: dict[Any, Row] = {}  # the right side's, which the watermark has passed
        self._known: dict[Any, Row | None] = {}  # the same, as it is stored
        self.sided = tuple(
            _taking(self._rows[side].append, now, too_late) for side in (LEFT, RIGHT)
        )

    def process(self, key: Any, sided: tuple[int, Any]) -> None:
        """Keep an event of either side."""
        side, event = sided
        self.sided[side](key, event)

    def pass_on(self, passed: list[list[Row]]) -> None:
        """Emit the passed rows by time and key; keep the newest value of each key."""
        lefts, values = passed
        for key in set(map(_key, chain(lefts, values))).difference(self._known):
            self._know(key)
        values.append(END)
        self._walk(_in_order(lefts), values, self._newest)

    def read(self, key: Any) -> list[Any]:
        """Return the pieces that are due; a key may be that of a newest row."""
        if key not in self._known:
            self._know(key)
        return super().read(key)

    def _know(self, key: Any) -> None:
        """Read the newest row of a key."""
        found = self._stored.entries.peek(key, NEWEST)
        row = None if found is None else (found[0], key, found[1])
        self._known[key] = row
        if row is not None:
            self._newest[key] = row

    def store(self) -> None:
        """Write the waiting rows, and the newest rows."""
        super().store()
        self.store_newest(self._known, self._newest, self._within)


def _taking(keep: Callable[[Row], None], now: Now, too_late: Callable[[Any, Any], None]) -> Any:
    """Return the function that keeps each event, or passes it on as late.

    Events are kept until the watermark passes them: before that, the value at their time is not
    known.
    """

    def process(key: Any, event: Any) -> None:
        if now.event_ns < now.watermark_ns:
            too_late(key, event)
        else:
            keep((now.event_ns, key, event))

    return process


def _in_order(rows: list[Row]) -> list[Row]:
    """Sort rows, already ordered by time, by time and key."""
    times = list(map(time_of, rows))
    if not any(map(eq, times, islice(times, 1, None))):
        return rows
    try:
        return sorted(rows, key=_time_and_key)
    except TypeError:
        return sorted(rows, key=lambda row: (row[0], order_of(row[1])))


def walking(spec: JoinSpec, emit: Callable[[Row, Row], None], unmatched: Cell = UNCOUNTED) -> Walk:
    """Return the function that joins rows of the two sides.

    It accepts rows of the left side, rows of the right side up to ``END``, both in time order, and
    the newest earlier right rows by key, which it updates. It emits each left row with the right
    row at its time, or ``NOTHING``.
    """
    age_max = FINAL_WATERMARK if spec.within_ns is None else spec.within_ns
    unwanted = None if spec.how == LEFT_HOW else NOTHING

    def walk(lefts: list[Row], values: list[Row], newest: dict[Any, Row]) -> None:
        following = iter(values)
        upcoming = next(following)
        upcoming_ns = upcoming[0]
        for left in lefts:
            event_ns, key, _ = left
            while upcoming_ns <= event_ns:
                newest[upcoming[1]] = upcoming
                upcoming = next(following)
                upcoming_ns = upcoming[0]
            value = newest.get(key, NOTHING)
            if event_ns - value[0] > age_max:
                value = NOTHING
            if value is not unwanted:
                emit(left, value)
            else:
                unmatched[0] += 1
        while upcoming is not END:
            newest[upcoming[1]] = upcoming
            upcoming = next(following)

    return walk
