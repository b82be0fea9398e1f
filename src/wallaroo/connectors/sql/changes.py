"""Rows and deletions for tables with a key, as staged bytes.

Where it runs: workers pack, the committer unpacks; pure.

The format: ``+`` and a row in the database's own form, or ``-`` and the columns of its key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wallaroo.connectors.sql.rows import in_order
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
    takes_nan: bool = False  # whether the database knows NaN as one key
    _places: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        places = tuple(self.columns.index(name) for name in self.key)
        object.__setattr__(self, "_places", places)

    def __call__(self, output: Any) -> bytes:
        """Pack a row or a `Delete`; raise TypeError or ValueError if it does not fit."""
        if isinstance(output, Delete):
            values = output.values(self.key)
            require_key(self.key, values, takes_nan=self.takes_nan)
            return DELETED + self.pack(values, self.key)
        row = in_order(output, self.columns)
        staged = PUT + self.pack(row, self.columns)
        own = tuple([row[place] for place in self._places])
        require_key(self.key, own, takes_nan=self.takes_nan)
        return staged


def change_of(staged: memoryview, unpack: Unpack) -> tuple[bool, Values]:
    """Return whether a staged change is a deletion, and its values."""
    return staged[:1] == DELETED, unpack(staged[1:])
