"""Committed ordered entries of the in-process runner.

They are dictionaries, sorted when scanned.

Where it runs: anywhere; pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from wallaroo.engine.blocks.ordered_keys import after_prefix
from wallaroo.engine.stores.sorted_state import Change


class MemoryEntries:
    """Entries of one namespace, by key group; an ``EntryReader``."""

    def __init__(self) -> None:
        self._groups: dict[int, dict[bytes, bytes]] = {}
        self._sorted: dict[int, list[bytes]] = {}

    def get(self, group: int, stored: bytes) -> bytes | None:
        return self._groups.get(group, {}).get(stored)

    def scan(self, group: int, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        entries = self._groups.get(group)
        if not entries:
            return
        if group not in self._sorted:
            self._sorted[group] = sorted(entries)
        order = self._sorted[group]
        for at in range(bisect_left(order, low), bisect_left(order, high)):
            yield order[at], entries[order[at]]

    def scan_each(
        self, group: int, prefixes: Sequence[bytes]
    ) -> Iterator[tuple[bytes, bytes, bytes]]:
        for prefix in prefixes:
            for stored, value in self.scan(group, prefix, after_prefix(prefix)):
                yield prefix, stored, value

    def apply(self, changes: Iterable[Change]) -> None:
        for group, stored, value in changes:
            self._sorted.pop(group, None)
            if value is None:
                self._groups.get(group, {}).pop(stored, None)
            else:
                self._groups.setdefault(group, {})[stored] = value

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))
