"""Keys of ordered entries: bytes that sort like the encoded values.

Where it runs: pure.  These encodings determine the location and order of entries; changing one
would make every checkpoint unreadable.

* A *sub* names one entry of a key: an int (64 bits, signed), str, bytes, or a tuple of these.
  ``encode_sub`` keeps their order, among subs of one shape.
* An entry is stored under ``entry_key``: a key's entries are adjacent, ordered by sub.
* A row due at a time is stored under ``due_key``, ordered by time, then key, then sub.
* A pane of windows is stored under its name and ``key_prefix``, ordered by name, then key.

A key of more than ``KEY_BYTES_MAX`` bytes is represented by its digest; the entry's value then
starts with the key itself (``join_key``), to identify it.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

Sub = int | str | bytes | tuple[Any, ...]

KEY_BYTES_MAX = 224  # limit for an encoded key that is stored as it is
SUB_BYTES_MAX = 224  # limit for an encoded sub; the view keeps order for 480 bytes in all
TIME_MIN = -(1 << 63)
TIME_MAX = (1 << 63) - 1
_TIME = struct.Struct(">Q")
_LENGTH = struct.Struct(">H")
_LONG_LENGTH = struct.Struct(">I")
_DIGEST = 0xFFFF  # replaces a length: the digest of a long key follows
_DIGEST_BYTES = 32
_INT = b"\x10"
_BYTES = b"\x20"
_STR = b"\x30"
_TUPLE = b"\x40"
_END = b"\x00"


def encode_time(time_ns: int) -> bytes:
    """Return 8 bytes that sort like the times.

    >>> encode_time(-1) < encode_time(0) < encode_time(1)
    True
    """
    return _TIME.pack(time_ns + (1 << 63))


def decode_time(encoded: bytes, at: int = 0) -> int:
    return int(_TIME.unpack_from(encoded, at)[0]) - (1 << 63)


def encode_sub(sub: Sub) -> bytes:
    """Return bytes that sort like the subs.

    Raises TypeError for an invalid sub, ValueError for one that is too large.

    >>> encode_sub(("b", 1)) < encode_sub(("b", 2)) < encode_sub(("ba", 0))
    True
    """
    encoded = _encode_part(sub)
    if len(encoded) > SUB_BYTES_MAX:
        raise ValueError(
            f"the name of an entry may have {SUB_BYTES_MAX} bytes, this one has {len(encoded)}: "
            f"{sub!r:.80}"
        )
    return encoded


def _encode_part(part: Any) -> bytes:
    kind = type(part)
    if kind is int:
        if not TIME_MIN <= part <= TIME_MAX:
            raise ValueError(f"an int in the name of an entry has at most 64 bits: {part}")
        return _INT + encode_time(part)
    if kind is str:
        return _STR + _escape(part.encode("utf-8", "surrogatepass"))
    if kind is bytes:
        return _BYTES + _escape(part)
    if isinstance(part, tuple):
        return _TUPLE + b"".join(map(_encode_part, part)) + _END
    raise TypeError(
        f"the name of an entry is an int, str, bytes or a tuple of them, not {kind.__name__}"
    )


def _escape(raw: bytes) -> bytes:
    return raw.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def decode_sub(encoded: bytes, at: int = 0) -> Sub:
    """Undo ``encode_sub``.

    >>> decode_sub(encode_sub((1, "a", (b"x", -2))))
    (1, 'a', (b'x', -2))
    """
    sub: Sub = _decode_part(encoded, at)[0]
    return sub


def _decode_part(encoded: bytes, at: int) -> tuple[Any, int]:
    tag = encoded[at : at + 1]
    at += 1
    if tag == _INT:
        return decode_time(encoded, at), at + _TIME.size
    if tag == _TUPLE:
        parts = []
        while encoded[at : at + 1] != _END:
            part, at = _decode_part(encoded, at)
            parts.append(part)
        return tuple(parts), at + 1
    raw, at = _unescape(encoded, at)
    return (raw.decode("utf-8", "surrogatepass") if tag == _STR else raw), at


def _unescape(encoded: bytes, at: int) -> tuple[bytes, int]:
    end = encoded.index(b"\x00\x00", at)  # a zero byte of the value is followed by 0xff
    return encoded[at:end].replace(b"\x00\xff", b"\x00"), end + 2


def key_prefix(key: bytes) -> bytes:
    """Return the prefix shared by exactly the stored keys of an encoded key's entries."""
    if len(key) <= KEY_BYTES_MAX:
        return _LENGTH.pack(len(key)) + key
    return _LENGTH.pack(_DIGEST) + hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()


def entry_key(key: bytes, sub: Sub) -> bytes:
    """Return the stored key of an entry of an encoded key."""
    return key_prefix(key) + encode_sub(sub)


def due_key(time_ns: int, key: bytes, sub: Sub) -> bytes:
    """Return the stored key of the row by which ``sub`` of an encoded key is due at a time."""
    return encode_time(time_ns) + key_prefix(key) + encode_sub(sub)


def join_key(key: bytes, value: bytes) -> bytes:
    """Return an entry's value as stored: with the encoded key if that is long."""
    return value if len(key) <= KEY_BYTES_MAX else _LONG_LENGTH.pack(len(key)) + key + value


def split_entry(stored: bytes, value: bytes, at: int = 0) -> tuple[bytes, Sub, bytes]:
    """Return the encoded key, the sub and the value of a stored entry, whose key begins at ``at``.

    >>> split_entry(entry_key(b"sA", 7), join_key(b"sA", b"value"))
    (b'sA', 7, b'value')
    """
    key, value, end = _split_key(stored, value, at)
    return key, decode_sub(stored, end), value


def split_pane(stored: bytes, value: bytes, at: int) -> tuple[bytes, bytes]:
    """Return the encoded key and the value of a stored pane, whose key begins at ``at``.

    >>> split_pane(b"name" + key_prefix(b"sA"), join_key(b"sA", b"value"), len(b"name"))
    (b'sA', b'value')
    """
    key, value, _ = _split_key(stored, value, at)
    return key, value


def _split_key(stored: bytes, value: bytes, at: int) -> tuple[bytes, bytes, int]:
    """Return the encoded key that begins at ``at``, the value without it, and the key's end."""
    length = _LENGTH.unpack_from(stored, at)[0]
    at += _LENGTH.size
    if length != _DIGEST:
        return stored[at : at + length], value, at + length
    size = _LONG_LENGTH.unpack_from(value)[0]
    begin = _LONG_LENGTH.size
    return value[begin : begin + size], value[begin + size :], at + _DIGEST_BYTES


def split_due(stored: bytes, value: bytes) -> tuple[int, bytes, Sub, bytes]:
    """Return time, encoded key, sub and value of a stored row of due entries."""
    return decode_time(stored), *split_entry(stored, value, _TIME.size)


def after_prefix(prefix: bytes) -> bytes:
    """Return the first key after all with ``prefix``, which never ends in only 0xff bytes."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])
