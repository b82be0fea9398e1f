"""Frames of one layout, as an array over their receive buffer."""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from wallaroo.protocols.framing import Framing
from wallaroo.vectorized.row_error import RowError, RowErrors

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class FixedLayout:
    """Decoder of payloads of ``dtype``.

    Rows have the fields named in ``fields`` only.
    """

    dtype: np.dtype[Any]
    fields: tuple[str, ...] = ()  # empty: all

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
        """Return the payloads as rows.

        Raises RowErrors for payloads of another length, RowError for those with invalid text.
        """
        size = self.dtype.itemsize
        wrong = {
            at: ValueError(f"the payload has {len(payload)} bytes, and the layout {size}")
            for at, payload in enumerate(payloads)
            if len(payload) != size
        }
        if wrong:
            raise RowErrors(wrong)
        rows = np.frombuffer(b"".join(payloads), self.rows_dtype)
        _require_texts(rows)
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
        """Return counted frames as rows, without a copy; None if a text is invalid."""
        header = framing.header_length
        stride = header + self.dtype.itemsize
        rows: Array = np.ndarray(len(frames) // stride, self.rows_dtype, frames, header, (stride,))
        try:
            _require_texts(rows)
        except RowError:
            return None
        return rows


def _require_texts(rows: Array) -> None:
    """Raise RowError for rows with code points beyond Unicode."""
    assert rows.dtype.fields is not None
    for name in rows.dtype.names or ():
        base = rows.dtype.fields[name][0].base
        if base.kind == "U" and base.itemsize:
            number = np.dtype("u4").newbyteorder(base.byteorder)
            codes = np.ascontiguousarray(rows[name]).view(number)
            wrong = (codes.reshape(len(rows), -1) > sys.maxunicode).any(axis=1)
            if wrong.any():
                raise RowError(wrong, ValueError(f"field {name!r} has no Unicode characters"))


def _all_equal(heads: Array, header: bytes) -> bool:
    at = 0
    for size in (4, 4, 2, 1):
        if len(header) - at >= size:
            expected = np.frombuffer(header, f"u{size}", 1, at)[0]
            if not bool((heads.getfield(np.dtype(f"u{size}"), at) == expected).all()):
                return False
            at += size
    return True
