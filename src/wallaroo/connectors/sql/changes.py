"""Rows and deletions for tables with a key, as staged bytes.

Where it runs: workers pack, the committer unpacks; pure.

The format: ``+`` and a row in the database's own form, or ``-`` and the columns of its key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wallaroo.sinks.changes import Delete, require_key

Values = tuple[Any, ...]
Pack = Callable[[Any, tuple[str, ...]], bytes]
Unpack = Callable[[memoryview], Values]
PUT = b"+"
DELETED = b"-"


@dataclass(frozen=True, slots=True)
class ChangePack:
    """The packing of rows, and of deletions by key."""

    pack: Pack
    columns: tuple[str, ...]
    key: tuple[str, ...]

    def __call__(self, output: Any) -> bytes:
        """Pack a row or a `Delete`; raise TypeError or ValueError, in words, if it does not fit."""
        if isinstance(output, Delete):
            values = output.values(self.key)
            require_key(self.key, values)
            return DELETED + self.pack(values, self.key)
        staged = PUT + self.pack(output, self.columns)
        require_key(self.key, tuple([output[self.columns.index(name)] for name in self.key]))
        return staged


def change_of(staged: memoryview, unpack: Unpack) -> tuple[bool, Values]:
    """Return whether a staged change is a deletion, and its values."""
    return staged[:1] == DELETED, unpack(staged[1:])
