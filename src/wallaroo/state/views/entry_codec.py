"""Stored form of the view's entries: LMDB key, checksum and value.

Where it runs: pure (workers).

The invariant: a stored value begins with the CRC-32 of the rest, seeded by the CRC-32 of its LMDB
key.  So a damaged value, a damaged key and a value under another key are all detected.

Order: LMDB keeps entries by key group, then step, then the bytes of the key.  Keys of up to
``KEY_BYTES_MAX`` bytes are stored as they are and therefore in order; longer ones are stored under
their digest, whose order is meaningless.  Among encoded keys (`engine.keys`) str keys are in the
order of their code points and bytes keys in theirs; the text of an int is not in numeric order.
"""

from __future__ import annotations

import hashlib
import struct
from zlib import crc32

# LMDB's own bound is 511 with our prefix; longer keys are stored under their digest
KEY_BYTES_MAX = 480
_PREFIX = struct.Struct(">HH")  # key group, step
_pack_prefix = _PREFIX.pack
_unpack_prefix = _PREFIX.unpack_from
_CRC = struct.Struct(">I")
_pack_crc = _CRC.pack
_unpack_crc = _CRC.unpack_from
_LENGTH = struct.Struct(">I")
# prefix of the stored form of long keys; no encoded key begins so (engine.keys: s, b, i)
_LONG = b"L"
_GROUP = struct.Struct(">H")


Stored = tuple[int, bytes, bytes]  # an entry as it is found in LMDB, checked: step, key, value


def stored_key(group: int, step: int, key: bytes) -> bytes:
    if len(key) > KEY_BYTES_MAX:
        key = _LONG + hashlib.blake2b(key, digest_size=32).digest()
    return _pack_prefix(group, step) + key


def range_bound(group: int, step: int, key: bytes) -> bytes:
    """Return the bound at which keys of a step from ``key`` on begin.

    Only keys that are stored in order count.

    >>> range_bound(1, 0, b"sb") < stored_key(1, 0, b"sb" + b"x" * 478) < range_bound(1, 1, b"")
    True
    """
    return _pack_prefix(group, step) + key[: KEY_BYTES_MAX + 1]


def group_prefix(group: int) -> bytes:
    """Return the prefix of the LMDB keys of a group's entries."""
    return _GROUP.pack(group)


def stored_value(stored: bytes, key: bytes, value: bytes) -> bytes:
    """Return the LMDB value of an entry whose LMDB key is ``stored``."""
    if len(key) > KEY_BYTES_MAX:
        value = _LENGTH.pack(len(key)) + key + value
    return _pack_crc(crc32(value, crc32(stored))) + value


def value_if_whole(stored: bytes, found: bytes | None) -> bytes | None:
    """Return the value after the checksum; None if there is none, or the checksum is wrong."""
    if found is None:
        return None
    value = found[4:]
    if len(found) < 4 or crc32(value, crc32(stored)) != _unpack_crc(found)[0]:
        return None
    return value


def long_value(key: bytes, value: bytes) -> bytes | None:
    """Return a long key's value, None if it is of another key with the same digest."""
    prefix = _LENGTH.pack(len(key)) + key
    return value[len(prefix) :] if value.startswith(prefix) else None


def checked(stored: bytes, found: bytes) -> Stored | None:
    """Return the entry of an LMDB key and value; None if the checksum is wrong."""
    value = found[4:]
    if len(found) < 4 or crc32(value, crc32(stored)) != _unpack_crc(found)[0]:
        return None
    step = _unpack_prefix(stored)[1]
    key = stored[4:]
    if key.startswith(_LONG):
        length = _LENGTH.unpack_from(value)[0]
        key = value[_LENGTH.size : _LENGTH.size + length]
        value = value[_LENGTH.size + length :]
    return step, key, value
