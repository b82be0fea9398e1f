"""Outputs for Redis as staged bytes: checked and packed in the worker, unpacked by the committer.

Where it runs: workers and driver; pure.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from wallaroo.serdes.shapes import shown
from wallaroo.steps import Encoder

VALUE = b"value"  # the field of an output that is one value
Fields = list[tuple[bytes, bytes | None]]  # None: the field is removed (hashes)


class _Pack:
    """The user's function followed by packing; introspection sees the user's."""

    def __init__(self, function: Callable[[Any], Any], is_hash: bool):
        self.__wrapped__ = function
        self._is_hash = is_hash

    def __call__(self, event: Any) -> bytes | None:
        output = self.__wrapped__(event)
        if output is None:
            return None
        fields = _of_hash(output) if self._is_hash else _of_stream(output)
        return pickle.dumps(fields, pickle.HIGHEST_PROTOCOL)


def _same(event: Any) -> Any:
    return event


def packing(inner: Encoder[Any] | None, *, is_hash: bool) -> Encoder[Any]:
    """Return an encoder whose outputs are packed."""
    if inner is None:
        return Encoder(_Pack(_same, is_hash), "redis")
    if isinstance(inner.function, _Pack):  # a copy of a configuration
        return inner
    return Encoder(_Pack(inner.function, is_hash), inner.step_name, inner.on_error)


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
