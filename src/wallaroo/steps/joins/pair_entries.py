"""Stored form of the events that wait in a join of pairs.

The invariants:

* An entry is named by side, time, the batch that wrote it, and a number.  Its events are in the
  order of their time, and of their arrival.
* An event whose end has a result of its own, or that changes while it waits, is a separate entry.
  All others of a key, side and batch form *runs*, named by the time of their last event, so a scan
  of names from a time finds all later events. A run of one event, and those of earlier versions,
  have the form of a single entry.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from wallaroo.steps.windows.entries import AT_END, Slot, pack_slot

OLD = pack_slot(Slot(AT_END, 0))  # both sides of a key, in one entry of earlier versions
AFTER_ALL = b"\xff" * 9  # sorts after all names, that of ``OLD`` included
RUN_MAX = 64  # events; marking one rewrites the marks and bytes of the whole run
_SUB = struct.Struct(">BQQL")  # side, time, batch, number within it
_TIME_IN = struct.Struct(">BQ")
_HALF = 1 << 63

Order = tuple[int, int, int]  # time, batch, number within it


def pack_sub(side: int, time: int, batch: int, number: int) -> bytes:
    """Return the name of an entry: bytes that sort as these do.

    >>> pack_sub(0, -1, 9, 0) < pack_sub(0, 1, 2, 0) < pack_sub(0, 1, 2, 1) < pack_sub(1, 0, 0, 0)
    True
    """
    return _SUB.pack(side, time + _HALF, batch, number)


def side_and_time(sub: bytes) -> tuple[int, int]:
    """Return an entry's side, and the time of its last event.

    >>> side_and_time(pack_sub(1, -7, 2, 3))
    (1, -7)
    """
    side, time = _TIME_IN.unpack_from(sub)
    return side, time - _HALF


def names_from(side: int, time: int) -> bytes:
    """Return a name that sorts before a side's entries at or after a time."""
    return _TIME_IN.pack(side, time + _HALF)


class Waiting:
    """An event that waits for others."""

    __slots__ = ("event", "has_met", "order", "time")

    def __init__(self, order: Order, event: Any, has_met: bool = False):
        self.order = order
        self.time = order[0]
        self.event = event
        self.has_met = has_met


class Single(Waiting):
    """An event that is an entry of its own."""

    __slots__ = ("end", "is_changed", "is_gone", "is_new", "total")

    def __init__(self, order: Order, event: Any, has_met: bool, end: int, total: Any = None):
        self.order = order
        self.time = order[0]
        self.event = event
        self.has_met = has_met
        # the latest time of events that it meets; removed once the watermark is later
        self.end = end
        self.total = total  # accumulator of the right events it met, if they are aggregated
        self.is_new = True
        self.is_changed = False
        self.is_gone = False


def order_of_entry(sub: bytes) -> Order:
    """Return the order of the first event of an entry that has the time of its name."""
    _, time, batch, number = _SUB.unpack(sub)
    return time - _HALF, batch, number


class Run:
    """Stored events of a key, side and batch.

    Only their match marks change.
    """

    __slots__ = ("_met", "_packed", "_times", "events", "sub")

    def __init__(self, sub: bytes, value: tuple[Any, ...], loads: Callable[[bytes], Any]):
        time, batch, first = order_of_entry(sub)
        self.sub = sub
        if len(value) == 3:
            self._times, self._met, self._packed = value
            unpacked = loads(self._packed)
        else:
            event, has_met = value
            self._times = (time,)
            self._met = bytes([has_met])
            self._packed = None
            unpacked = [event]
        self.events = [
            Waiting((at, batch, number), event, bool(has_met))
            for number, (at, event, has_met) in enumerate(
                zip(self._times, unpacked, self._met, strict=True), first
            )
        ]

    def changed(self) -> tuple[Any, ...] | None:
        """Return the entry's value if events have met others for the first time, else None."""
        met = bytes(event.has_met for event in self.events)
        if met == self._met:
            return None
        if self._packed is None:
            return self.events[0].event, True
        return self._times, met, self._packed


def unmet_in(value: tuple[Any, ...]) -> int:
    """Return how many events of a stored run have met none."""
    return int(value[1].count(0)) if len(value) == 3 else int(not value[1])


def runs_of(
    side: int, batch: int, events: Sequence[Waiting], dumps: Callable[[Any], bytes]
) -> Iterator[tuple[bytes, tuple[Any, ...]]]:
    """Yield names and values of the entries of a batch's new, ordered events."""
    for first in range(0, len(events), RUN_MAX):
        part = events[first : first + RUN_MAX]
        sub = pack_sub(side, part[-1].time, batch, first)
        if len(part) == 1:
            yield sub, (part[0].event, part[0].has_met)
            continue
        times = tuple([each.time for each in part])
        met = bytes([each.has_met for each in part])
        yield sub, (times, met, dumps([each.event for each in part]))


in_order = attrgetter("order")
