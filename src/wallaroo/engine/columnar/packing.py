"""Conversion of a block's rows to bytes for an exchange, and back.

Only named fields of a numpy array are sent, not the padding. Rows are copied out of a block, so
emitted rows do not change afterwards.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from wallaroo.engine.blocks.packing import Packing
from wallaroo.engine.columnar.forms import as_arrow
from wallaroo.engine.columnar.keys import CodedKeys, FieldKeys, Keys, PlainKeys
from wallaroo.engine.columnar.rows import Rows

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The fields of a dtype without gaps.

    ``runs`` of bytes to copy, and the dtype of the copy.
    """

    runs: tuple[tuple[int, int], ...]  # offset, bytes
    packed: np.dtype[Any]


@lru_cache(maxsize=256)
def layout_of(dtype: np.dtype[Any]) -> ColumnLayout:
    """Return the layout of rows of a structured dtype.  Raises TypeError if they cannot be sent."""
    if dtype.hasobject:
        raise TypeError(f"rows of {dtype} hold Python objects, not columns; return a list instead")
    assert dtype.names is not None
    assert dtype.fields is not None
    fields = sorted((dtype.fields[name][1], name) for name in dtype.names)
    runs: list[tuple[int, int]] = []
    places: dict[str, int] = {}
    total = 0
    for offset, name in fields:
        size = dtype.fields[name][0].itemsize
        places[name] = total
        if runs and sum(runs[-1]) == offset:
            runs[-1] = runs[-1][0], runs[-1][1] + size
        else:
            runs.append((offset, size))
        total += size
    packed = np.dtype(
        {
            "names": list(dtype.names),
            "formats": [dtype.fields[name][0] for name in dtype.names],
            "offsets": [places[name] for name in dtype.names],
            "itemsize": total,
        }
    )
    return ColumnLayout(tuple(runs), packed)


def packed_rows(rows: Array, at: Array | None) -> Array:
    """Return a copy of the fields that the dtype names, of the rows (at these indexes)."""
    if rows.dtype.names is None:
        if rows.dtype.hasobject:
            raise TypeError("an array of Python objects cannot travel; return a list instead")
        return rows.copy() if at is None else rows[at]
    layout = layout_of(rows.dtype)
    if not layout.runs:
        return np.empty(len(rows) if at is None else len(at), layout.packed)
    copies = [
        _copied(rows.getfield(np.dtype(f"V{size}"), offset), at) for offset, size in layout.runs
    ]
    if len(copies) == 1:
        return copies[0].view(layout.packed)
    whole = np.empty(
        len(copies[0]), np.dtype([(str(number), each.dtype) for number, each in enumerate(copies)])
    )
    for number, each in enumerate(copies):
        whole[str(number)] = each
    return whole.view(layout.packed)


def _copied(column: Array, at: Array | None) -> Array:
    return column.copy() if at is None else column[at]


# rows in transit: the format, and bytes or objects that pickle compactly
Packed = tuple[str, Any, Any]


def pack_events(events: Sequence[Any], packing: Packing) -> Any:
    """Return a list of events, each packed separately."""
    column = packing.column()
    for event in events:
        if type(event) in packing.atomic:
            column.atoms.append(event)
        else:
            column.put(event)
    return column.take()


def _content(rows: Array) -> Any:
    """Return the bytes of rows whose times have no separate buffer."""
    return np.ascontiguousarray(rows).view(np.uint8) if rows.dtype.itemsize else b""


def pack_rows(pieces: list[Any]) -> Packed:
    """Pack the pieces of one block.

    They are arrays of one dtype and shape, record batches of one schema, or results of
    ``pack_events``.
    """
    first = pieces[0]
    if isinstance(first, np.ndarray):
        content = b"".join(map(_content, pieces))
        return "numpy", (first.dtype, first.shape[1:]), content
    if isinstance(first, pa.RecordBatch):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, first.schema) as stream:
            for piece in pieces:
                stream.write_batch(piece)
        return "arrow", None, sink.getvalue().to_pybytes()
    return "events", None, pieces


def unpack_rows(packed: Packed, packing: Packing) -> Rows:
    how, what, content = packed
    if how == "numpy":
        dtype, shape = what
        return np.frombuffer(content, dtype).reshape(-1, *shape)
    if how == "arrow":
        with pa.ipc.open_stream(content) as stream:
            return stream.read_all().combine_chunks().to_batches()[0]
    events: list[Any] = []
    for piece, keys in content:
        events += packing.unpack(pickle.dumps((keys, piece), 5))[1]
    return events


def pack_keys(pieces: list[Keys]) -> Any:
    names = {piece.name if isinstance(piece, FieldKeys) else None for piece in pieces}
    if len(names) == 1 and None not in names:
        return "field", names.pop(), None
    if all(isinstance(piece, PlainKeys) for piece in pieces):
        columns = [piece.column for piece in pieces if isinstance(piece, PlainKeys)]
        dtype = columns[0].dtype
        if all(column.dtype == dtype for column in columns):
            content = b"".join(map(_content, columns))
            return "plain", dtype, content
    merged = _coded(pieces)
    return "coded", merged.values, merged.codes.astype(np.uint32).tobytes()


def _coded(pieces: list[Keys]) -> CodedKeys:
    """Concatenate pieces, without unused dictionary values."""
    numbers: dict[Any, int] = {}
    parts = []
    for piece in pieces:
        if isinstance(piece, CodedKeys):
            used = np.flatnonzero(np.bincount(piece.codes, minlength=len(piece.values)))
            codes = np.empty(len(piece.values), np.intp)
            codes[used] = [
                numbers.setdefault(piece.values[code], len(numbers)) for code in used.tolist()
            ]
            parts.append(codes[piece.codes])
        else:
            values = piece.tolist()
            codes = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.intp)
            parts.append(codes)
    return CodedKeys(list(numbers), np.concatenate(parts))


def unpack_keys(packed: Any, rows: Rows) -> Keys:
    """Undo ``pack_keys``; ``rows`` are the rows of the keys."""
    how, what, content = packed
    if how == "field":
        return PlainKeys(rows[what])
    if how == "plain":
        return PlainKeys(np.frombuffer(content, what))
    return CodedKeys(what, np.frombuffer(content, np.uint32).astype(np.intp))


def unpacker(packing: Packing) -> Callable[[bytes], tuple[Any, Any]]:
    """Return a function that reads an exchange's block of columns: keys, and rows."""

    def unpack(packed: bytes) -> tuple[Any, Any]:
        keys, content = pickle.loads(packed)
        rows = unpack_rows(content, packing)
        return unpack_keys(keys, rows), rows

    return unpack


def travelling(rows: Rows) -> Rows:
    """Return rows in a form that can be sent: data frames as record batches."""
    if isinstance(rows, (np.ndarray, list, pa.RecordBatch)):
        return rows
    return as_arrow(rows)
