"""Keys: their bytes, their key group, and the task that owns it.

Where it runs: pure.  ``encode_key``, ``group_of`` and ``groups_of_task`` fix where state lives;
changing one would make every checkpoint unreadable.
"""

from __future__ import annotations

import itertools
import struct
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from wallaroo.steps.keys import WANTED, KeyPart
from wallaroo.steps.keys import Key as Key

GROUPS_KEPT = 1 << 16  # keys; 10 MB in a worker

_STR = b"s"
_BYTES = b"b"
_INT = b"i"
_TUPLE = b"t"
_LENGTH = struct.Struct(">I")
_pack_length = _LENGTH.pack
_PART_TYPES = frozenset({str, bytes, int})


def normalize_key(key: Any) -> Key:
    """Return the key as a plain str, bytes, int or tuple; a bool becomes the equal int.

    Raises TypeError for anything else, such as 1.0, though Python finds it equal to 1.

    >>> normalize_key("AAPL"), normalize_key(True), normalize_key(("AAPL", True))
    ('AAPL', 1, ('AAPL', 1))
    """
    if type(key) is tuple and key and _PART_TYPES.issuperset(map(type, key)):
        return key
    if isinstance(key, tuple) and key:
        return tuple(map(_normalize_part, key))
    return _normalize_part(key)


def _normalize_part(key: Any) -> KeyPart:
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bytes):
        return bytes.__getitem__(key, slice(None))
    if isinstance(key, int):
        return int.__int__(key)
    raise _no_key(key)


def encode_key(key: Key) -> bytes:
    """Return the key's bytes: one tag byte (s, b, i), then UTF-8, the bytes, or the decimal number.

    A tuple is a tag (t), then each part's length and bytes.  Raises TypeError
    for anything else.

    >>> encode_key("AAPL"), encode_key(b"AAPL"), encode_key(7)
    (b'sAAPL', b'bAAPL', b'i7')
    >>> encode_key(("A", 7)).replace(bytes(3), b"")
    b't\\x02sA\\x02i7'
    """
    if not isinstance(key, tuple) or not key:
        return _encode_part(key)
    encoded = _TUPLE
    for part in key:
        own = b"i%d" % part if type(part) is int else _encode_part(part)
        encoded += _pack_length(len(own)) + own
    return encoded


def _encode_part(key: Any) -> bytes:
    if isinstance(key, str):
        return _STR + key.encode("utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return _BYTES + key
    if isinstance(key, int):
        return _INT + b"%d" % key
    raise _no_key(key)


def _no_key(key: object) -> TypeError:
    """Return the error for an invalid key, or part of one, with a hint for a valid one.

    >>> _no_key(("AAPL", 7))
    TypeError('a key must be str, bytes, int, or a tuple of these, not a tuple in a tuple')
    """
    fix = ""
    if isinstance(key, tuple):
        kind = "a tuple in a tuple" if key else "an empty tuple"
        return TypeError(f"a key must be {WANTED}, not {kind}")
    if hasattr(key, "__index__"):  # such as numpy's integers
        fix = ": return int(key)"
    return TypeError(f"a key must be {WANTED}, not {type(key).__name__}{fix}")


def decode_key(encoded: bytes) -> Key:
    """Undo ``encode_key``.

    >>> [decode_key(encode_key(key)) for key in ("é", b"x", -3, ("é", b"x", -3))]
    ['é', b'x', -3, ('é', b'x', -3)]
    """
    if encoded[:1] == _TUPLE:
        return tuple(_parts(encoded))
    return _decode_part(encoded)


def _parts(encoded: bytes) -> Iterator[KeyPart]:
    at = 1
    while at < len(encoded):
        begin = at + _LENGTH.size
        at = begin + _LENGTH.unpack_from(encoded, at)[0]
        yield _decode_part(encoded[begin:at])


def _decode_part(encoded: bytes) -> KeyPart:
    tag = encoded[:1]
    rest = encoded[1:]
    if tag == _STR:
        return rest.decode("utf-8", "surrogatepass")
    return rest if tag == _BYTES else int(rest)


def group_of(encoded: bytes, key_groups: int) -> int:
    """Return the key group (0 ≤ group < key_groups) of an encoded key.

    It is the first 8 bytes of BLAKE2b, modulo the number of key groups.
    """
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big") % key_groups


def groups_of_task(task: int, tasks: int, key_groups: int) -> tuple[int, int]:
    """Return the half-open range of key groups that ``task`` of ``tasks`` owns.

    >>> [groups_of_task(task, 3, 128) for task in range(3)]
    [(0, 42), (42, 85), (85, 128)]
    """
    return task * key_groups // tasks, (task + 1) * key_groups // tasks


# by number of key groups
_located: defaultdict[int, dict[Key, tuple[int, bytes]]] = defaultdict(dict)


def locate(key: Key, key_groups: int) -> tuple[int, bytes]:
    """Return a normalized key's group and bytes; cached, because keys recur across batches.

    This avoids ``lru_cache``, which creates and keeps a tuple of the arguments per call.
    """
    located = _located[key_groups]
    place = located.get(key)
    if place is None:
        if len(located) >= GROUPS_KEPT:
            located.clear()
        encoded = encode_key(key)
        place = located[key] = (group_of(encoded, key_groups), encoded)
    return place


def group_of_key(key: Key, key_groups: int) -> int:
    return locate(key, key_groups)[0]


@lru_cache(maxsize=16)
def homes(key_groups: int) -> tuple[str, ...]:
    """Return one key of each key group, always the same.

    >>> [group_of_key(home, 3) for home in homes(3)]
    [0, 1, 2]
    """
    tasks: dict[int, str] = {}
    numbers = itertools.count()
    while len(tasks) < key_groups:
        key = f"waiting {next(numbers)}"
        tasks.setdefault(group_of(encode_key(key), key_groups), key)
    return tuple(tasks[group] for group in range(key_groups))


@lru_cache(maxsize=16)
def tasks_by_group(tasks: int, key_groups: int) -> tuple[int, ...]:
    """Return, for every key group, the task that owns it: the inverse of ``groups_of_task``."""
    owners: list[int] = []
    for task in range(tasks):
        first, end = groups_of_task(task, tasks, key_groups)
        owners.extend([task] * (end - first))
    return tuple(owners)
