"""Index of one step's due entries by time, for one batch.

Its rows (time, key, sub), those of one task, are scanned in this order.

Rows that only ``take`` removes may be stored in *chunks*: rows of a key group that a batch adds and
that are due at about the same time form one record under the first one's time. When that is due,
all are read, and those not yet due are rewritten in smaller chunks. A chunk spans at most a
``SPREAD``th of the first row's remaining wait, so a row is rewritten only a few times.

Invariant: reads see the committed rows with the batch's own changes on top; nothing is written
before the batch's end, when ``changes`` yields the differences.
"""

from __future__ import annotations

import hashlib
import heapq
import pickle
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from wallaroo.engine.blocks.keys import Key, decode_key
from wallaroo.engine.blocks.ordered_keys import (
    TIME_MAX,
    TIME_MIN,
    Sub,
    decode_time,
    due_key,
    encode_time,
    join_key,
    split_due,
)
from wallaroo.engine.stores.sorted_state import Change, EntryReader, Groups

SPREAD = 16
CHUNK_MAX = 256  # rows
TIME_BYTES = 8
CHUNK = b"\x00\x00"  # replaces the length of a row's key, which is never 0
_DIGEST_BYTES = 8
Row = tuple[bytes, bytes]  # its stored key and value


class Due(NamedTuple):
    """An entry due at a time."""

    time_ns: int
    key: Key
    sub: Sub
    # the watermark when it was added; in processing time, the clock
    added_at_ns: int


def is_chunk(stored: bytes) -> bool:
    """Return whether a stored key belongs to a chunk."""
    return stored[TIME_BYTES : TIME_BYTES + len(CHUNK)] == CHUNK


class DueIndex:
    """Index of due entries.

    ``has_chunks``: rows are never discarded, but may be re-added.
    """

    def __init__(self, reader: EntryReader, groups: Groups, *, has_chunks: bool = False):
        self._reader = reader
        self._groups = groups
        self._has_chunks = has_chunks
        # rows added or taken in this batch, by stored key, and whether a commit has the row
        self._rows: dict[bytes, Due | None] = {}
        self._is_stored: dict[bytes, bool] = {}  # only for rows known to be stored or not
        self._group_of: dict[bytes, int] = {}
        self._added: list[bytes] = []  # a heap of stored keys; some of the rows may be gone
        self._left = encode_time(TIME_MIN)  # all stored rows before it were taken
        self._passed = TIME_MIN  # all rows up to it were

    def add(self, time_ns: int, key: Key, sub: Sub, added_at_ns: int = TIME_MIN) -> None:
        """Add ``sub`` of ``key`` at its due time; a repeated call changes nothing."""
        group, encoded = self._groups.locate(key)
        self._add(due_key(time_ns, encoded, sub), group, Due(time_ns, key, sub, added_at_ns))

    def _add(self, stored: bytes, group: int, due: Due) -> None:
        self._group_of[stored] = group
        self._rows[stored] = due
        heapq.heappush(self._added, stored)

    def discard(self, time_ns: int, key: Key, sub: Sub) -> None:
        """Remove a row, if present."""
        group, encoded = self._groups.locate(key)
        stored = due_key(time_ns, encoded, sub)
        self._group_of[stored] = group
        self._rows[stored] = None

    def take(self, up_to_ns: int) -> Iterator[Due]:
        """Yield and remove, in order, all entries due by a time, including rows added meanwhile."""
        committed = self._committed(up_to_ns)
        following = next(committed, None)
        end = encode_time(up_to_ns)
        while True:
            added = self._added
            if following is None or (added and added[0] <= following[0]):
                if not added or added[0][: len(end)] > end:
                    break
                stored = heapq.heappop(added)
                due = self._rows[stored]
            else:
                stored, group, value = following
                self._left = stored
                following = next(committed, None)
                if stored in self._rows:
                    self._is_stored[stored] = True
                    continue  # taken, discarded, or added again: then it is in the heap
                self._group_of[stored] = group
                self._is_stored[stored] = True
                if is_chunk(stored):
                    self._rows[stored] = None
                    self._open(group, value)
                    continue
                due = _due_of(stored, value)
            if due is not None:
                self._rows[stored] = None
                yield due
        self._passed = max(self._passed, up_to_ns)
        if up_to_ns < TIME_MAX:
            self._left = max(self._left, encode_time(up_to_ns + 1))

    def _open(self, group: int, chunk: bytes) -> None:
        """Add the rows of a chunk to those of this batch."""
        for stored, value in pickle.loads(chunk):
            if stored not in self._rows:
                self._is_stored[stored] = False
                self._add(stored, group, _due_of(stored, value))

    def _committed(self, up_to_ns: int = TIME_MAX) -> Iterator[tuple[bytes, int, bytes]]:
        high = b"\xff" * 9 if up_to_ns == TIME_MAX else encode_time(up_to_ns + 1)
        return heapq.merge(
            *(self._of_group(group, self._left, high) for group in range(*self._groups[:2]))
        )

    def _of_group(self, group: int, low: bytes, high: bytes) -> Iterator[tuple[bytes, int, bytes]]:
        for stored, value in self._reader.scan(group, low, high):
            yield stored, group, value

    def earliest_ns(self) -> int | None:
        """Return the time of the next due row."""
        while self._added and self._rows[self._added[0]] is None:
            heapq.heappop(self._added)
        times = [decode_time(stored) for stored in self._added[:1]]
        stored = next((row for row, _, _ in self._committed() if row not in self._rows), None)
        if stored is not None:
            times.append(decode_time(stored))
        return min(times, default=None)

    def changes(self) -> Iterator[Change]:
        """Yield the changes to write, once."""
        added: dict[int, list[Row]] = {}
        for stored, due in self._rows.items():
            group = self._group_of[stored]
            if due is None:
                if self._was_stored(stored):
                    yield group, stored, None
            elif self._has_chunks:
                added.setdefault(group, []).append((stored, self._packed(due)))
            else:
                yield group, stored, self._packed(due)
        for group, rows in added.items():
            for chunk in self._chunks(sorted(rows)):
                yield group, *_record(chunk)

    def _packed(self, due: Due) -> bytes:
        _, encoded = self._groups.locate(due.key)
        return join_key(encoded, encode_time(due.added_at_ns))

    def _chunks(self, rows: Iterable[Row]) -> Iterator[list[Row]]:
        """Split ordered rows into runs with similar due times."""
        chunk: list[Row] = []
        last = b""
        for row in rows:
            stored, _ = row
            if chunk and (stored[:TIME_BYTES] > last or len(chunk) == CHUNK_MAX):
                yield chunk
                chunk = []
            if not chunk:
                first = decode_time(stored)
                last = encode_time(min(first + max(first - self._passed, 0) // SPREAD, TIME_MAX))
            chunk.append(row)
        if chunk:
            yield chunk

    def release(self) -> None:
        """Release all rows: the batch is over."""
        for touched in (self._rows, self._is_stored, self._group_of, self._added):
            touched.clear()

    def _was_stored(self, stored: bytes) -> bool:
        """Return whether a commit has a row; look it up only if it was removed."""
        known = self._is_stored.get(stored)
        if known is None:
            known = self._reader.get(self._group_of[stored], stored) is not None
        return known


def _record(chunk: list[Row]) -> Row:
    """Return the stored key and the value of a chunk: those of a row, if it is the only one."""
    if len(chunk) == 1:
        return chunk[0]
    value = pickle.dumps(chunk, 5)
    # two batches may add chunks that begin alike
    digest = hashlib.blake2b(value, digest_size=_DIGEST_BYTES).digest()
    return chunk[0][0][:TIME_BYTES] + CHUNK + digest, value


def _due_of(stored: bytes, value: bytes) -> Due:
    time_ns, key, sub, added = split_due(stored, value)
    return Due(time_ns, decode_key(key), sub, decode_time(added))
