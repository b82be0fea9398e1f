"""Accumulators of one step's windows in one batch, stored by pane.

They are those of one task.  Pane names sort by due time, so due panes are adjacent and need no
index.

Invariant: reads see the committed entries; nothing is written before the batch's end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from wallaroo.engine.blocks.keys import Key, decode_key
from wallaroo.engine.blocks.ordered_keys import (
    KEY_BYTES_MAX,
    after_prefix,
    join_key,
    key_prefix,
    split_pane,
)
from wallaroo.engine.stores.sorted_state import Change, EntryReader, Groups, Unreadable, raised
from wallaroo.steps.windows.entries import SLOT_BYTES


class PaneState:
    """Values by pane and key.

    ``earliest_ns``: when the first remaining one is due.
    """

    def __init__(
        self,
        reader: EntryReader,
        groups: Groups,
        dumps: Callable[[Any], bytes],
        loads: Callable[[bytes], Any],
        unreadable: Unreadable = raised,
    ):
        self.earliest_ns: int | None = None
        self._reader = reader
        self._groups = groups
        self._dumps = dumps
        self._loads = loads
        self._unreadable = unreadable
        self._written: list[tuple[bytes, Mapping[Key, Any]]] = []
        self._removed: list[tuple[bytes, Collection[Key]]] = []

    def get(self, name: bytes, key: Key) -> Any:
        """Return the committed value; None if there is none."""
        group, encoded = self._groups.locate(key)
        stored = name + key_prefix(encoded)
        raw = self._reader.get(group, stored)
        if raw is None:
            return None
        if len(encoded) > KEY_BYTES_MAX:
            raw = split_pane(stored, raw, SLOT_BYTES)[1]
        try:
            return self._loads(raw)
        except Exception as error:
            self._unreadable(error)

    def has_any(self, name: bytes) -> bool:
        """Return whether a pane has a committed entry."""
        end = after_prefix(name)
        return any(
            next(self._reader.scan(group, name, end), None) is not None
            for group in range(*self._groups[:2])
        )

    def before(self, end: bytes) -> Iterator[tuple[bytes, Key, Any]]:
        """Yield name, key and value of the committed entries of all panes before a name."""
        loads = self._loads
        for group in range(*self._groups[:2]):
            for stored, value in self._reader.scan(group, b"", end):
                encoded, raw = split_pane(stored, value, SLOT_BYTES)
                try:
                    value = loads(raw)
                except Exception as error:
                    self._unreadable(error)
                yield stored[:SLOT_BYTES], decode_key(encoded), value

    def first_of_groups(self, low: bytes) -> Iterator[bytes]:
        """Yield the first name at or after ``low`` in each key group that has one."""
        end = b"\xff" * SLOT_BYTES
        for group in range(*self._groups[:2]):
            for stored, _ in self._reader.scan(group, low, end):
                yield stored[:SLOT_BYTES]
                break

    def write(self, name: bytes, values: Mapping[Key, Any]) -> None:
        """Set values of a pane; they are packed at the batch's end."""
        self._written.append((name, values))

    def remove(self, name: bytes, keys: Collection[Key]) -> None:
        """Remove committed entries of a pane."""
        self._removed.append((name, keys))

    def changes(self) -> Iterator[Change]:
        """Yield the changes to write, once."""
        locate = self._groups.locate
        dumps = self._dumps
        for name, values in self._written:
            for key, value in values.items():
                group, encoded = locate(key)
                try:
                    packed = dumps(value)
                except AttributeError as error:  # a stored event lacks a new field with a slot
                    self._unreadable(error)
                yield group, name + key_prefix(encoded), join_key(encoded, packed)
        for name, keys in self._removed:
            for key in keys:
                group, encoded = locate(key)
                yield group, name + key_prefix(encoded), None

    def release(self) -> None:
        """Release all entries: the batch is over."""
        self._written.clear()
        self._removed.clear()
