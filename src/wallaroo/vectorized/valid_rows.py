"""Validation of record batches that were read from payloads.

Arrow reads buffers as they come: texts that are not UTF-8, offsets beyond the end of a buffer,
times that Python does not have.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def require_valid(batch: pa.RecordBatch) -> None:
    """Raise ValueError unless every value can be read and be an event's value."""
    batch.validate(full=True)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kind = column.type
        # nanoseconds reach from 1677 to 2262
        if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.unit != "ns"):
            try:
                pc.min_max(column).as_py()
            except (ValueError, OverflowError) as error:
                raise ValueError(f"column {name!r}: {error}") from error
