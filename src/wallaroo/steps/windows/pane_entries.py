"""Window entries stored by pane, all keys of a pane together.

Invariants:

* All entries of a slot are due at the slot's times, independent of their key, so no key has rows in
  time order.  Slots are named so that the committed ones that are due come first.
* Between two times at which any slot can be due, only entries that events touch are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

from wallaroo.steps.windows.entries import Live, Slot, pack_slot, unpack_slot
from wallaroo.steps.windows.spec import FINAL_WATERMARK, NO_WATERMARK

MISSES_MAX = 16  # absent entries of a slot that are looked up before the slot itself is


class PaneEntries(Protocol):
    """Committed objects by pane name and key, and their replacements."""

    earliest_ns: int | None

    def get(self, name: bytes, key: Any) -> Any:
        """Return the committed object; None if there is none."""

    def has_any(self, name: bytes) -> bool:
        """Return whether a pane has a committed entry."""

    def before(self, end: bytes) -> Iterable[tuple[bytes, Any, Any]]:
        """Yield name, key and object of the committed entries of all panes before a name."""

    def first_of_groups(self, low: bytes) -> Iterator[bytes]:
        """Yield the first name at or after ``low`` in each key group that has one."""

    def write(self, name: bytes, values: Mapping[Any, Any]) -> None:
        """Set objects of a pane."""

    def remove(self, name: bytes, keys: Collection[Any]) -> None:
        """Remove committed entries of a pane."""


class _Committed:
    """A slot's committed entries, as far as they were read."""

    __slots__ = ("is_complete", "keys", "misses", "unchanged")

    def __init__(self) -> None:
        self.keys: set[Any] = set()  # those of entries that were read
        self.unchanged: set[Any] = set()  # those of entries that were read to fire
        self.misses = 0
        self.is_complete = False  # no other key has a committed entry


class LivePanes(Live):
    """The entries that one task has touched in a batch, by pane.

    ``soonest`` returns a time before which no further slot becomes due.
    """

    soonest: Callable[[], int]

    def __init__(self, panes: PaneEntries):
        self.finds_all = False
        self._slots: dict[Slot, dict[Any, Any]] = {}
        self._subs: dict[Slot, bytes] = {}
        self._panes = panes
        self._committed: dict[Slot, _Committed] = {}
        self._removed: dict[Slot, list[Any]] = {}
        self._scanned_to = b""  # all committed entries of slots before it were read

    def _committed_in(self, slot: Slot) -> _Committed:
        committed = self._committed.get(slot)
        if committed is None:
            committed = self._committed[slot] = _Committed()
            committed.is_complete = self._sub(slot) < self._scanned_to
        return committed

    def get(self, slot: Slot, key: Any) -> Any:
        """Return the object of an entry; None if there is none."""
        objects = self.slot(slot)
        if key in objects:
            return objects[key]
        committed = self._committed_in(slot)
        if committed.is_complete or key in committed.keys:  # the latter: discarded
            return None
        value = self._panes.get(self._sub(slot), key)
        if value is not None:
            objects[key] = value
            committed.keys.add(key)
            return value
        committed.misses += 1
        if committed.misses == MISSES_MAX and not committed.keys:
            committed.is_complete = not self._panes.has_any(self._sub(slot))
        return None

    def put(self, slot: Slot, key: Any, value: Any) -> None:
        """Create or replace an entry's object."""
        self.slot(slot)[key] = value
        self._committed_in(slot).unchanged.discard(key)

    def discard(self, slot: Slot, key: Any) -> None:
        self.slot(slot).pop(key, None)
        if key in self._committed_in(slot).keys:
            self._removed.setdefault(slot, []).append(key)

    def due(self, until: int, are_related: bool = False) -> dict[Slot, dict[Any, Any]]:
        """Return all entries whose slot is due, by slot, in order."""
        if self.soonest() <= until:
            self._read_due(until)
        due = [slot for slot, objects in self._slots.items() if slot.when <= until and objects]
        return {slot: self._slots[slot] for slot in sorted(due)}

    def _read_due(self, until: int) -> None:
        end = _names_after(until)
        name = b""
        for read, key, value in self._panes.before(end):
            if read != name:
                name = read
                slot = unpack_slot(name)
                objects = self.slot(slot)
                committed = self._committed_in(slot)
            if key not in committed.keys:
                committed.keys.add(key)
                if key not in objects:
                    objects[key] = value
                    committed.unchanged.add(key)
        self._scanned_to = end
        for slot, committed in self._committed.items():
            committed.is_complete |= slot.when <= until

    def flush(self) -> None:
        """Write the touched entries, record when the first is due, and keep nothing in memory."""
        earliest = FINAL_WATERMARK
        next_due = self.next_due
        for slot, objects in self._slots.items():
            if not objects:
                continue
            earliest = min(earliest, next_due(slot, None))
            unchanged = self._committed_in(slot).unchanged
            if unchanged:
                objects = {key: objects[key] for key in objects if key not in unchanged}
            self._panes.write(self._sub(slot), objects)
        for slot, keys in self._removed.items():
            self._panes.remove(self._sub(slot), keys)
        soonest = self.soonest()
        if earliest > soonest:
            for name in self._panes.first_of_groups(self._scanned_to):
                earliest = min(earliest, next_due(unpack_slot(name), None))
                if earliest <= soonest:
                    break
        self._panes.earliest_ns = earliest if earliest < FINAL_WATERMARK else None
        self._slots = {}
        self._committed = {}
        self._removed = {}


def _names_after(until: int) -> bytes:
    """Return a name that sorts after exactly the slots due at a time."""
    if until >= FINAL_WATERMARK:
        return b"\xff" * 8
    return pack_slot(Slot(until + 1, 0, NO_WATERMARK, NO_WATERMARK, NO_WATERMARK))
