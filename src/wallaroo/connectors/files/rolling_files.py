"""The content of parts: lines, or rows in Parquet, JSON or CSV.

Rows are divided by folder.

It imports Arrow.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from wallaroo.connectors.files.partitions import Level, Partitions
from wallaroo.connectors.files.rows import as_table, schema_of
from wallaroo.sinks.staging import Staged

# yields the name of each folder, "" for that of the sink, and the content of its part
Contents = Callable[[Iterable[Staged]], Iterator[tuple[str, bytes]]]


def contents_of(
    columns: Mapping[str, Any] | None, form: str, partitions: Partitions | None, compress: bool
) -> Contents:
    """Return the function that creates the content of parts, reproducibly byte for byte."""
    written: Callable[[Any], bytes] = FORMS[form]

    def contents(parts: Iterable[Staged]) -> Iterator[tuple[str, bytes]]:
        if columns is None:
            yield "", _packed(_as_lines(parts), compress)
            return
        for folder, table in split(_table(parts, columns), partitions):
            yield folder, _packed(written(table), compress)

    return contents


def _packed(content: bytes, compress: bool) -> bytes:
    return gzip.compress(content, compresslevel=6, mtime=0) if compress else content


def _as_lines(parts: Iterable[Staged]) -> bytes:
    """Return the outputs, each followed by a newline."""
    return b"".join(bytes(output) + b"\n" for part in parts for output in part.outputs())


# -- rows -----------------------------------------------------------------------------------------


def _table(parts: Iterable[Staged], columns: Mapping[str, Any]) -> Any:
    outputs = (output for part in parts for output in part.outputs())
    return as_table(outputs, schema_of(columns))


def split(table: Any, partitions: Partitions | None) -> Iterator[tuple[str, Any]]:
    """Yield each folder, in order of its first row, with its rows in order."""
    if partitions is None:
        yield "", table
        return
    segments = [_segments(level, table[level.column]) for level in partitions.levels]
    folders = pc.binary_join_element_wise(*segments, "/").dictionary_encode()
    sizes = Counter(folders.indices.to_pylist())
    ordered = table.select(partitions.kept).take(pc.array_sort_indices(folders.indices))
    start = 0
    for number, folder in enumerate(folders.dictionary.to_pylist()):
        yield folder, ordered.slice(start, sizes[number])
        start += sizes[number]


def _segments(level: Level, column: Any) -> Any:
    """Return the name of each row's folder on one level."""
    values = column.combine_chunks()
    if not level.form:
        texts = values.cast(pa.string())
    elif pa.types.is_timestamp(values.type):
        in_utc = values.view(pa.timestamp(values.type.unit))
        texts = pc.strftime(in_utc, format=level.form)
    else:
        texts = pc.strftime(values, format=level.form)
    encoded = texts.dictionary_encode(null_encoding="encode")
    names = [level.folder(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(encoded.indices)


def _as_parquet(table: Any) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    return bytes(out.getvalue())


def _as_csv(table: Any) -> bytes:
    out = pa.BufferOutputStream()
    pyarrow.csv.write_csv(table, out)
    return bytes(out.getvalue())


def _as_json(table: Any) -> bytes:
    rows = table.to_pylist()
    return b"".join(json.dumps(row, default=_plain).encode() + b"\n" for row in rows)


def _plain(value: Any) -> str:
    """Return a date or time in ISO 8601, anything else as its text."""
    return str(value.isoformat() if hasattr(value, "isoformat") else value)


FORMS: dict[str, Callable[[Any], bytes]] = {
    "lines": _as_json,
    "csv": _as_csv,
    "parquet": _as_parquet,
}
