"""The view: a host's LMDB copy of committed state, so that a worker need not read the log.

Where it runs: worker.

The law of the view: it holds committed versions only.  Key group g at version n means: exactly the
entries of g after commit n.  A commit is known by its number and its id, since another one may have
had that number before commits were rolled back.  Catching up (one batch later, after a crash, after
a rollback, on an empty host) is one code path: begin with the snapshot if the view is older than it
or of another line of commits, then apply the deltas behind.  Entries and version change in one LMDB
transaction.  The whole directory may vanish at any time between two tasks; it is then built again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import lmdb

from wallaroo.errors import PeerError
from wallaroo.faults import fault_point
from wallaroo.state.delta import Entry
from wallaroo.state.history import NOTHING, History, Version

# LMDB environments per view: one writer at a time each, so tasks of one host seldom wait for one
# another
SHARDS = 16
MAP_BYTES_MAX = 1 << 36  # virtual address space per shard, not memory and not disk
# LMDB's own bound is 511 with our prefix; longer keys are stored under their digest
KEY_BYTES_MAX = 480
_PREFIX = struct.Struct(">HH")  # key group, step
_VERSION = struct.Struct(">q")  # and behind it the commit's id
_VERSIONS = b"\xff\xff version"  # key groups are below 65535, so this sorts behind all entries
_environments: dict[str, tuple[int, lmdb.Environment]] = {}  # per process: opening costs 0.3 ms


def _environment(path: Path) -> lmdb.Environment:
    """Return the open environment at ``path``, making it if needed; one that was deleted under us
    is dropped.
    """
    known = _environments.get(str(path))
    try:
        inode = os.stat(path / "data.mdb").st_ino
    except FileNotFoundError:
        inode = -1
    if known and known[0] == inode:
        return known[1]
    if known:
        known[1].close()
    path.mkdir(parents=True, exist_ok=True)
    try:
        opened = lmdb.open(
            str(path),
            map_size=MAP_BYTES_MAX,
            sync=False,
            metasync=False,
            max_readers=1024,
            readahead=False,
        )
        opened.reader_check()
    except lmdb.Error:  # a damaged view is worth nothing: it is rebuilt from the log
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True, exist_ok=True)
        opened = lmdb.open(
            str(path),
            map_size=MAP_BYTES_MAX,
            sync=False,
            metasync=False,
            max_readers=1024,
            readahead=False,
        )
    _environments[str(path)] = (os.stat(path / "data.mdb").st_ino, opened)
    return opened


def close_environments() -> None:
    """Close all environments of this process (tests, and a worker that ends)."""
    for _, environment in _environments.values():
        environment.close()
    _environments.clear()


def _stored_key(group: int, step: int, key: bytes) -> bytes:
    if len(key) > KEY_BYTES_MAX:
        key = b"L" + hashlib.blake2b(key, digest_size=32).digest()
    return _PREFIX.pack(group, step) + key


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What bringing key groups to a commit took."""

    entries: int = 0  # applied
    # for which more was read than the newest commit: the view had none of the two newest versions
    cold_groups: int = 0
    bytes_read: int = 0  # of snapshots and deltas, for cold groups: what has moved to this host

    def __add__(self, other: CatchUp) -> CatchUp:
        """Both together."""
        return CatchUp(
            self.entries + other.entries,
            self.cold_groups + other.cold_groups,
            self.bytes_read + other.bytes_read,
        )


class View:
    """One task's access to key groups [first, end) at version ``batch``."""

    def __init__(self, root: Path, key_groups: int, first: int, end: int):
        self._root, self._key_groups = root, key_groups
        self._first, self._end = first, end
        self._reads: dict[int, lmdb.Transaction] = {}

    def _shard(self, group: int) -> int:
        return group * SHARDS // self._key_groups

    def _groups_by_shard(self) -> dict[int, list[int]]:
        shards: dict[int, list[int]] = {}
        for group in range(self._first, self._end):
            shards.setdefault(self._shard(group), []).append(group)
        return shards

    def catch_up(self, history: History) -> CatchUp:
        """Bring all groups to ``history.batch`` and open them for reading; return what that
        took.
        """
        done, mark = CatchUp(), _mark(history.version)
        for shard, groups in self._groups_by_shard().items():
            environment = _environment(self._root / f"{shard:02d}")
            try:
                done += self._open_shard(shard, environment, groups, history, mark)
            except lmdb.DiskError as error:
                raise PeerError(
                    f"the view of the state cannot be written: {self._root}: {error}. Free the "
                    f"disk and run again."
                ) from error
        return done

    def _open_shard(
        self,
        shard: int,
        environment: lmdb.Environment,
        groups: list[int],
        history: History,
        mark: bytes,
    ) -> CatchUp:
        """Look at the versions in the very transaction that is kept for reading: a belated task may
        move a group at any time.
        """
        done = CatchUp()
        while True:
            read = environment.begin()
            get = read.get
            stale = [group for group in groups if get(_place(group), _UNMARKED) != mark]
            if not stale:
                self._reads[shard] = read
                return done
            read.abort()
            done += self._apply(environment, stale, history, mark)

    def _apply(
        self, environment: lmdb.Environment, groups: list[int], history: History, mark: bytes
    ) -> CatchUp:
        applied = cold_groups = bytes_read = 0
        with environment.begin(write=True) as write:
            for group in groups:
                behind = history.since(
                    group, _version(cast(bytes, write.get(_place(group), _UNMARKED)))
                )
                if behind.is_reset:
                    _clear(write, group)
                if behind.is_cold:
                    cold_groups += 1
                    bytes_read += behind.bytes
                for entries in behind.steps:
                    for entry in entries:
                        _put(write, group, entry)
                        applied += 1
                write.put(_place(group), mark)
            fault_point("view.apply")
        fault_point("view.applied")
        return CatchUp(applied, cold_groups, bytes_read)

    def read(self, group: int, step: int, key: bytes) -> bytes | None:
        """Return the stored bytes of one entry, or None."""
        found = cast(
            bytes | None, self._reads[self._shard(group)].get(_stored_key(group, step, key))
        )
        if found is None or len(key) <= KEY_BYTES_MAX:
            return found
        prefix = struct.pack(">I", len(key)) + key
        return found[len(prefix) :] if found.startswith(prefix) else None

    def entries(self, group: int) -> Iterator[Entry]:
        """Yield all entries of one group, by step and key."""
        prefix = struct.pack(">H", group)
        cursor = self._reads[self._shard(group)].cursor()
        if not cursor.set_range(prefix):
            return
        for stored, value in cast(Iterable[tuple[bytes, bytes]], cursor):
            if not stored.startswith(prefix):
                return
            step, key = _PREFIX.unpack_from(stored)[1], stored[_PREFIX.size :]
            if key.startswith(b"L"):
                length = struct.unpack_from(">I", value)[0]
                key, value = value[4 : 4 + length], value[4 + length :]
            yield Entry(step, key, value)

    def close(self) -> None:
        """End the read transactions."""
        for read in self._reads.values():
            read.abort()
        self._reads.clear()


def _mark(version: Version) -> bytes:
    return _VERSION.pack(version.batch) + version.id.encode()


_UNMARKED = _mark(NOTHING)


@cache
def _place(group: int) -> bytes:
    """Where a group's version is stored."""
    return _VERSIONS + _PREFIX.pack(group, 0)


def _version(mark: bytes) -> Version:
    return Version(_VERSION.unpack_from(mark)[0], mark[_VERSION.size :].decode())


def _clear(transaction: lmdb.Transaction, group: int) -> None:
    prefix = struct.pack(">H", group)
    cursor = transaction.cursor()
    found = cursor.set_range(prefix)
    while found and cast(bytes, cursor.key()).startswith(prefix):
        found = cursor.delete()


def _put(transaction: lmdb.Transaction, group: int, entry: Entry) -> None:
    stored = _stored_key(group, entry.step, entry.key)
    if entry.value is None:
        transaction.delete(stored)
    elif len(entry.key) > KEY_BYTES_MAX:
        transaction.put(stored, struct.pack(">I", len(entry.key)) + entry.key + entry.value)
    else:
        transaction.put(stored, entry.value)
