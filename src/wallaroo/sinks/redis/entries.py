"""Outputs for Redis as staged bytes.

They are checked and packed in the worker, and unpacked by the committer.

Where it runs: workers and driver; pure.
"""

from __future__ import annotations

import pickle
from typing import Any

from wallaroo.serdes.shape_errors import shown
from wallaroo.sinks.wrapped_encoder import AS_IT_IS, WrappedEncoder
from wallaroo.steps import Encoder

VALUE = b"value"  # the field of an output that is one value
Fields = list[tuple[bytes, bytes | None]]  # None: the field is removed (hashes)


class EntryEncoder(WrappedEncoder):
    """The user's encoder, whose fields are packed."""

    def __init__(self, inner: Encoder[Any], is_hash: bool):
        function = inner.function
        fields_of = _of_hash if is_hash else _of_stream

        def encode(event: Any) -> bytes | None:
            output = function(event)
            if output is None:
                return None
            return pickle.dumps(fields_of(output), pickle.HIGHEST_PROTOCOL)

        super().__init__(encode, inner)
        self._is_hash = is_hash

    def __reduce__(self) -> tuple[Any, ...]:
        return EntryEncoder, (self.inner, self._is_hash)


def packing(inner: Encoder[Any] | None, *, is_hash: bool) -> Encoder[Any]:
    """Return an encoder whose outputs are packed."""
    if isinstance(inner, EntryEncoder):  # a copy of a configuration
        return inner
    return EntryEncoder(inner or AS_IT_IS, is_hash)


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
