"""``in_order``: a key's events in the order of time.

Invariants:

* An event's *place* is one nanosecond before its time, or the watermark of its partition before it
  if that is later. So it does not depend on how input was divided.
* Events are emitted in the order of their places; those of one place, in the order of key, time and
  content.  Each is emitted with its place as the watermark.  So later steps see a key's events in
  one order, and a timer or expiry at time ``t`` comes after all events up to ``t`` that are not
  late, and before all later ones.
* An event is emitted when the watermark is later than its place: no event that arrives after that
  has a place before the watermark.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from itertools import groupby, islice
from operator import eq
from typing import Any

from wallaroo.steps.joins.waiting import Stored, WaitingRows, time_of
from wallaroo.steps.windows.entries import order_of
from wallaroo.steps.windows.interface import Now

Row = tuple[int, Any, Any, int]  # place, key, event, its time
Dumps = Callable[[Any], bytes]


class OrderMachine(WaitingRows):
    """Machine of ``in_order``.

    ``too_late`` accepts late events; if it is None, they are emitted in their places.  ``dumps``
    packs events that are not to be pickled.
    """

    def __init__(
        self,
        stored: Stored,
        now: Now,
        emit: Callable[[Any, Any], None],
        dumps: Dumps,
        too_late: Callable[[Any, Any], None] | None,
        batch: int,
        began: int,
    ):
        super().__init__(stored, batch, began, 1)
        self._now = now
        self._emit = emit
        self._dumps = dumps
        keep = self._rows[0].append
        self.process = _taking_all(keep, now) if too_late is None else _taking(keep, now, too_late)

    def pass_on(self, passed: list[list[Row]]) -> None:
        """Emit the rows that were passed."""
        now = self._now
        emit = self._emit
        for place, key, event, event_ns in in_sequence(passed[0], self._dumps):
            now.event_ns = event_ns
            now.watermark_ns = place
            emit(key, event)


def _taking(
    keep: Callable[[Row], None], now: Now, too_late: Callable[[Any, Any], None]
) -> Callable[[Any, Any], None]:
    def process(key: Any, event: Any) -> None:
        event_ns = now.event_ns
        watermark_ns = now.watermark_ns
        if event_ns < watermark_ns:
            too_late(key, event)
        else:
            keep((max(event_ns - 1, watermark_ns), key, event, event_ns))

    return process


def _taking_all(keep: Callable[[Row], None], now: Now) -> Callable[[Any, Any], None]:
    def process(key: Any, event: Any) -> None:
        event_ns = now.event_ns
        keep((max(event_ns - 1, now.watermark_ns), key, event, event_ns))

    return process


def in_sequence(rows: list[Row], dumps: Dumps) -> Iterator[Row]:
    """Sort rows, already ordered by place, as the module's docstring defines.

    >>> rows = [(4, "b", "late", 3), (4, "a", "y", 5), (4, "a", "x", 5), (4, "a", "late", 2)]
    >>> [event for _, key, event, _ in in_sequence(rows, pickle.dumps) if key == "a"]
    ['late', 'x', 'y']
    """
    places = list(map(time_of, rows))
    if not any(map(eq, places, islice(places, 1, None))):
        yield from rows
        return
    for _, of_place in groupby(rows, time_of):
        for _, alike in groupby(sorted(of_place, key=_key_and_time), _key_and_time):
            same = list(alike)
            if len(same) > 1:
                same.sort(key=lambda row: content_of(row[2], dumps))
            yield from same


def _key_and_time(row: Row) -> tuple[Any, int]:
    return order_of(row[1]), row[3]


def content_of(event: Any, dumps: Dumps) -> bytes:
    """Return bytes that are the same for equal events, even if they share parts differently.

    They are a pickle without memo or, if that fails, the result of ``dumps``.
    """
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, 5)
    pickler.fast = True
    try:
        pickler.dump(event)
    except Exception:  # it contains itself, or the application has its own serializer
        return dumps(event)
    return buffer.getvalue()
