"""The view: a host's LMDB copy of committed state.

Where it runs: worker.  It saves workers from reading the log.

The invariants of the view:

* It holds committed versions only.  Key group g at version n means: exactly the entries of g after
  commit n.  A commit is known by its number and its id, since another one may have had that number
  before a rollback.  Entries and version change in one LMDB transaction.
* Catching up (one batch later, after a crash, after a rollback, on an empty host) is one code path:
  begin with the snapshot if the view is older than it or of another line of commits, then apply the
  later deltas.
* Nothing damaged is ever returned: every value is checked when it is read (`state.entry_codec`),
  and if a key is not found, the entries on both sides of its place are.  If a check fails, or LMDB
  does, the shard is removed, rebuilt from the log, and the read is repeated.
* The whole directory may vanish at any time between two tasks; it is then built again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import lmdb

from wallaroo.errors import PeerError
from wallaroo.state.log.delta import Entry
from wallaroo.state.log.history import Past
from wallaroo.state.views.entry_codec import (
    KEY_BYTES_MAX,
    Stored,
    checked,
    group_prefix,
    long_value,
    range_bound,
    stored_key,
    value_if_whole,
)
from wallaroo.state.views.environments import drop, open_environment, prepare_view, shrink, writing
from wallaroo.state.views.view_updates import (
    UNMARKED,
    VERSIONS,
    CatchUp,
    apply_commits,
    mark_of,
    place_of,
)

# LMDB environments per view: one writer at a time each, so tasks of one host seldom wait for one
# another
SHARDS = 16
REBUILDS_MAX = 3  # per shard and task: a disk that damages new data is broken

Found = TypeVar("Found")


class _DamagedError(Exception):
    """Error of a wrong checksum in the view."""


_DAMAGE = (
    _DamagedError,
    lmdb.BadTxnError,
    lmdb.CorruptedError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageFullError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
)


class View:
    """One task's access to key groups [first, end) at one version.

    ``rebuilt`` counts the damaged shards that were removed and built again.
    """

    def __init__(self, root: Path, key_groups: int, first: int, end: int):
        self._root = root
        self._key_groups = key_groups
        self._groups = range(first, end)
        self._history: Past | None = None
        self._reads: dict[int, lmdb.Transaction] = {}
        self._rebuilds: dict[int, int] = {}
        self.rebuilt = 0

    def _shard(self, group: int) -> int:
        return group * SHARDS // self._key_groups

    def _path(self, shard: int) -> Path:
        return self._root / f"{shard:02d}"

    def _groups_by_shard(self) -> dict[int, list[int]]:
        shards: dict[int, list[int]] = {}
        for group in self._groups:
            shards.setdefault(self._shard(group), []).append(group)
        return shards

    # -- catching up

    def catch_up(self, history: Past) -> CatchUp:
        """Bring all groups to the history's version and open them for reading; return the cost."""
        self._history = history
        if prepare_view(self._root):
            self.rebuilt += SHARDS
        done = CatchUp()
        for shard in self._groups_by_shard():
            done += self._with_repair(shard, partial(self._open_shard, shard))
        return done

    def _open_shard(self, shard: int) -> CatchUp:
        """Open a shard for reading, with its groups at the history's version.

        The versions are checked in the very transaction that is kept for reading: a belated task
        may move a group at any time.
        """
        opened = open_environment(self._path(shard))
        self.rebuilt += opened.was_damaged
        groups = self._groups_by_shard()[shard]
        history = cast(Past, self._history)
        mark = mark_of(history.version)
        done = CatchUp()
        while True:
            read = opened.environment.begin()
            get = read.get
            stale = [group for group in groups if get(place_of(group), UNMARKED) != mark]
            if not stale:
                self._reads[shard] = read
                return done
            read.abort()
            with writing(self._path(shard), opened.environment):
                done += apply_commits(opened.environment, stale, history, mark)
            if shrink(self._path(shard), opened.environment):
                opened = open_environment(self._path(shard))

    def _with_repair(self, shard: int, action: Callable[[], Found]) -> Found:
        """Return the result of ``action``; if the shard is found damaged, rebuild it first."""
        while True:
            try:
                return action()
            except _DAMAGE as error:
                self._rebuild(shard, error)
            except lmdb.Error as error:
                if not _is_of_disk(error):
                    raise
                raise PeerError(
                    f"the view of the state cannot be written: {self._root}: {error}. Free the "
                    f"disk, or check it, and run again."
                ) from error

    def _rebuild(self, shard: int, error: Exception) -> None:
        self._rebuilds[shard] = self._rebuilds.get(shard, 0) + 1
        if self._rebuilds[shard] > REBUILDS_MAX:
            raise PeerError(
                f"the view of the state in {self._path(shard)} is damaged repeatedly: "
                f"{error}. The state itself is safe in the checkpoint. Replace the disk, or give "
                f"this host another folder with WALLAROO_VIEW_DIR."
            ) from error
        self.rebuilt += 1
        read = self._reads.pop(shard, None)
        if read is not None:
            read.abort()
        drop(self._path(shard))

    def _read_in(self, shard: int) -> lmdb.Transaction:
        if shard not in self._reads:
            self._open_shard(shard)
        return self._reads[shard]

    # -- reading

    def read(self, group: int, step: int, key: bytes) -> bytes | None:
        """Return the stored bytes of one entry, or None."""
        stored = stored_key(group, step, key)
        read = self._reads[self._shard(group)]
        try:
            value = value_if_whole(stored, cast(bytes | None, read.get(stored)))
            if value is None:
                value = _careful_get(read, stored)
        except _DAMAGE:
            value = self._read_carefully(group, stored)
        if value is None or len(key) <= KEY_BYTES_MAX:
            return value
        return long_value(key, value)

    def read_many(self, group: int, step: int, keys: Collection[bytes]) -> list[bytes | None]:
        """Return the stored bytes of many keys of one group, in order, more cheaply."""
        stored = [stored_key(group, step, key) for key in keys]
        try:
            found = list(map(self._reads[self._shard(group)].get, stored))
        except _DAMAGE:
            return [self.read(group, step, key) for key in keys]
        values = map(value_if_whole, stored, cast(list[bytes | None], found))
        return [
            self.read(group, step, key) if value is None or len(key) > KEY_BYTES_MAX else value
            for key, value in zip(keys, values, strict=True)
        ]

    def _read_carefully(self, group: int, stored: bytes) -> bytes | None:
        """Return an entry that seems missing or damaged; rebuild its shard if it is damaged."""
        shard = self._shard(group)
        return self._with_repair(shard, lambda: _careful_get(self._read_in(shard), stored))

    def entries(self, group: int) -> list[Entry]:
        """Return all entries of one group, by step and key."""
        return list(map(Entry._make, self.rows(group)))

    def rows(self, group: int) -> list[Stored]:
        """Return the same as plain tuples, which cost less to create."""
        return self._walk(group, group_prefix(group), group_prefix(group + 1))

    def scan(
        self, group: int, step: int, low: bytes = b"", high: bytes | None = None
    ) -> list[Entry]:
        """Return one step's entries with low <= key < high, in the order of their keys' bytes.

        Only keys of up to ``KEY_BYTES_MAX`` bytes are in order; longer ones are not found.
        """
        return list(map(Entry._make, self.scan_rows(group, step, low, high, None)))

    def scan_rows(
        self, group: int, step: int, low: bytes, high: bytes | None, limit: int | None
    ) -> list[Stored]:
        """Return the same, up to ``limit`` of them, as plain tuples, which cost less to create."""
        end = range_bound(group, step + 1, b"") if high is None else range_bound(group, step, high)
        found = self._walk(group, range_bound(group, step, low), end, limit)
        return [entry for entry in found if len(entry[1]) <= KEY_BYTES_MAX]

    def scan_each(
        self, group: int, step: int, prefixes: Sequence[bytes]
    ) -> list[tuple[bytes, bytes, bytes]]:
        """Return prefix, key and value of a step's entries with any of these prefixes, in order.

        The prefixes are in order, and none begins with another.
        """
        shard = self._shard(group)
        bounds = [(range_bound(group, step, prefix), prefix) for prefix in prefixes]
        return self._with_repair(shard, lambda: _each(self._read_in(shard), bounds))

    def entries_after(self, group: int, step: int, key: bytes, limit: int) -> list[Stored]:
        """Return one step's next entries in the order of LMDB, which keys of any length have.

        They are those after a key's, or the first ones if ``key`` is empty.
        """
        low = stored_key(group, step, key) + b"\x00" if key else range_bound(group, step, b"")
        return self._walk(group, low, range_bound(group, step + 1, b""), limit)

    def _walk(self, group: int, low: bytes, high: bytes, limit: int | None = None) -> list[Stored]:
        shard = self._shard(group)
        try:
            return _range(self._reads[shard], low, high, limit)
        except (KeyError, *_DAMAGE):  # the shard is not open, or needs a rebuild
            return self._with_repair(shard, lambda: _range(self._read_in(shard), low, high, limit))

    def close(self) -> None:
        """End the read transactions."""
        for read in self._reads.values():
            read.abort()
        self._reads.clear()


def _is_of_disk(error: lmdb.Error) -> bool:
    """Return whether a disk caused it; LMDB reports partial writes this way."""
    return isinstance(error, lmdb.DiskError) or str(error).endswith(os.strerror(errno.EIO))


def _careful_get(read: lmdb.Transaction, stored: bytes) -> bytes | None:
    """Look up an entry.

    Raises _DamagedError if its value is damaged, or, if it is missing, a neighbour's key or value
    is: that may be the entry itself under a damaged key.
    """
    cursor = read.cursor()
    if not cursor.set_range(stored):
        if cursor.last():
            _check(cursor)
        return None
    key, value = _check(cursor)
    if key == stored:
        return value
    if cursor.prev():
        _check(cursor)
    return None


def _check(cursor: lmdb.Cursor) -> tuple[bytes, bytes | None]:
    """Return key and value at a cursor; None for a group's version entry."""
    key, found = cast(tuple[bytes, bytes], cursor.item())
    if key.startswith(VERSIONS):
        return key, None
    value = value_if_whole(key, found)
    if value is None:
        raise _DamagedError(f"the checksum of an entry is wrong (at {key[:40]!r})")
    return key, value


def _check_around(cursor: lmdb.Cursor) -> None:
    """Check the entry at a cursor, and the one before it; leave the cursor where it is."""
    _check(cursor)
    if not cursor.prev():
        cursor.first()
        return
    _check(cursor)
    cursor.next()


def _each(
    read: lmdb.Transaction, bounds: Iterable[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes, bytes]]:
    """Return the entries behind each bound and its prefix; seek only if it is not the next one.

    Raises _DamagedError as ``_careful_get`` does.
    """
    cursor = read.cursor()
    entries: list[tuple[bytes, bytes, bytes]] = []
    key = b""
    for bound, prefix in bounds:
        if key < bound:
            if not cursor.set_range(bound):
                if cursor.last():
                    _check(cursor)
                break
            key = cast(bytes, cursor.key())
            if not key.startswith(bound):
                _check_around(cursor)
        elif not key.startswith(bound):
            _check(cursor)
        while key.startswith(bound):
            entry = checked(key, cast(bytes, cursor.value()))
            if entry is None:
                raise _DamagedError(f"the checksum of an entry is wrong (at {key[:40]!r})")
            entries.append((prefix, *entry[1:]))
            if not cursor.next():
                return entries
            key = cast(bytes, cursor.key())
    return entries


def _range(read: lmdb.Transaction, low: bytes, high: bytes, limit: int | None) -> list[Stored]:
    cursor = read.cursor()
    entries: list[Stored] = []
    if not cursor.set_range(low):
        return entries
    for key, value in cast(Iterable[tuple[bytes, bytes]], cursor):
        if key >= high or len(entries) == limit:
            break
        entry = checked(key, value)
        if entry is None:
            raise _DamagedError(f"the checksum of an entry is wrong (at {key[:40]!r})")
        entries.append(entry)
    return entries
