"""The content of a part: lines, or a Parquet file.

Where it runs: driver.  It imports Arrow.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wallaroo.connectors.files.rows import arrow_type, unpacked
from wallaroo.sinks.staging import Staged

Content = Callable[[Iterable[Staged]], bytes]


def as_lines(parts: Iterable[Staged]) -> bytes:
    """Return the outputs, each with a newline after it."""
    return b"".join(bytes(output) + b"\n" for part in parts for output in part.outputs())


def as_gzip(parts: Iterable[Staged]) -> bytes:
    """Return the lines compressed, reproducibly byte for byte."""
    return gzip.compress(as_lines(parts), compresslevel=6, mtime=0)


def as_parquet(columns: dict[str, Any]) -> Content:
    """Return the function that creates a Parquet file from rows."""
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()])

    def content(parts: Iterable[Staged]) -> bytes:
        out = pa.BufferOutputStream()
        with pq.ParquetWriter(out, schema) as writer:
            for part in parts:
                rows = unpacked(part.outputs())
                arrays = [
                    pa.array(values, field.type)
                    for values, field in zip(zip(*rows, strict=True), schema, strict=True)
                ]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
        made: Any = out.getvalue()
        return bytes(made)

    return content
