"""The transactions that write to a table, by the server's locks.

Where it runs: driver.  It imports psycopg, which is optional.

The invariant: an awaited transaction is awaited until it has ended, even if its name changes
meanwhile. Until then it holds its lock on the table, and a query of the locks never misses it.  A
lock changes hands once: from a session, which has a process, to the prepared transaction that
PREPARE TRANSACTION creates, which has none.  So when a session is gone since the last look, its
transaction has ended, or it is one of those that were prepared since.  Transaction ids are not
sufficient: a writer may have its number and its lock, but no id yet.  A crash of the server renames
prepared transactions; it ends all connections, too, and the reader starts over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import psycopg

# writers use one of the other modes; a prepared transaction is known by the lock on its id
WRITERS = """
    WITH locks AS MATERIALIZED (SELECT * FROM pg_locks WHERE granted)
    SELECT virtualtransaction, pid,
           (SELECT gid FROM pg_prepared_xacts JOIN locks AS own ON own.transactionid = transaction
            WHERE own.pid IS NULL AND own.virtualtransaction = locks.virtualtransaction)
    FROM locks
    WHERE locktype = 'relation'
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (relation = to_regclass(%(table)s)
         OR relation IN (SELECT relid FROM pg_partition_tree(to_regclass(%(table)s))))
    AND mode NOT IN ('AccessShareLock', 'RowShareLock', 'ShareLock', 'ShareUpdateExclusiveLock')
    AND pid IS DISTINCT FROM pg_backend_pid()
"""


@dataclass(frozen=True, slots=True)
class Writer:
    """A transaction that writes, or has written, to the table."""

    transaction: str  # its virtual id, which one that is prepared may keep
    pid: int | None  # that of the session's server process; none: it is prepared
    name: str = field(default="", compare=False)  # a prepared one's

    @property
    def is_prepared(self) -> bool:
        return self.pid is None

    def __str__(self) -> str:
        if self.is_prepared:
            return f"prepared transaction '{self.name or self.transaction}'"
        return f"server process {self.pid}"


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """The awaited writers, and those of the last poll."""

    writers: frozenset[Writer]
    shown: frozenset[Writer]

    def after(self, shown: frozenset[Writer]) -> OpenTransactions:
        """Return the state after another poll.

        >>> session, other = Writer("3/45", 812), Writer("-1/700", None)
        >>> waiting = OpenTransactions(frozenset({session}), frozenset({session, other}))
        >>> prepared = Writer("3/45", None)
        >>> waiting.after(frozenset({prepared, other})).writers == {prepared}
        True
        >>> waiting.after(frozenset({other})).writers
        frozenset()
        """
        writers = self.writers & shown
        if any(not gone.is_prepared for gone in self.writers - shown):
            writers |= {writer for writer in shown - self.shown if writer.is_prepared}
        return OpenTransactions(writers, shown)


def writers_of(connection: psycopg.Connection[Any], table: str) -> frozenset[Writer]:
    """Return the writers of a table, named as SQL, and of its partitions."""
    rows = connection.execute(WRITERS, {"table": table})
    return frozenset(Writer(transaction, pid, name or "") for transaction, pid, name in rows)
