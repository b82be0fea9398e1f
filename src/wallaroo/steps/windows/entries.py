"""Entries that windows keep: one per pane and key.

Entries are read when touched or due, and written once per batch.

Invariants:

* An entry belongs to a *slot* and a key.  A slot begins with a time: until the watermark reaches
  it, only events touch its entries.  A key with a thousand panes has a thousand entries,
  and a batch writes those it touched.
* Every key with entries has a row in time order, no later than the watermark at which one of them
  is due.  So firing is a range scan, not a lookup of every key. If a key's entries become due later
  than before, its row stays: it is not rewritten until it is due.
* After a batch whose watermark was ``w`` every row is later than ``w``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from wallaroo.steps.windows.spec import FINAL_WATERMARK


class Slot(NamedTuple):
    """Place of entries of one kind.

    ``when`` is the watermark from which they may be due.
    """

    when: int
    kind: int
    last: int = 0
    first: int = 0
    seen: int = 0


_PACKED = struct.Struct(">QBQQQ")
SLOT_BYTES = _PACKED.size
_HALF = 1 << 63


def pack_slot(slot: Slot) -> bytes:
    """Return the name of a slot's entries: bytes that sort as the slots do.

    The bytes are made once for a slot, not per key.

    >>> pack_slot(Slot(-1, 0)) < pack_slot(Slot(1, 0)) < pack_slot(Slot(1, 1, -3))
    True
    """
    when, kind, last, first, seen = slot
    return _PACKED.pack(when + _HALF, kind, last + _HALF, first + _HALF, seen + _HALF)


def unpack_slot(packed: bytes) -> Slot:
    """Undo ``pack_slot``.

    >>> unpack_slot(pack_slot(Slot(5, 1, -2, -3)))
    Slot(when=5, kind=1, last=-2, first=-3, seen=0)
    """
    when, kind, last, first, seen = _PACKED.unpack(packed)
    return Slot(when - _HALF, kind, last - _HALF, first - _HALF, seen - _HALF)


AT_END = FINAL_WATERMARK - 1  # ``when`` of entries that are due only at the end of input
ROW = 0  # the name of a key's rows

NextDue = Callable[[Slot, Any], int]


class Entries(Protocol):
    """Objects by key and slot.

    They are those of the last commit, and those put since.
    """

    def get(self, key: Any, sub: Any) -> Any:
        """Return the object; None if there is none."""

    def peek(self, key: Any, sub: Any) -> Any:
        """Return a committed object, to be read only; None if there is none."""

    def between(self, key: Any, low: Any, high: Any) -> Iterator[tuple[Any, Any]]:
        """Yield committed objects from one sub up to, not including, another; to be read only."""

    def add(self, key: Any, sub: Any, value: Any) -> None:
        """Set the object of a sub that has none."""

    def put(self, key: Any, sub: Any, value: Any) -> None:
        """Set the object."""

    def delete(self, key: Any, sub: Any) -> None:
        """Remove the object, if there is one."""

    def subs(self, key: Any) -> list[Any]:
        """Return the slots of a key, in order."""

    def find_all(self, keys: Iterable[Any]) -> None:
        """Look up all slots of keys at once."""


class Row(Protocol):
    """Time at which a key is due."""

    @property
    def time_ns(self) -> int:
        """Return the watermark at which the key is due."""

    @property
    def key(self) -> Any:
        """Return the key."""

    @property
    def sub(self) -> Any:
        """Return the name that it was added under."""


class Rows(Protocol):
    """Rows in the order of time."""

    def add(self, time_ns: int, key: Any, sub: Any) -> None:
        """Add a row; adding it again has no effect."""

    def take(self, up_to_ns: int) -> Iterable[Row]:
        """Yield and remove all rows at or before a time."""


class Live:
    """The entries that one task has touched in a batch, as objects.

    The objects are mutable.

    ``finds_all``: keys have few entries, and most batches need several of a key. ``next_due``: that
    of the machine that owns the entries.
    """

    next_due: NextDue

    def __init__(self, entries: Entries, rows: Rows):
        self.finds_all = False
        self._slots: dict[Slot, dict[Any, Any]] = {}
        self._subs: dict[Slot, bytes] = {}
        self._unread: dict[Any, list[Slot]] = {}  # by key, for keys whose rows were taken
        self._row_by: dict[Any, int] = {}  # by key: time of its row, at the latest
        self._entries = entries
        self._rows = rows

    def slot(self, slot: Slot) -> dict[Any, Any]:
        found = self._slots.get(slot)
        if found is None:
            found = self._slots[slot] = {}
        return found

    def _sub(self, slot: Slot) -> bytes:
        found = self._subs.get(slot)
        if found is None:
            found = self._subs[slot] = pack_slot(slot)
        return found

    def get(self, slot: Slot, key: Any) -> Any:
        """Return the object of an entry; None if there is none."""
        objects = self.slot(slot)
        if key in objects:
            return objects[key]
        if self.finds_all:
            self._entries.find_all((key,))
        value = self._entries.get(key, self._sub(slot))
        if value is not None:
            objects[key] = value
            due = self.next_due(slot, value)
            if due < self._row_by.get(key, FINAL_WATERMARK):
                self._row_by[key] = due
        return value

    def put(self, slot: Slot, key: Any, value: Any) -> None:
        """Create or replace an entry's object."""
        self.slot(slot)[key] = value

    def discard(self, slot: Slot, key: Any) -> None:
        objects = self._slots.get(slot)
        if objects is not None:
            objects.pop(key, None)
        self._entries.delete(key, self._sub(slot))

    def load_due(self, slot: Slot, until: int) -> None:
        """Read the slot's entry of every key that is due at ``until``.

        It is the only one that a key has.
        """
        objects = self.slot(slot)
        sub = self._sub(slot)
        for row in self._rows.take(until):
            key = row.key
            self._unread[key] = []
            if key not in objects:
                value = self._entries.get(key, sub)
                if value is not None:
                    objects[key] = value

    def slots(self, key: Any) -> list[Slot]:
        """Return the slots of a key's committed entries, in order."""
        return [unpack_slot(sub) for sub in self._entries.subs(key)]

    def due(self, until: int, are_related: bool = False) -> dict[Slot, dict[Any, Any]]:
        """Return all entries whose slot is due, by slot, in order.

        ``are_related``: if an entry of a key is due, its entries that are not due are needed as
        well.
        """
        keys = [row.key for row in self._rows.take(until)]
        if are_related:
            keys += self._touched(until)
        self._entries.find_all(keys)
        for key in keys:
            if key not in self._unread:
                self._unread[key] = self.slots(key)
        for key, slots in self._unread.items():
            for slot in slots:
                if slot.when <= until:
                    self.get(slot, key)
            slots[:] = [slot for slot in slots if slot.when > until]
        found = [slot for slot, objects in self._slots.items() if slot.when <= until and objects]
        return {slot: self._slots[slot] for slot in sorted(found)}

    def _touched(self, until: int) -> set[Any]:
        due = (objects for slot, objects in self._slots.items() if slot.when <= until)
        return set().union(*due)

    def flush(self) -> None:
        """Write the touched entries, and rows with the keys' next times; keep nothing in memory."""
        rows: dict[Any, int] = {
            key: min(slot.when for slot in slots) for key, slots in self._unread.items() if slots
        }
        for slot, objects in self._slots.items():
            sub = self._sub(slot)
            for key, value in objects.items():
                self._entries.put(key, sub, value)
                due = self.next_due(slot, value)
                if due < rows.get(key, FINAL_WATERMARK):
                    rows[key] = due
            objects.clear()
        for key, due in rows.items():
            if key in self._unread or due < self._row_by.get(key, FINAL_WATERMARK):
                self._rows.add(due, key, ROW)


def order_of(key: Any) -> tuple[str, Any]:
    """Return the sort key of a key, whatever its type.

    >>> sorted([("b", 1), 7, (2, "a"), "b", ("a", "a")], key=order_of)
    [7, 'b', (2, 'a'), ('a', 'a'), ('b', 1)]
    """
    if isinstance(key, tuple):
        return "tuple", tuple(map(order_of, key))
    return type(key).__name__, key


def in_order(keys: Iterable[Any]) -> list[Any]:
    """Return keys in a fixed order, whatever their types."""
    try:
        return sorted(keys)
    except TypeError:
        return sorted(keys, key=order_of)
