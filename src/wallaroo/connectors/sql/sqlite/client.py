"""SQLite databases with our defaults, and their errors' meaning for runs.

Where it runs: driver and workers.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

BUSY_S = 0.5  # for another program's transaction, before a try counts as failed
_PASSING = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_PROTOCOL,
    }
)


def opened(path: Path, *, is_writing: bool) -> sqlite3.Connection:
    """Open a database without implicit transactions.  Raises OSError, sqlite3.Error."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    mode = "rw" if is_writing else "ro"
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,  # only `interrupt` comes from another one
    )


def columns_of(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    """Return a table's columns; none if it does not exist."""
    found = connection.execute("SELECT name FROM pragma_table_xinfo(?)", (table,))
    return tuple(name for (name,) in found)


def quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def is_transient(error: sqlite3.Error) -> bool:
    """Return whether a retry can help."""
    code = getattr(error, "sqlite_errorcode", None)  # errors of the module itself have none
    return code is not None and code & 0xFF in _PASSING
