"""Layers of a resident task's writes since its view's commit.

Where it runs: worker, in a resident task.

A layer has states by key, and ordered entries.

Invariant: a layer is changed between epochs only, so that a scan may continue while its epoch
reads.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from wallaroo.engine.blocks.keys import Key
from wallaroo.engine.blocks.ordered_keys import after_prefix
from wallaroo.engine.stores.keyed_state import BulkRead
from wallaroo.engine.stores.sorted_state import Change, EntryReader

INSERTED_MAX = 32  # new keys that are inserted one by one; more are sorted
_key_of = itemgetter(0)


class WrittenEntries:
    """Entries with one name and key group, in order; None: removed."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes | None] = {}
        self._keys: list[bytes] = []

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Add changes, each newer than the existing entry."""
        values = self.values
        added = []
        for stored, value in changes:
            if stored not in values:
                added.append(stored)
            values[stored] = value
        if len(added) > INSERTED_MAX:
            self._keys += added
            self._keys.sort()  # cheap: it merges already sorted runs
            return
        for stored in added:
            insort(self._keys, stored)

    def span(self, low: bytes, high: bytes) -> range:
        """Return the places of the entries from ``low`` up to, not including, ``high``."""
        begin = bisect_left(self._keys, low)
        return range(begin, bisect_left(self._keys, high, begin))

    def within(self, span: range) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the entries of a span, in order."""
        values = self.values
        for stored in map(self._keys.__getitem__, span):
            yield stored, values[stored]


Groups = Mapping[int, WrittenEntries]


class WriteLayer:
    """One layer of writes, by step and by name of entries."""

    def __init__(self) -> None:
        self.states: dict[str, dict[Key, bytes | None]] = {}
        self.entries: dict[str, dict[int, WrittenEntries]] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was written."""
        return not any(self.states.values()) and not any(self.entries.values())

    @property
    def all_entries(self) -> dict[str, Iterator[Change]]:
        """Return the written entries, by name."""
        return {name: _rows(groups) for name, groups in self.entries.items()}

    def write(
        self,
        states: Mapping[str, Mapping[Key, bytes | None]],
        entries: Mapping[str, Iterable[Change]],
    ) -> None:
        for step, written in states.items():
            self.states.setdefault(step, {}).update(written)
        for name, changes in entries.items():
            by_group: dict[int, list[tuple[bytes, bytes | None]]] = {}
            for group, stored, value in changes:
                by_group.setdefault(group, []).append((stored, value))
            of_name = self.entries.setdefault(name, {})
            for group, rows in by_group.items():
                if group not in of_name:
                    of_name[group] = WrittenEntries()
                of_name[group].write(rows)


def _rows(groups: Groups) -> Iterator[Change]:
    for group, written in groups.items():
        for stored, value in written.values.items():
            yield group, stored, value


class BufferedStates:
    """States of one step in layers over a view's; a ``BulkRead``."""

    def __init__(
        self, newer: Mapping[Key, bytes | None], older: Mapping[Key, bytes | None], below: BulkRead
    ):
        self._newer = newer
        self._older = older
        self._below = below

    def __call__(self, key: Key) -> bytes | None:
        if key in self._newer:
            return self._newer[key]
        if key in self._older:
            return self._older[key]
        return self._below(key)

    def many(self, group: int, keys: Mapping[bytes, Key]) -> Iterator[tuple[Key, bytes | None]]:
        below: dict[bytes, Key] = {}
        for encoded, key in keys.items():
            if key in self._newer:
                yield key, self._newer[key]
            elif key in self._older:
                yield key, self._older[key]
            else:
                below[encoded] = key
        yield from self._below.many(group, below)


class BufferedEntries:
    """Entries of one name in layers over a view's; an ``EntryReader``."""

    def __init__(self, layers: Iterable[Groups], below: EntryReader):
        self._layers = [layer for layer in layers if layer]
        self._below = below

    def get(self, group: int, stored: bytes) -> bytes | None:
        for layer in self._layers:
            written = layer.get(group)
            if written is not None and stored in written.values:
                return written.values[stored]
        return self._below.get(group, stored)

    def scan(self, group: int, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        below = self._below.scan(group, low, high)
        written = [layer[group] for layer in self._layers if group in layer]
        rows = [layer.within(span) for layer in written if (span := layer.span(low, high))]
        return _newest(heapq.merge(*rows, below, key=_key_of)) if rows else below

    def scan_each(
        self, group: int, prefixes: Sequence[bytes]
    ) -> Iterable[tuple[bytes, bytes, bytes]]:
        below = self._below.scan_each(group, prefixes)
        written = [layer[group] for layer in self._layers if group in layer]
        if not written:
            return below
        newest: dict[bytes, tuple[bytes, bytes | None]] = {
            stored: (prefix, value) for prefix, stored, value in below
        }
        for layer in reversed(written):
            for prefix in prefixes:
                for stored, value in layer.within(layer.span(prefix, after_prefix(prefix))):
                    newest[stored] = prefix, value
        return [
            (prefix, stored, value)
            for stored, (prefix, value) in newest.items()
            if value is not None
        ]


def _newest(rows: Iterable[tuple[bytes, bytes | None]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the first of rows with the same key, without removed entries."""
    last = None
    for stored, value in rows:
        if stored != last:
            last = stored
            if value is not None:
                yield stored, value
