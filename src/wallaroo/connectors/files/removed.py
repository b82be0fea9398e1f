"""The files that were read and removed, as a position stores them.

Where it runs: driver.

A text of 20 characters a file, the newest last, in base 64: 12 bytes of its name's digest and the
lower 3 bytes of its size.  So a name stays read when its file is out of sight and returns.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Mapping
from functools import lru_cache
from hashlib import blake2b

NAME_CHARS = 16
ENTRY_CHARS = 20
FILES_MAX = 100_000  # 2 MB in each commit
NAMES_CACHED = 2 * FILES_MAX


@lru_cache(maxsize=NAMES_CACHED)
def _digest(name: str) -> str:
    digest = blake2b(name.encode(errors="surrogateescape"), digest_size=12)
    return b64encode(digest.digest()).decode()


def _size(size: int) -> str:
    return b64encode((size & 0xFFFFFF).to_bytes(3, "big")).decode()


@lru_cache(maxsize=4)
def _parsed(removed: str) -> dict[str, str]:
    """Return the sizes' characters by the names'."""
    starts = range(0, len(removed), ENTRY_CHARS)
    return {
        removed[at : at + NAME_CHARS]: removed[at + NAME_CHARS : at + ENTRY_CHARS] for at in starts
    }


def returned(removed: str, sizes: Mapping[str, int], present: Collection[str]) -> dict[str, bool]:
    """Return the removed files that are there again, and whether their sizes are the same.

    ``present`` are names that are not removed.

    >>> kept = with_changes("", {"a": 1, "b": 2}, ())
    >>> returned(kept, {"a": 1, "b": 3, "c": 1, "d": 1}, {"d"})
    {'a': True, 'b': False}
    """
    if not removed:
        return {}
    known = _parsed(removed)
    return {
        name: known[_digest(name)] == _size(size)
        for name, size in sizes.items()
        if name not in present and _digest(name) in known
    }


def with_changes(
    removed: str, new: Mapping[str, int], back: Collection[str], files_max: int = FILES_MAX
) -> str:
    """Add files with their sizes, without those that are back; forget the oldest above a bound.

    >>> with_changes(with_changes("", {"a": 1}, ()), {"b": 2}, ["a"], 1) == with_changes(
    ...     "", {"b": 2}, ()
    ... )
    True
    """
    if back:
        parsed = dict(_parsed(removed))
        for name in back:
            parsed.pop(_digest(name), None)
        removed = "".join(name + size for name, size in parsed.items())
    if new:
        removed += "".join(_digest(name) + _size(size) for name, size in new.items())
    return removed[-files_max * ENTRY_CHARS :]
