"""Changes of PostgreSQL tables as a log.

A replication slot is read without moving it.

Where it runs: the driver queries the slot and moves it, workers read it.
It imports psycopg, which is optional.

The invariant: an offset is a place in the write-ahead log (LSN).  A transaction is at the place at
which its commit begins, so a range holds whole transactions, in the order of their commits, and the
same ones whenever it is read.  The slot is copied or peeked at (`slot_copy`), and moved when the
run has committed the changes before: a slot at place n keeps all transactions from n on.

Place 0 is before a snapshot of the tables (`snapshot`).  The step from there to the slot's place is
one batch: until it is committed, a run restarts at 0, with another slot and snapshot.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import Format

from wallaroo.connectors.sql.postgres import client
from wallaroo.connectors.sql.postgres.identity import cluster_facts, require_primary
from wallaroo.connectors.sql.postgres.pgoutput import Messages, lsn_of, lsn_text
from wallaroo.connectors.sql.postgres.reader import lent
from wallaroo.connectors.sql.postgres.slot_copy import slot_reader
from wallaroo.connectors.sql.postgres.snapshot import Snapshot, snapshot_rows
from wallaroo.connectors.sql.postgres.source import PostgresChangesConfig
from wallaroo.connectors.sql.source_table import READ_S_MAX, UnavailableError, starting
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.serdes.changes import Change
from wallaroo.sources.identity import Facts
from wallaroo.sources.log import Head, LogContext, Position, Range
from wallaroo.sources.replayable import (
    OwnLog,
    ReplayableSource,
    identity_of,
    offsets_of,
    position_of,
)

PARTITION = "0"
STANDBY = "whose slots do not outlive a failover"
# The log that a batch covers, at least: each batch reads it from the slot's place on.
STEP_BYTES = 16 << 20
CHANGE_BYTES = 100  # assumed size of a change in the log, to report how many are waiting
RETRY_S = 0.25
FETCHED = 2000  # messages

SLOT = """
    SELECT confirmed_flush_lsn::text, wal_status,
           pg_size_pretty(pg_current_wal_flush_lsn() - restart_lsn),
           plugin = 'pgoutput' AND database = current_database()
    FROM pg_replication_slots WHERE slot_name = %s
"""
END = """
    SELECT pg_current_wal_flush_lsn()::text, pg_current_wal_insert_lsn()::text,
           current_setting('wal_block_size')::int
"""
# the tables that a publication names; other ones it has as long as they match
TABLES = """
    SELECT format('%%I.%%I', nspname, relname), pg_class.oid::text
    FROM pg_publication_rel JOIN pg_publication ON pg_publication.oid = prpubid
        JOIN pg_class ON pg_class.oid = prrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pubname = %s
"""
REPLACED = """
    SELECT name FROM jsonb_each_text(%s::jsonb) AS known (name, id)
    WHERE to_regclass(name)::oid::text <> id AND NOT EXISTS (
        SELECT FROM pg_publication_tables
        WHERE pubname = %s AND format('%%I.%%I', schemaname, tablename) = name)
    ORDER BY name
"""
TABLE = "table "  # begins the name of a fact: the object id of a table of the publication
NO_PUBLICATION = (
    "If it never existed, correct its name. If it was dropped, to create it again does not help, "
    "as the server looks it up as of each change: begin again with another --checkpoint folder, "
    "another slot= and a copy of the tables."
)
# at the beginning of a block, at most: a record never fits into so few bytes
PAGE_HEADER_BYTES = 40


@dataclass(frozen=True, slots=True)
class Slot:
    """The state of a slot at the last look."""

    first: int  # the place from which on it keeps changes
    status: str  # PostgreSQL's `wal_status`
    kept: str  # the amount of the log that is kept for it, in words


class PostgresChanges(ReplayableSource[Any]):
    """The publication's tables."""

    kind: ClassVar[str] = "postgres changes"
    ends_query: ClassVar[str] = END
    answer_s: ClassVar[float] = client.ANSWER_S

    def __init__(self, config: PostgresChangesConfig[Any]):
        super().__init__(config.name)
        self.look_s = config.poll_s  # type: ignore[misc]  # one for each source
        self._config = config
        self.slot: Slot | None = None
        self._snapshot: Snapshot | None = None
        self._end = 0
        self._facts: Facts = {}
        self.tables: dict[str, str] = {}  # facts, not compared: a table may be added again

    def __reduce__(self) -> tuple[Any, ...]:
        return PostgresChanges, (self._config,)

    @property
    def label(self) -> str:
        return f"publication '{self._config.publication}' of {self._place}"

    @property
    def _place(self) -> str:
        return client.server_of(self._config.dsn)

    def start(self, partition: str) -> int:
        """Check publication and slot; create the slot if it is missing; return its place.

        The slot of a snapshot is created when that is taken (`snapshot`).
        """
        config = self._config
        with starting(self.name, client.way_out), self._connection() as connection:
            self._check_server(connection)
            self._read_slot(connection)
            if config.snapshot:
                return 0
            if self.slot is None and config.is_trial:
                raise PeerError(
                    f"Source '{self.name}': {self._place} has no slot '{config.slot}', and a trial "
                    f"creates none. Run the application once, or create it: SELECT "
                    f"pg_create_logical_replication_slot('{config.slot}', 'pgoutput');"
                )
            if self.slot is None:
                connection.execute(
                    "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (config.slot,)
                )
                self._read_slot(connection)
            assert self.slot is not None
            return self.slot.first

    def end(self, partition: str) -> int:
        """Return the end of the log on disk; note the slot's state and the server's identity."""
        with self._connection() as connection:
            require_primary(connection, self.name, self._place, STANDBY)
            self._read_slot(connection)
            *ends, block = connection.execute(self.ends_query).fetchone()
            flushed, written = map(lsn_of, ends)
            before = max(self._end, self.slot.first if self.slot else 0)
            self._end = whole_end(flushed, written, block, before)
            # not the whole end: a new process does not know it, and it may be before the one of a
            # commit
            self._facts = {**cluster_facts(connection), "log's end": flushed}
            tables = connection.execute(TABLES, (self._config.publication,)).fetchall()
            self.tables = {f"{TABLE}{name}": number for name, number in tables}
        return self._end

    def identity(self) -> Facts:
        return self._facts

    def read(self, partition: str, start: int | str, end: int) -> Iterator[Change[Any]]:
        """Yield the changes of the transactions in a range; wait for an unavailable server.

        A range that begins with the name of a snapshot holds that.
        """
        if isinstance(start, str):
            yield from self.read_snapshot(start)
            return
        until = time.monotonic() + READ_S_MAX
        done = (start, 0)  # a transaction's place, and the number of its last change
        while True:
            try:
                for place, change in self._read_changes(done[0], end):
                    at = (place, change.order or 0)
                    if place < end and at > done:
                        done = at
                        yield change
                return
            except UnavailableError:
                if time.monotonic() > until:
                    raise
            time.sleep(RETRY_S)

    def snapshot(self) -> Snapshot:
        """Return the snapshot of this run; take it if there is none, in place of the slot."""
        if self._snapshot is None:
            with self._words():
                self._snapshot = Snapshot.export(self._config.dsn, self._config.slot)
            self.slot = Slot(self._snapshot.place, "reserved", "nothing")  # until the next look
            fault_point("postgres_changes.exported")
        return self._snapshot

    def end_snapshot(self) -> None:
        """Give the snapshot up: its rows are committed, or the run ends."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def read_snapshot(self, name: str) -> Iterator[Change[Any]]:
        try:
            with self._connection(math.inf) as connection:
                yield from snapshot_rows(connection, self._config.publication, name)
        except (UnavailableError, PeerError) as error:
            raise PeerError(
                f"Source '{self.name}': the snapshot of {self.label} cannot be read. It is gone if "
                f"the server was restarted, or a connection broke, before the first batch was "
                f"committed. Run again: that begins with a new one. The cause: {error}"
            ) from error

    def move(self, place: int) -> None:
        """Let the server discard everything before a place, now or later."""
        if self._config.is_trial or self.slot is None or place <= self.slot.first:
            return
        fault_point("postgres_changes.move")
        with suppress(UnavailableError), self._connection(READ_S_MAX) as connection:
            connection.execute(
                "SELECT pg_replication_slot_advance(%s, %s)", (self._config.slot, lsn_text(place))
            )
        fault_point("postgres_changes.moved")

    def problem(self, place: int) -> str:
        """Describe why changes after a place cannot be read; empty if they can."""
        slot = self.slot
        if not self._facts or not place:
            return ""  # the server was not reached yet, or nothing was read
        if slot is None:
            return "does not exist any more"
        if slot.status == "lost":
            return "is lost: the server has removed changes that were not read"
        if slot.first > place:
            return (
                f"begins at {lsn_text(slot.first)}, after the last commit's {lsn_text(place)}: it "
                f"was moved or created again"
            )
        return ""

    def replaced(self, known: Facts) -> str:
        """Name the tables of a position in whose place there are unpublished ones."""
        gone = {name.removeprefix(TABLE): known[name] for name in known if name.startswith(TABLE)}
        for name in self.tables:
            gone.pop(name.removeprefix(TABLE), None)
        rows: list[tuple[str]] = []
        if gone:
            with suppress(UnavailableError), self._connection() as connection:
                arguments = (json.dumps(gone), self._config.publication)
                rows = connection.execute(REPLACED, arguments).fetchall()
        return ", ".join(name for (name,) in rows)

    def addition(self, tables: str) -> str:
        return f'ALTER PUBLICATION "{self._config.publication}" ADD TABLE {tables};'

    def warning(self) -> str:
        """Describe a problem that needs attention; empty if there is none."""
        slot = self.slot
        if slot is None or slot.status != "unreserved":
            return ""
        return (
            f"slot '{self._config.slot}' is about to be lost: {slot.kept} are kept for it, more "
            f"than max_slot_wal_keep_size"
        )

    def _read_changes(self, start: int, end: int) -> Iterator[tuple[int, Change[Any]]]:
        """Yield the changes of the transactions from a place to another, or beyond."""
        config = self._config
        doubled = config.publication.replace('"', '""')
        with (
            self._words(),
            slot_reader(config.dsn, config.slot, start, may_copy=not config.is_trial) as reader,
            reader.connection.transaction(),
            reader.connection.cursor("changes") as cursor,
        ):
            client.keep_texts(cursor)
            types = Transformer.from_context(cursor)
            messages = Messages(lambda kind: types.get_loader(kind, Format.TEXT).load)
            cursor.itersize = FETCHED
            arguments = (reader.slot, lsn_text(end), f'"{doubled}"')
            cursor.execute(reader.query, arguments, binary=True)
            for (message,) in cursor:
                for change in messages.changes(message, start):
                    yield messages.commit, change
            if messages.commit < end:  # otherwise the next range's first one was returned, too
                reader.place = end

    @contextmanager
    def _connection(self, answer_s: float | None = None) -> Iterator[Any]:
        with self._words(), lent(self._config.dsn, answer_s or self.answer_s) as connection:
            yield connection

    @contextmanager
    def _words(self) -> Iterator[None]:
        """Turn the client's errors into those of sources."""
        try:
            yield
        except psycopg.Error as error:
            words = f"{self._place}: {client.first_line(error)}"
            is_refused = isinstance(error, psycopg.errors.ObjectNotInPrerequisiteState)
            if client.is_transient(error) and not is_refused:
                raise UnavailableError(words) from error
            if isinstance(error, psycopg.errors.UndefinedObject):
                raise PeerError(
                    f"Source '{self.name}': {words} while changes of that time are read. "
                    f"{NO_PUBLICATION}"
                ) from error
            raise PeerError(
                f"Source '{self.name}' cannot read slot '{self._config.slot}' of {words}. Correct "
                f"the names, the rights (REPLICATION) or the server's settings, then run again."
            ) from error

    def _read_slot(self, connection: Any) -> None:
        row = connection.execute(SLOT, (self._config.slot,)).fetchone()
        if row is None:
            self.slot = None
            return
        first, status, kept, is_ours = row
        if not is_ours:
            raise PeerError(
                f"Source '{self.name}': slot '{self._config.slot}' of {self._place} belongs to "
                f"another plugin or database. Name another one with slot=."
            )
        self.slot = Slot(lsn_of(first), status or "lost", kept or "nothing")

    def _check_server(self, connection: Any) -> None:
        require_primary(connection, self.name, self._place, STANDBY)
        (level,) = connection.execute("SHOW wal_level").fetchone()
        if level != "logical":
            raise PeerError(
                f"Source '{self.name}': {self._place} has wal_level={level}. Set "
                f"wal_level=logical in postgresql.conf and restart the server."
            )
        query = "SELECT 1 FROM pg_publication WHERE pubname = %s"
        if connection.execute(query, (self._config.publication,)).fetchone() is None:
            raise PeerError(
                f"Source '{self.name}': {self._place} has no publication "
                f"'{self._config.publication}'. Create it before the first run: CREATE PUBLICATION "
                f'"{self._config.publication}" FOR TABLE ...;'
            )


class ChangesLog(OwnLog):
    """The log of a slot, read by one task.

    The slot is moved after commits.
    """

    counts_events = False  # places are bytes

    def __init__(self, source: PostgresChanges, is_bounded: bool = False):
        super().__init__(source, is_bounded)
        self._changes = source

    def __reduce__(self) -> tuple[type[ChangesLog], tuple[PostgresChanges]]:
        return ChangesLog, (self._changes,)

    def beginning(self) -> Position:
        return self._with_tables(super().beginning(), 0)

    def advance(self, start: Position, events_max: int) -> Position:
        if _place(start):
            end = super().advance(start, max(events_max * CHANGE_BYTES, STEP_BYTES))
        else:
            self.reconcile(start)
            end = position_of({PARTITION: self._changes.snapshot().place}, self._present)
        return self._with_tables(end, start.events + self.backlog_events(start, Head(end)))

    def _with_tables(self, position: Position, events: int) -> Position:
        facts = {**identity_of(position), **self._changes.tables}
        return replace(position_of(offsets_of(position), facts), events=events)

    def split(self, start: Position, end: Position, pieces: int) -> list[list[Range]]:
        if _place(start) or not _place(end):
            return super().split(start, end, 1)  # a slot serves one connection
        return [[Range(PARTITION, self._changes.snapshot().name, _place(end), 1)]]

    def committed(self, position: Position, released: Position | None) -> None:
        if _place(position):
            self._changes.end_snapshot()
        if released is not None:
            self._changes.move(_place(released))

    def backlog_events(self, position: Position, head: Head) -> int:
        return -(-self.backlog_bytes(position, head) // CHANGE_BYTES)

    def backlog_bytes(self, position: Position, head: Head) -> int:
        if not _place(position):
            return CHANGE_BYTES  # rows of a snapshot, whose number is unknown
        return max(0, _place(head.position) - _place(position))

    def lags(self, position: Position, head: Position) -> Mapping[str, int]:
        return {PARTITION: self.backlog_events(position, Head(head))}

    def close(self) -> None:
        self._changes.end_snapshot()

    def _compare(self, position: Position) -> None:
        super()._compare(position)
        changes = self._changes
        reason = ""
        if problem := changes.problem(_place(position)):
            reason = (
                f"slot {problem}. Begin again with another --checkpoint folder and a copy of the "
                f"tables, or give the source another name and slot= to continue with the changes "
                f"from now on."
            )
        elif replaced := changes.replaced(identity_of(position)):
            reason = (
                f"{replaced} was created again, and the publication lacks the new table, so its "
                f"changes are not read. To continue with those from now on, run again after "
                f"{changes.addition(replaced)} To have all, begin again with another --checkpoint "
                f"folder and a copy of the tables."
            )
        if reason:
            raise CheckpointError(f"Source '{changes.name}' ({changes.label}): {reason}")


def whole_end(flushed: int, written: int, block: int, before: int) -> int:
    """Return an end of whole records, at or before the flushed one.

    The server may flush a part of a record, up to the end of a block of the log, and drops that
    part when it recovers from a crash: a place in it would then refer to other transactions. There
    is no such part if only a block's header was written beyond.

    >>> whole_end(8200, 9000, 8192, before=100), whole_end(16384, 17000, 8192, before=8200)
    (8200, 8200)
    >>> whole_end(16384, 16408, 8192, before=100)
    16384
    """
    if flushed % block or written - flushed <= PAGE_HEADER_BYTES:
        return flushed
    return min(flushed, before)


def _place(position: Position) -> int:
    return offsets_of(position).get(PARTITION, 0)


def open_log(config: PostgresChangesConfig[Any], context: LogContext) -> ChangesLog:
    return ChangesLog(PostgresChanges(config), context.until_now)
