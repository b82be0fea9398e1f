"""Messages of PostgreSQL's `pgoutput`, version 1, as row changes.

Where it runs: workers; pure.  The format is that of PostgreSQL's manual, "Logical Replication
Message Formats".

The invariant: a transaction's messages come together, between its BEGIN and its COMMIT, and a
relation's description before its first row.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from wallaroo.serdes.changes import UNCHANGED, Change

Row = dict[str, Any]
Load = Callable[[bytes], Any]  # parses the text of a value of some type
BEGIN = struct.Struct(">QqI")  # LSN of the commit, its time, the transaction
NUMBER = struct.Struct(">I")
COUNT = struct.Struct(">H")
COLUMN = struct.Struct(">Ii")  # type and its modifier
TRUNCATE = struct.Struct(">IB")
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
IS_KEY = 1
ROWS = (b"I", b"U", b"D", b"T")  # messages about rows: the others describe what follows
TEXT = ord("t")
NULL = ord("n")


@dataclass(frozen=True, slots=True)
class Relation:
    """A table: its name, and name, reader and role of each column."""

    name: str
    columns: tuple[tuple[str, Load, bool], ...]


class Messages:
    """A reader of one session's messages."""

    def __init__(self, load_of: Callable[[int], Load]):
        """Create a reader; ``load_of`` returns the reader of a type's texts by its object id."""
        self._load_of = load_of
        self._relations: dict[int, Relation] = {}
        self._facts: dict[str, Any] = {}
        self._transaction = ""
        self.commit = 0  # the LSN at which the transaction's commit begins
        self.number = 0  # the last change's, in its transaction

    def changes(self, message: bytes, start: int = 0) -> list[Change[Row]]:
        """Return the changes of a message: one for each row or table that it is about.

        There are none in a transaction whose commit begins before the LSN ``start``.
        """
        kind = message[:1]
        if kind in ROWS:
            if self.commit < start:
                return []
            if kind == b"T":
                return self._truncations(message)
            return [self._change(kind, message)]
        if kind == b"B":
            self._begin(message)
        elif kind == b"R":
            self._describe(message)
        return []  # commits, types and origins are not needed

    def _begin(self, message: bytes) -> None:
        self.commit, microseconds, number = BEGIN.unpack_from(message, 1)
        self._facts = {
            "lsn": lsn_text(self.commit),
            "time": (EPOCH + timedelta(microseconds=microseconds)).isoformat(),
            "transaction": number,
        }
        self._transaction = str(number)
        self.number = 0

    def _describe(self, message: bytes) -> None:
        (number,) = NUMBER.unpack_from(message, 1)
        schema, at = _string(message, 5)
        name, at = _string(message, at)
        (count,) = COUNT.unpack_from(message, at + 1)
        at += 3
        columns = []
        for _ in range(count):
            is_key = bool(message[at] & IS_KEY)
            column, at = _string(message, at + 1)
            kind, _ = COLUMN.unpack_from(message, at)
            at += COLUMN.size
            columns.append((column, self._load_of(kind), is_key))
        self._relations[number] = Relation(f"{schema}.{name}", tuple(columns))

    def _truncations(self, message: bytes) -> list[Change[Row]]:
        count, _ = TRUNCATE.unpack_from(message, 1)
        numbers = struct.unpack_from(f">{count}I", message, 1 + TRUNCATE.size)
        return [self._made("truncate", None, None, self._relations[n].name) for n in numbers]

    def _change(self, kind: bytes, message: bytes) -> Change[Row]:
        (number,) = NUMBER.unpack_from(message, 1)
        relation = self._relations[number]
        if kind == b"I":
            after, _ = self._row(relation, message, 6, is_key_alone=False)
            return self._made("insert", None, after, relation.name)
        rows: dict[bytes, Row] = {}
        at = 5
        while at < len(message):
            part = message[at : at + 1]
            rows[part], at = self._row(relation, message, at + 1, is_key_alone=part == b"K")
        before = rows.get(b"O", rows.get(b"K"))
        if kind == b"D":
            return self._made("delete", before, None, relation.name)
        after = rows[b"N"]
        if before is not None:
            for name, _, _ in relation.columns:  # large values that were not changed
                if name not in after and name in before:
                    after[name] = before[name]
        change = self._made("update", before, after, relation.name)
        if len(after) == len(relation.columns):
            return change
        unchanged = tuple(name for name, _, _ in relation.columns if name not in after)
        return replace(change, source={**self._facts, UNCHANGED: unchanged})

    def _row(
        self, relation: Relation, message: bytes, at: int, *, is_key_alone: bool
    ) -> tuple[Row, int]:
        """Return a row without unchanged large values, which are not sent."""
        row: Row = {}
        at += COUNT.size
        for name, load, is_key in relation.columns:
            form = message[at]
            at += 1
            if form == TEXT:
                (length,) = NUMBER.unpack_from(message, at)
                begin = at + NUMBER.size
                at = begin + length
                row[name] = load(message[begin:at])
            elif form == NULL and (is_key or not is_key_alone):
                row[name] = None
        return row, at

    def _made(self, op: Any, before: Row | None, after: Row | None, table: str) -> Change[Row]:
        self.number += 1
        return Change(op, before, after, table, self._facts, self._transaction, self.number)


def _string(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1


def lsn_text(place: int) -> str:
    """Return a place in the write-ahead log as PostgreSQL writes it.

    >>> lsn_text(lsn_of("16/B374D848"))
    '16/B374D848'
    """
    return f"{place >> 32:X}/{place & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)
