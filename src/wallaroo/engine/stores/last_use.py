"""Stored form of expiring state, with the time of its last use.

Invariant: a stored pickled state is a pickle of that very state. The time is pushed and popped at
its start, so that any reader of states can read it, and expiry finds the time without unpickling.

A step may gain or lose a ``ttl`` between two runs. So a stored state may lack the time, and its
next event is its first use; or it may have one that no longer counts.

A step's times are of one kind, by the clock or by event time, until its ``ttl_time`` changes. Then
new ones are marked: a time whose mark differs from the present kind's does not count. Times are
within ``TIME_LIMIT_NS`` of 1970; a mark moves them away from 1970 by that amount and needs no extra
bytes.
"""

from __future__ import annotations

import struct

from wallaroo.engine.blocks.ordered_keys import TIME_MIN
from wallaroo.steps.times import TIME_LIMIT_NS

_PICKLE = b"\x80\x05"  # protocol 5
_HEAD = struct.Struct("<4sqc")
_PUSHED = _PICKLE + b"\x8a\x08"  # an int of 8 bytes follows
_POP = b"0"
NEVER = TIME_MIN


def with_last_use(
    packed: bytes, used_ns: int, is_pickled: bool = True, *, is_marked: bool = False
) -> bytes:
    """Return a packed state as it is stored.

    The bytes of an application's own ``serialize`` are left unchanged.

    >>> import pickle
    >>> pickle.loads(with_last_use(pickle.dumps("state", 5), 7))
    'state'
    """
    body = packed.removeprefix(_PICKLE) if is_pickled else packed
    if is_marked and used_ns != NEVER:
        used_ns += TIME_LIMIT_NS if used_ns >= 0 else -TIME_LIMIT_NS
    return _HEAD.pack(_PUSHED, used_ns, _POP) + body


def last_use_of(stored: bytes, *, is_marked: bool = False) -> int | None:
    """Return the time of a stored state's last use; None if it has no valid one.

    A time is invalid if its mark differs from ``is_marked``: it is of the other kind.
    """
    if not _has_last_use(stored):
        return None
    used_ns: int = _HEAD.unpack_from(stored)[1]
    has_mark = not -TIME_LIMIT_NS < used_ns < TIME_LIMIT_NS
    if used_ns == NEVER or has_mark != is_marked:
        return None
    if not has_mark:
        return used_ns
    return used_ns - TIME_LIMIT_NS if used_ns > 0 else used_ns + TIME_LIMIT_NS


def without_last_use(stored: bytes) -> bytes:
    """Return the packed state without its last use; unchanged if it has none."""
    return stored[_HEAD.size :] if _has_last_use(stored) else stored


def _has_last_use(stored: bytes) -> bool:
    return stored.startswith(_PUSHED) and stored[_HEAD.size - 1 : _HEAD.size] == _POP
