"""The actions of an egress, as values.

The machine returns them, the loop executes them.

They are executed in order.  `Dial` and `Send`, whose outcome is the machine's next input, are
always the last of their list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from wallaroo.connectors.tcp.pipe import Message


@dataclass(frozen=True, slots=True)
class Dial:
    """Start an attempt to connect.

    Its outcome is reported as `connect` or `refuse`.
    """


@dataclass(frozen=True, slots=True)
class Begin:
    """Note the connection's first offset and hand over a second descriptor."""

    start: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a part of the views, and report how much.

    Flush if there are none.
    """

    views: Sequence[memoryview]


@dataclass(frozen=True, slots=True)
class HalfClose:
    """End this side of the connection."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection; if abandoned, drop what the kernel still holds."""

    is_abandoned: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """Record changes of the progress, safe from SIGKILL."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Record the place, and report it while a batch is being sent.

    Both may be skipped.
    """

    accepted: int
    acked: int
    is_reported: bool


@dataclass(frozen=True, slots=True)
class Release:
    """Record and sync that batches are never sent again.

    Then notify the committer.
    """

    batch: int
    end: int
    skipped: int
    accepted: int
    acked: int


@dataclass(frozen=True, slots=True)
class Tell:
    """Send the committer a message; `Reports` drops redundant ones."""

    message: Message


Action: TypeAlias = Dial | Begin | Send | HalfClose | Close | Record | Place | Release | Tell
