"""Outputs for Redis as staged bytes.

They are checked and packed in the worker, and unpacked by the committer.

Where it runs: workers and driver; pure.
"""

from __future__ import annotations

import pickle
from typing import Any

from wallaroo.serdes.shape_errors import shown

VALUE = b"value"  # the field of an output that is one value
Fields = list[tuple[bytes, bytes | None]]  # None: the field is removed (hashes)


def pack_entry(output: Any) -> bytes:
    """Return the staged form of an entry of a stream; raise TypeError or ValueError for none."""
    return pickle.dumps(_of_stream(output), pickle.HIGHEST_PROTOCOL)


def pack_field(output: Any) -> bytes:
    """Return the staged form of a field of a hash; raise TypeError for anything else."""
    return pickle.dumps(_of_hash(output), pickle.HIGHEST_PROTOCOL)


def _of_stream(output: Any) -> Fields:
    if isinstance(output, dict) and output:
        return [(_bytes(name), _bytes(value)) for name, value in output.items()]
    if isinstance(output, dict):
        raise ValueError("an entry of a stream needs a field")
    return [(VALUE, _bytes(output))]


def _of_hash(output: Any) -> Fields:
    if not isinstance(output, tuple) or len(output) != 2:
        raise TypeError(
            f"an encoder for a Redis hash must return (field, value), not {shown(output)}"
        )
    name, value = output
    return [(_bytes(name), None if value is None else _bytes(value))]


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value).encode()
    raise TypeError(f"Redis takes bytes, str, int and float, not {shown(value)}")


def unpacked(packed: memoryview) -> Fields:
    """Return the fields of a staged output."""
    fields: Fields = pickle.loads(packed)
    return fields


def decoded_entry(packed: bytes) -> dict[str, bytes | None]:
    """Return the fields of an entry of a stream by their names.

    >>> decoded_entry(pack_entry({"n": 7}))
    {'n': b'7'}
    """
    return {_name(name): value for name, value in unpacked(memoryview(packed))}


def decoded_field(packed: bytes) -> tuple[str, bytes | None]:
    """Return a field of a hash and its value."""
    [(name, value)] = unpacked(memoryview(packed))
    return _name(name), value


def _name(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")
