"""JSON objects, one per frame or line, as record batches."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.json as arrow_json

from wallaroo.protocols.framing import Framing
from wallaroo.vectorized.row_error import RowError

_BLOCK_BYTES_MIN = 1 << 16


@dataclass(frozen=True, slots=True)
class JsonLines:
    """Decoder of JSON objects.

    With a ``schema``, rows have its columns, missing ones as nulls; without one, the columns and
    types of a block are those that its objects have.
    """

    schema: Any = None  # pyarrow.Schema

    def __call__(self, payloads: list[bytes]) -> pa.RecordBatch:
        """Return payloads as rows.  Raises RowError: not JSON objects of the schema."""
        batch = self._read(b"\n".join(payloads) + b"\n")
        if batch is not None and batch.num_rows == len(payloads):
            return batch
        wrong = {at: why for at, each in enumerate(payloads) if (why := self._wrong(each))}
        if wrong:
            first = next(iter(wrong.values()))
            # the others are refused when the function is called again, without these
            raise RowError([at for at, why in wrong.items() if why == first], ValueError(first))
        return self._one_by_one(payloads)

    def count(self, frames: bytes, framing: Framing) -> int | None:
        """Return how many lines there are; None if frames are not lines."""
        return frames.count(b"\n") if framing.is_lines else None

    def rows(self, frames: bytes, framing: Framing) -> pa.RecordBatch | None:
        """Return lines as rows; None unless each is an object."""
        batch = self._read(frames)
        if batch is None or batch.num_rows != frames.count(b"\n"):
            return None
        return batch

    def _read(self, lines: bytes) -> Any:
        try:
            table = arrow_json.read_json(
                pa.BufferReader(lines),
                arrow_json.ReadOptions(
                    use_threads=False, block_size=max(len(lines) + 1, _BLOCK_BYTES_MIN)
                ),
                self._options(),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        batches = table.combine_chunks().to_batches()
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
            value = json.loads(payload)
        except ValueError as error:
            return f"not JSON: {error}"
        if not isinstance(value, dict):
            return f"a row is a JSON object, not {type(value).__name__}"
        if self.schema is not None and self._read(json.dumps(value).encode() + b"\n") is None:
            return "it does not fit the schema"
        return ""

    def _one_by_one(self, payloads: list[bytes]) -> pa.RecordBatch:
        """Read objects of several lines or of different types, valid one by one."""
        values = [json.loads(payload) for payload in payloads]
        batch = self._read(b"".join(json.dumps(value).encode() + b"\n" for value in values))
        if batch is None:
            raise ValueError("the rows of a block have columns of different types; give a schema")
        return batch
