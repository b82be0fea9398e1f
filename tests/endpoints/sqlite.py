"""An SQLite table as an end.

Where it runs: the verifier.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tests.endpoints.interface import Output


class SQLiteOutput(Output):
    """A table in a file."""

    def __init__(self, folder: Path):
        self._path = folder / "output.db"
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(
                "CREATE TABLE output (id INTEGER PRIMARY KEY AUTOINCREMENT, key, line TEXT)"
            )
        self.arguments = ["--sink", "sqlite", "--folder", str(folder)]

    def lines(self) -> Iterator[bytes]:
        with closing(sqlite3.connect(self._path)) as connection:
            for (line,) in connection.execute("SELECT line FROM output ORDER BY id"):
                yield line.encode()
