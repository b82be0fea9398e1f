"""Index of keys with expiring state, in time order.

Keys that expire at one time share one row per key group: by the clock, which is read once per
batch, all keys that a batch uses expire together.

Invariant: reads see the committed rows with the batch's own changes on top; nothing is written
before the batch's end, when ``changes`` yields the differences.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Iterator
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple

from wallaroo.engine.blocks.keys import Key, encode_key
from wallaroo.engine.blocks.ordered_keys import TIME_MAX, TIME_MIN, decode_time, encode_time
from wallaroo.engine.stores.sorted_state import Change, EntryReader, Groups

_row = itemgetter(0)


class DueRow(NamedTuple):
    """Place of a row.

    ``stored`` is its stored key, which is a time; ``group`` is its key group.
    """

    stored: bytes
    group: int


class TTLIndex:
    """Keys by the time at which their state expires."""

    def __init__(self, reader: EntryReader, groups: Groups):
        self._reader = reader
        self._groups = groups
        self._keys: dict[DueRow, dict[bytes, Key]] = {}  # by touched row, then by encoded key
        self._stored: dict[DueRow, bytes | None] = {}  # the rows that were read
        self._left = encode_time(TIME_MIN)  # all stored rows before it were taken

    def add(self, time_ns: int, key: Key) -> None:
        """Record when a key's state expires; a repeated call changes nothing."""
        group, encoded = self._groups.locate(key)
        self._keys.setdefault(DueRow(encode_time(time_ns), group), {})[encoded] = key

    def take(self, up_to_ns: int, most: int) -> Iterator[tuple[DueRow, dict[bytes, Key]]]:
        """Yield and remove at most ``most`` keys that expire by a time.

        They are ordered by time, key group and encoded key. Keys added meanwhile are left.
        """
        end = encode_time(up_to_ns)
        touched = sorted(row for row, keys in self._keys.items() if keys and row.stored <= end)
        for row, value in heapq.merge(zip(touched, repeat(None)), self._committed(end), key=_row):
            if most <= 0:
                return
            keys = self._of(row, value)
            taken = {encoded: keys.pop(encoded) for encoded in sorted(keys)[:most]}
            most -= len(taken)
            self._left = row.stored
            if taken:
                yield row, taken

    def _committed(self, end: bytes) -> Iterator[tuple[DueRow, bytes]]:
        """Yield the stored rows from the first remaining one up to a time."""
        groups = range(*self._groups[:2])
        return heapq.merge(*(self._of_group(group, end) for group in groups), key=_row)

    def _of_group(self, group: int, end: bytes) -> Iterator[tuple[DueRow, bytes]]:
        for stored, value in self._reader.scan(group, self._left, end + b"\x00"):
            yield DueRow(stored, group), value

    def _of(self, row: DueRow, value: bytes | None = None) -> dict[bytes, Key]:
        """Return the keys of a row, read at most once; ``value``: the stored keys, if known."""
        keys = self._keys.setdefault(row, {})
        if row not in self._stored:
            value = self._reader.get(row.group, row.stored) if value is None else value
            self._stored[row] = value
            if value is not None:
                keys.update((encode_key(key), key) for key in pickle.loads(value))
        return keys

    def earliest_ns(self) -> int | None:
        """Return the time at which the next key expires."""
        times = [row.stored for row, keys in self._keys.items() if keys]
        for row, _ in self._committed(encode_time(TIME_MAX)):
            if row not in self._stored:
                times.append(row.stored)
                break
        return decode_time(min(times)) if times else None

    def changes(self) -> Iterator[Change]:
        for row in list(self._keys):
            keys = self._of(row)
            value = pickle.dumps([keys[encoded] for encoded in sorted(keys)], 5) if keys else None
            if value != self._stored[row]:
                yield row.group, row.stored, value
