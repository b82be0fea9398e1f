"""Application of commits to a shard of the view.

Where it runs: worker.  The invariant: a key group's entries and version change in one transaction.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import cast

import lmdb

from wallaroo.instrumentation.faults import fault_point
from wallaroo.state.log.delta import Row
from wallaroo.state.log.history import NOTHING, Past, Version
from wallaroo.state.views.entry_codec import group_prefix, stored_key, stored_value

VERSIONS = b"\xff\xff version"  # key groups are below 65535, so this sorts after all entries
ENTRIES_AT_ONCE = 2048  # in one transaction: a page of 4 KiB each, if they are far from each other
_VERSION = struct.Struct(">q")  # followed by the commit's id


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Cost of bringing key groups to a commit."""

    entries: int = 0  # applied
    # groups that needed more than the newest commit: the view had none of the two newest versions
    cold_groups: int = 0
    bytes_read: int = 0  # from snapshots and deltas, for cold groups: state that moved to this host

    def __add__(self, other: CatchUp) -> CatchUp:
        return CatchUp(
            self.entries + other.entries,
            self.cold_groups + other.cold_groups,
            self.bytes_read + other.bytes_read,
        )


def apply_commits(
    environment: lmdb.Environment,
    groups: list[int],
    history: Past,
    mark: bytes,
    entries_at_once: int = ENTRIES_AT_ONCE,
) -> CatchUp:
    """Bring key groups to the history's version; return the cost.

    Transactions are bounded, but for their last group: LMDB holds the pages changed by one in
    memory, and keeps that memory for the next.
    """
    done = CatchUp()
    left = deque(groups)
    while left:
        entries = 0
        with environment.begin(write=True) as write:
            while left and entries < entries_at_once:
                brought = _bring(write, left.popleft(), history, mark)
                entries += brought.entries
                done += brought
            fault_point("view.apply")
        fault_point("view.applied")
    return done


def _bring(write: lmdb.Transaction, group: int, history: Past, mark: bytes) -> CatchUp:
    version = _version(cast(bytes, write.get(place_of(group), UNMARKED)))
    missing = history.since(group, version)
    if missing.is_reset:
        _clear(write, group)
    applied = sum(_apply(write, group, entries) for entries in missing.steps)
    write.put(place_of(group), mark)
    return CatchUp(applied, int(missing.is_cold), missing.bytes if missing.is_cold else 0)


def mark_of(version: Version) -> bytes:
    return _VERSION.pack(version.batch) + version.id.encode()


UNMARKED = mark_of(NOTHING)


@cache
def place_of(group: int) -> bytes:
    """Return the key under which a group's version is stored."""
    return VERSIONS + group_prefix(group)


def _version(mark: bytes) -> Version:
    try:
        return Version(_VERSION.unpack_from(mark)[0], mark[_VERSION.size :].decode())
    except (struct.error, UnicodeDecodeError):  # damaged: it matches no commit
        return Version(0, "")


def _clear(transaction: lmdb.Transaction, group: int) -> None:
    prefix = group_prefix(group)
    cursor = transaction.cursor()
    found = cursor.set_range(prefix)
    while found and cast(bytes, cursor.key()).startswith(prefix):
        found = cursor.delete()


def _apply(transaction: lmdb.Transaction, group: int, entries: Iterable[Row]) -> int:
    put = transaction.put
    delete = transaction.delete
    applied = 0
    for step, key, value in entries:
        stored = stored_key(group, step, key)
        if value is None:
            delete(stored)
        else:
            put(stored, stored_value(stored, key, value))
        applied += 1
    return applied
