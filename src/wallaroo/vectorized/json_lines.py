"""JSON objects, one per frame or line, as record batches."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.json as arrow_json

from wallaroo.protocols.framing import Framing
from wallaroo.vectorized.checked_values import check_times
from wallaroo.vectorized.row_error import RowError

_BLOCK_BYTES_MIN = 1 << 16
# Arrow reads null as a row of nulls, and ends the process if it comes first.
_begins_with_null = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*null").match
_find_null_row = re.compile(rb"[\n}][ \t\r]*null").search


@dataclass(frozen=True, slots=True)
class JsonLines:
    """Decoder of JSON objects.

    With a ``schema``, rows have its columns, missing ones as nulls; without one, the columns and
    types of a block are those that its objects have.
    """

    schema: Any = None  # pyarrow.Schema

    def __call__(self, payloads: list[bytes]) -> pa.RecordBatch:
        """Return payloads as rows.  Raises RowError: not JSON objects of the schema."""
        batch = self._read_objects(b"\n".join(payloads) + b"\n")
        if batch is not None and batch.num_rows == len(payloads):
            return batch
        wrong = {at: why for at, each in enumerate(payloads) if (why := self._wrong(each))}
        if wrong:
            first = next(iter(wrong.values()))
            # the others are refused when the function is called again, without these
            raise RowError([at for at, why in wrong.items() if why == first], ValueError(first))
        return self._one_by_one(payloads)

    def unreadable(self) -> str:
        """Return what of the schema Arrow does not read from JSON; empty if it reads all of it."""
        if not isinstance(self.schema, pa.Schema | None):
            return f"{self.schema!r}, which is not a schema,"
        for field in self.schema or ():
            if JsonLines(pa.schema([field]))._read(b"{}\n") is None:
                return f"Column {field.name!r} of {field.type}"
        return ""

    def count(self, frames: bytes, framing: Framing) -> int | None:
        """Return how many lines there are; None if frames are not lines."""
        return frames.count(b"\n") if framing.is_lines else None

    def rows(self, frames: bytes, framing: Framing) -> pa.RecordBatch | None:
        """Return lines as rows; None unless each is an object."""
        batch = self._read_objects(frames)
        if batch is None or batch.num_rows != frames.count(b"\n"):
            return None
        return batch

    def _read_objects(self, lines: bytes) -> Any:
        """Return lines as rows; None if they are not objects, or may not be."""
        batch = self._read(lines)
        if batch is None or not all(column.null_count for column in batch.columns):
            return batch
        return None if _find_null_row(lines) else batch

    def _read(self, lines: bytes) -> Any:
        if _begins_with_null(lines):
            return None
        try:
            if not lines.isascii():
                str(lines, "utf-8")  # Arrow does not check it
            table = arrow_json.read_json(
                pa.BufferReader(lines),
                arrow_json.ReadOptions(
                    use_threads=False, block_size=max(len(lines) + 1, _BLOCK_BYTES_MIN)
                ),
                self._options(),
            )
            batches = table.combine_chunks().to_batches()
            for batch in batches:
                check_times(batch)
        except (ValueError, OverflowError, pa.ArrowNotImplementedError):
            return None
        return batches[0] if batches else None

    def _options(self) -> Any:
        if self.schema is None:
            return arrow_json.ParseOptions()
        return arrow_json.ParseOptions(
            explicit_schema=self.schema, unexpected_field_behavior="ignore"
        )

    def _wrong(self, payload: bytes) -> str:
        """Return the error in one payload; empty if there is none."""
        try:
            value = _value_of(payload)
        except ValueError as error:
            return f"not JSON: {error}"
        if not isinstance(value, dict):
            return f"a row is a JSON object, not {type(value).__name__}"
        if self._read(json.dumps(value).encode() + b"\n") is not None:
            return ""
        return "Arrow cannot read it" if self.schema is None else "it does not fit the schema"

    def _one_by_one(self, payloads: list[bytes]) -> pa.RecordBatch:
        """Read objects of several lines or of different types, valid one by one."""
        values = [_value_of(payload) for payload in payloads]
        batch = self._read(b"".join(json.dumps(value).encode() + b"\n" for value in values))
        if batch is None:
            raise ValueError("the rows of a block have columns of different types; give a schema")
        return batch


def _value_of(payload: bytes) -> Any:
    return json.loads(str(payload, "utf-8-sig"))
