"""JSON objects, one per frame or line, as record batches.

Invariant: a payload's rows do not depend on the others read with it. Arrow's reader turns ``null``
into a row of nulls, crashes the process if that comes first or objects are deeply nested, and does
not validate UTF-8. So it gets objects only.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json

from wallaroo.protocols.framing import Framing
from wallaroo.vectorized.row_error import Inconvertible, RowErrors
from wallaroo.vectorized.valid_rows import require_valid

_BLOCK_BYTES_MIN = 1 << 16
_DEPTH_MAX = 250  # objects and lists in each other; the reader recurses
_SPACES = b" \t\r\n"
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NEWLINE, _OPEN, _CLOSE = b"\n{}"
_CASE = 0x20  # sets "[" apart from "{", and "]" from "}"
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class JsonLines:
    """Decoder of JSON objects.

    With a ``schema``, rows have its columns, missing ones as nulls; without one, a block has the
    columns and types of its objects.
    """

    schema: Any = None  # pyarrow.Schema

    def __call__(self, payloads: list[bytes]) -> pa.RecordBatch:
        """Return payloads as rows.

        Raises RowErrors: not JSON objects of the schema; Inconvertible: no common types.
        """
        batch = self._together(payloads)
        if batch is None:
            batch = self._together([payload.strip(_SPACES) for payload in payloads])
        if batch is not None:
            return batch
        wrong = {at: why for at, each in enumerate(payloads) if (why := self._wrong(each))}
        if wrong:
            raise RowErrors({at: ValueError(why) for at, why in wrong.items()})
        return self._one_by_one(payloads)

    def count(self, frames: bytes, framing: Framing) -> int | None:
        """Return how many lines there are; None if frames are not lines."""
        return frames.count(b"\n") if framing.is_lines else None

    def rows(self, frames: bytes, framing: Framing) -> pa.RecordBatch | None:
        """Return lines as rows; None unless each is an object."""
        return self._objects(frames, _newlines(frames))

    def _together(self, payloads: list[bytes]) -> pa.RecordBatch | None:
        """Return payloads as rows; None unless each is an object."""
        lines = b"\n".join(payloads) + b"\n"
        ends = _newlines(lines)
        if len(ends) != len(payloads):
            ends = np.cumsum(np.fromiter(map(len, payloads), np.intp) + 1) - 1
        return self._objects(lines, ends)

    def _objects(self, lines: bytes, ends: Array) -> pa.RecordBatch | None:
        batch = self._read(lines) if _are_objects(lines, ends) else None
        return batch if batch is not None and batch.num_rows == len(ends) else None

    def _read(self, lines: bytes) -> Any:
        try:
            table = arrow_json.read_json(
                pa.BufferReader(lines),
                arrow_json.ReadOptions(
                    use_threads=False, block_size=max(len(lines) + 1, _BLOCK_BYTES_MIN)
                ),
                self._options(),
            )
            batches = table.combine_chunks().to_batches()
            for batch in batches:
                require_valid(batch)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
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
        if _depth(payload) > _DEPTH_MAX:
            return f"objects and lists are nested more than {_DEPTH_MAX} levels deep"
        try:
            value = json.loads(payload.decode("utf-8-sig"))
        except ValueError as error:
            return f"not JSON: {error}"
        if not isinstance(value, dict):
            return f"a row is a JSON object, not {type(value).__name__}"
        if self._read(json.dumps(value).encode() + b"\n") is not None:
            return ""
        if self.schema is None:
            return "Arrow has no types for its values"
        return "it does not fit the schema" + "".join(
            f"; column {field.name!r} is {field.type}, not {json.dumps(value[field.name]):.80}"
            for field in self.schema
            if field.name in value and not _fits(field, value[field.name])
        )

    def _one_by_one(self, payloads: list[bytes]) -> pa.RecordBatch:
        """Read objects of different layout, valid one by one."""
        values = [json.loads(payload.decode("utf-8-sig")) for payload in payloads]
        batch = self._read(b"".join(json.dumps(value).encode() + b"\n" for value in values))
        if batch is None:
            raise Inconvertible("the payloads have columns of different types; give a schema")
        return batch


def is_schema(schema: Any) -> bool:
    return isinstance(schema, pa.Schema)


def unread(schema: Any) -> list[str]:
    """Return the columns whose types Arrow's reader does not support."""
    fields = [] if schema is None else schema
    return [
        f"{each.type} (column {each.name!r})"
        for each in fields
        if not _fits(each.with_nullable(True), None)
    ]


def _fits(field: Any, value: Any) -> bool:
    line = json.dumps({field.name: value}).encode() + b"\n"
    return JsonLines(pa.schema([field]))._read(line) is not None


def _newlines(lines: bytes) -> Array:
    return np.flatnonzero(np.frombuffer(lines, np.uint8) == _NEWLINE)


def _are_objects(lines: bytes, ends: Array) -> bool:
    """Return whether payloads, given their ends, look like readable objects."""
    if not len(ends):
        return False
    content = np.frombuffer(lines, np.uint8)
    begins = np.concatenate([[0], ends[:-1] + 1])
    if not ((content[begins] == _OPEN).all() and (content[ends - 1] == _CLOSE).all()):
        return False
    if not lines.isascii():
        try:
            lines.decode()
        except UnicodeDecodeError:
            return False
    opens = (content | _CASE) == _OPEN
    if np.count_nonzero(opens) - len(ends) < _DEPTH_MAX:
        return True
    nested = np.flatnonzero(np.add.reduceat(opens, begins, dtype=np.intp) > _DEPTH_MAX).tolist()
    return all(_depth(lines[begins[at] : ends[at]]) <= _DEPTH_MAX for at in nested)


def _depth(payload: bytes) -> int:
    """Return how deeply objects and lists are nested."""
    if len(payload) <= _DEPTH_MAX:
        return 0
    marks = np.frombuffer(_TEXTS.sub(b"", payload), np.uint8) | _CASE
    steps = (marks == _OPEN).astype(np.int64) - (marks == _CLOSE)
    return int(np.cumsum(steps).max(initial=0))
