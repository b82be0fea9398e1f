"""A temporary copy of a replication slot, which moves with the reading.

Where it runs: workers.  It imports psycopg, which is optional.

The slot itself stays at the oldest commit that is retained, and the server decodes from there each
time it is peeked at: every batch would repeat the changes of many.  The server drops a copy with
its connection, which it ends itself if a process does not use it for a minute.

The invariant: a copy at place n has returned all transactions before n, and no other.  It serves
the range that begins there; any other range begins with a new copy, and so does the range after one
that was not read to its end.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from wallaroo.connectors.sql.postgres.client import connected
from wallaroo.connectors.sql.postgres.reader import lent

CHANGES = (
    "SELECT data FROM pg_logical_slot_{}_binary_changes"
    "(%s, %s, NULL, 'proto_version', '1', 'publication_names', %s)"
)
COPY = "SELECT pg_copy_logical_replication_slot(%s, %s, true)"  # from version 12
IDLE = "SET idle_session_timeout = '60s'"  # from version 14
PREFIX_LENGTH_MAX = 40  # a name may have 63 characters


@dataclass(slots=True)
class SlotReader:
    """A connection, with the statement and slot that return changes over it."""

    connection: psycopg.Connection[Any]
    query: str
    slot: str
    place: int | None = None  # before which it has returned all, and no other; None: not known


_copies: dict[tuple[str, str], SlotReader] = {}  # by dsn and slot; one in use is not there


@contextmanager
def slot_reader(dsn: str, slot: str, start: int, *, may_copy: bool) -> Iterator[SlotReader]:
    """Lend a reader of the changes from ``start`` on, or from an earlier place.

    Its user notes the place to which it was read.  If the server has no room for a copy, the slot
    is peeked at.
    """
    reader = _copied(dsn, slot, start) if may_copy else None
    if reader is None:
        with lent(dsn) as connection:
            yield SlotReader(connection, CHANGES.format("peek"), slot)
        return
    try:
        yield reader
    finally:
        if reader.place is None:
            reader.connection.close()
        else:
            _copies[dsn, slot] = reader


def _copied(dsn: str, slot: str, start: int) -> SlotReader | None:
    reader = _copies.pop((dsn, slot), None)
    if reader is not None:
        if reader.place == start and _is_open(reader.connection):
            reader.place = None
            return reader
        reader.connection.close()
    connection = connected(dsn)
    name = f"{slot[:PREFIX_LENGTH_MAX]}_{uuid.uuid4().hex[:12]}"
    try:
        connection.execute(IDLE)
        connection.execute(COPY, (slot, name))
    except psycopg.Error:  # an older server, no free slot, or none to copy: peeking reports that
        connection.close()
        return None
    return SlotReader(connection, CHANGES.format("get"), name)


def _is_open(connection: psycopg.Connection[Any]) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True
