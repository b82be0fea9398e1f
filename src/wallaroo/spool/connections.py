"""The open connections of a spool, and their numbers.

Where it runs: the ingress writes the log and, when a connection has closed, also a file next to it;
workers read the log, the driver the file.

The invariants:

* Before the first event that follows a connection's close, the log has a chunk that names it
  (`ClosedConnections`).  The one before a process's first event names all connections of earlier
  processes. So the place of each close follows from the log alone, even after crashes.
* Until an event follows, only the file states it, at the same place: that of the log's last event.
* The file states a number of events and a connection's number.  All events of every connection with
  a lower number, except those listed, are among that many first events of the log.  It is a hint,
  not synced: a connection that is not known to be closed counts as open.
* No two connections of a spool that sent events have the same number, and the later one has the
  higher number, even after clock changes and crashes: the spool's head has the next number, and
  chunks found after the head raise it.  Numbers wrap around after ``NUMBERS``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from wallaroo.durable.whole_file import write_whole

FILE = "open"
STATEMENTS_MAX = 256  # enough for a backlog of any length
NUMBERS = 1 << 32  # a chunk's header has room for this many


@dataclass(frozen=True, slots=True)
class ClosedConnections:
    """The content of a chunk without events: connections that have closed."""

    before: int  # all with a lower number
    numbers: frozenset[int]  # and these

    def __call__(self, partitions: Iterable[str]) -> list[str]:
        """Return those of the log's partitions, which are named by numbers, that are closed.

        >>> ClosedConnections(2, frozenset({4}))(["1", "2", "3", "4", ""])
        ['1', '4']
        """
        return [each for each in partitions if each.isdecimal() and self._has(int(each))]

    def _has(self, connection: int) -> bool:
        return connection in self.numbers or _is_before(connection, self.before)

    @staticmethod
    def of(stored: bytes) -> ClosedConnections:
        """Undo ``stored``."""
        before, *numbers = struct.unpack(f">{len(stored) // 4}I", stored)
        return ClosedConnections(before, frozenset(numbers))

    @property
    def stored(self) -> bytes:
        """Return it as a chunk's frames."""
        return struct.pack(f">{len(self.numbers) + 1}I", self.before, *sorted(self.numbers))


@dataclass(frozen=True, slots=True)
class OpenConnections:
    """The content of the file."""

    events: int
    following: int  # the next connection's number
    open: frozenset[int]

    def are_closed(self, connections: Collection[int], events: int) -> list[int]:
        """Return the connections whose last event came before ``events``."""
        if events < self.events:
            return []
        return [
            each
            for each in connections
            if each not in self.open and _is_before(each, self.following)
        ]


class Statements:
    """Statements of the file while input waited.

    More connections may have closed since.

    The newest statement that a position has reached counts.  Of a long backlog some are dropped,
    at equal distances; connections then count as open for a little longer.
    """

    def __init__(self) -> None:
        self._statements: list[OpenConnections] = []

    def add(self, stated: OpenConnections) -> None:
        """Add a statement that was read, which may be the last one again."""
        if self._statements and self._statements[-1] == stated:
            return
        self._statements.append(stated)
        if len(self._statements) > STATEMENTS_MAX:
            events = [each.events for each in self._statements]
            inner = range(1, len(events) - 1)
            del self._statements[min(inner, key=lambda at: events[at + 1] - events[at - 1])]

    def closed(self, connections: Collection[int], events: int) -> list[int]:
        """Return the connections whose last event came before ``events``, which never falls."""
        statements = self._statements
        while len(statements) > 1 and statements[1].events <= events:
            del statements[0]
        return statements[0].are_closed(connections, events) if statements else []


def following(number: int, connection: int) -> int:
    """Return the next connection's number: ``number``, or one after ``connection`` if it is higher.

    ``connection`` is a connection that sent events.

    >>> following(3, 1), following(3, 3), following(3, 9), following(3, NUMBERS - 1)
    (3, 4, 10, 3)
    """
    is_used = not _is_before(connection, number)
    return (connection + 1) % NUMBERS if is_used else number


def _is_before(connection: int, other: int) -> bool:
    return 0 < (other - connection) % NUMBERS <= NUMBERS // 2


def write_open(folder: Path, found: OpenConnections) -> None:
    """Write the file.  Raises OSError."""
    stated = {"events": found.events, "following": found.following, "open": sorted(found.open)}
    content = json.dumps(stated).encode()
    write_whole(folder / FILE, content, is_durable=False, points="spool.open")


def read_open(folder: Path) -> OpenConnections | None:
    """Read the file; None if there is none."""
    try:
        stated = json.loads((folder / FILE).read_bytes())
        return OpenConnections(stated["events"], stated["following"], frozenset(stated["open"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
