"""Frames of one layout, as an array over the very buffer in which they were received."""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from wallaroo.protocols.framing import Framing
from wallaroo.vectorized.row_error import RowError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class FixedLayout:
    """Decoder of payloads of ``dtype``.  Rows have the fields named in ``fields`` only."""

    dtype: np.dtype[Any]
    fields: tuple[str, ...] = ()  # none: all

    @property
    def rows_dtype(self) -> np.dtype[Any]:
        """Return the dtype of the rows: the layout's, with the fields that are kept."""
        if not self.fields:
            return self.dtype
        assert self.dtype.fields is not None
        return np.dtype(
            {
                "names": list(self.fields),
                "formats": [self.dtype.fields[name][0] for name in self.fields],
                "offsets": [self.dtype.fields[name][1] for name in self.fields],
                "itemsize": self.dtype.itemsize,
            }
        )

    def __call__(self, payloads: list[bytes]) -> Array:
        """Return the payloads as rows.  Raises RowError for those of another length."""
        size = self.dtype.itemsize
        length = next((len(payload) for payload in payloads if len(payload) != size), size)
        if length != size:  # the others are refused when the function is called again
            wrong = [at for at, payload in enumerate(payloads) if len(payload) == length]
            raise RowError(
                wrong, ValueError(f"the payload has {length} bytes, and the layout {size}")
            )
        rows = np.frombuffer(b"".join(payloads), self.rows_dtype)
        is_wrong = _has_wrong_text(rows)
        if is_wrong.any():
            raise RowError(is_wrong, ValueError("a text has an invalid character"))
        return rows

    def count(self, frames: bytes, framing: Framing) -> int | None:
        """Return how many frames there are; None if one of them is not of the layout."""
        if framing.is_lines:
            return None
        size = self.dtype.itemsize
        stride = framing.header_length + size
        count = len(frames) // stride
        if not count or count * stride != len(frames):
            return None
        header = frames[: framing.header_length]
        if struct.unpack(framing.length_fmt, header)[0] != size:
            return None
        heads: Array = np.ndarray(count, f"V{len(header)}", frames, 0, (stride,))
        return count if _all_equal(heads, header) else None

    def rows(self, frames: bytes, framing: Framing) -> Array | None:
        """Return frames that were counted as rows, without a copy; None if a text is invalid."""
        header = framing.header_length
        stride = header + self.dtype.itemsize
        rows: Array = np.ndarray(len(frames) // stride, self.rows_dtype, frames, header, (stride,))
        return None if _has_wrong_text(rows).any() else rows


def _has_wrong_text(rows: Array) -> Array:
    """Return for each row whether a column of texts (``U``) holds an invalid character."""
    is_wrong = np.zeros(len(rows), bool)
    names = rows.dtype.names
    for column in [rows] if names is None else [rows[name] for name in names]:
        if column.dtype.kind == "U" and column.size and column.dtype.itemsize:
            form = np.dtype("u4").newbyteorder(column.dtype.byteorder)
            points = np.ascontiguousarray(column).view(form).reshape(len(rows), -1)
            is_wrong |= points.max(axis=1) > sys.maxunicode
    return is_wrong


def _all_equal(heads: Array, header: bytes) -> bool:
    at = 0
    for size in (4, 4, 2, 1):
        if len(header) - at >= size:
            expected = np.frombuffer(header, f"u{size}", 1, at)[0]
            if not bool((heads.getfield(np.dtype(f"u{size}"), at) == expected).all()):
                return False
            at += size
    return True
