"""Spark rows as payloads: pickled dicts or Arrow streams.

Where it runs: the feeder packs, workers unpack; pure.
"""

from __future__ import annotations

import pickle
from typing import Any

from wallaroo.steps.kinds import Decoder, WrappedStep
from wallaroo.vectorized.steps import BatchDecoder


class PackedRowDecoder(WrappedStep, Decoder[Any]):
    """The user's decoder ``inner`` of rows, as a decoder of packed rows."""

    def __init__(self, inner: Decoder[Any]):
        function = inner.function

        def decode(payload: Any) -> Any:
            return function(pickle.loads(payload))

        super().__init__(decode, inner.step_name, on_error=inner.on_error, is_pure=inner.is_pure)
        self._take_over(inner)


def row_decoder_of(decoder: Any) -> Any:
    """Return a decoder of packed rows.

    Anything that is not a decoder is returned as it is: the build reports it.
    """
    is_other = not isinstance(decoder, Decoder) or isinstance(decoder, PackedRowDecoder)
    return decoder if is_other else PackedRowDecoder(decoder)


def packed_row(row: dict[str, Any]) -> bytes:
    return pickle.dumps(row, pickle.HIGHEST_PROTOCOL)


def packed_batch(batch: Any) -> bytes:
    """Return a ``pyarrow.RecordBatch`` as a payload."""
    pa = _arrow()
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    packed: bytes = out.getvalue().to_pybytes()
    return packed


def _unpacked(payloads: list[Any]) -> Any:
    """Return the rows of packed batches as one ``pyarrow.RecordBatch``."""
    pa = _arrow()
    batches = [
        batch
        for payload in payloads
        for batch in ([payload] if isinstance(payload, pa.RecordBatch) else _batches(payload))
    ]
    table = pa.Table.from_batches(batches).combine_chunks()
    whole = table.to_batches()
    return whole[0] if whole else batches[0]


def _batches(payload: bytes) -> list[Any]:
    with _arrow().ipc.open_stream(payload) as reader:
        return list(reader)


def _arrow() -> Any:
    # it takes long to import, and only sources of Spark need it
    import pyarrow

    return pyarrow


record_batches: BatchDecoder[Any] = BatchDecoder(_unpacked, "record batches", is_pure=True)
record_batches.__qualname__ = "record_batches"  # pickled by reference, under the name it has here
