"""Positions in a Redis stream, and their comparison with the present stream.

Where it runs: feeder processes; pure.

A stream has no id of its own.  Three facts show that it is the one that was read: its last id is
not below ours; the entry that was read last is the same, or was removed since; and it counts as
many added entries as were read and wait (Redis 7).  That count shows entries that were removed
before they were read, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

Entries = Sequence[tuple[bytes, Mapping[bytes, bytes]]]
BEGINNING = "0-0"


class StreamLoss(NamedTuple):
    """The reason why the stream cannot simply be continued."""

    why: str
    entries: int = 0  # the number removed before they were read; 0: it is another stream


@dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """The state of a stream at one moment; it may be missing."""

    exists: bool = False
    length: int = 0
    last: str = BEGINNING  # the highest id that was assigned
    first_entry: str = ""
    last_entry: str = ""
    added: int | None = None  # entries since it was created; None: Redis before 7
    deleted: str = ""  # the highest id that was deleted, other than by trimming
    digest: str = ""  # the digest of the entry that was read last, if it is there

    @staticmethod
    def of(answer: Mapping[str, Any], entry: Entries) -> StreamSnapshot:
        """Read the answers of XINFO STREAM, and of XRANGE for one id."""
        first = answer["first-entry"]
        last = answer["last-entry"]
        return StreamSnapshot(
            exists=True,
            length=int(answer["length"]),
            last=_text(answer["last-generated-id"]),
            first_entry=_text(first[0]) if first else "",
            last_entry=_text(last[0]) if last else "",
            added=answer.get("entries-added"),
            deleted=_text(answer.get("max-deleted-entry-id", "")),
            digest=digest_of(entry),
        )

    def unread(self, after: str) -> int | None:
        """Return the number of entries after an id; None if that is not known at once."""
        if not self.length or _order(self.first_entry) > _order(after):
            return self.length
        return 0 if _order(self.last_entry) <= _order(after) else None


@dataclass(frozen=True, slots=True)
class EntryPosition:
    """The position after an entry.

    ``read``: entries added up to it, None if unknown.
    """

    after: str
    read: int | None = None
    digest: str = ""  # the digest of that entry
    is_known: bool = False  # the stream existed when this was compared with it

    def is_at_least(self, entry: str) -> bool:
        """Return whether it is at or after the entry with an id.

        >>> EntryPosition("10-0").is_at_least("9-5"), EntryPosition("9-5").is_at_least("10-0")
        (True, False)
        """
        return _order(self.after) >= _order(entry)

    @staticmethod
    def of(resume: bytes, start: str) -> EntryPosition:
        """Undo `to_bytes`; an id alone is a position of an earlier version."""
        if not resume.startswith(b"{"):
            return EntryPosition(resume.decode() or start)
        return EntryPosition(**json.loads(resume))

    def to_bytes(self) -> bytes:
        """Return the position as it is stored with entries."""
        return json.dumps(asdict(self)).encode()

    def moved(self, entries: Entries) -> EntryPosition:
        """Return the position after entries that follow it."""
        if not entries:
            return self
        read = None if self.read is None else self.read + len(entries)
        after = entries[-1][0].decode()
        return replace(self, after=after, read=read, digest=digest_of(entries[-1:]))

    def adopted(self, seen: StreamSnapshot) -> EntryPosition:
        """Return the position, completed with facts about the present stream."""
        read = self.read
        if read is None and seen.exists and seen.added is not None:
            unread = seen.unread(self.after)
            read = None if unread is None else seen.added - unread
        return replace(self, read=read, is_known=self.is_known or seen.exists)

    def loss(self, moved: EntryPosition, seen: StreamSnapshot) -> StreamLoss | None:
        """Return the loss that the stream shows after entries were read, if any.

        ``moved`` is the position after these entries.

        >>> position = EntryPosition("5-0", 5, is_known=True)
        >>> position.loss(position, StreamSnapshot(True, 0, "3-0", added=3)).why
        'its last id is 3-0'
        >>> position.loss(position, StreamSnapshot(True, 2, "9-0", "8-0", "9-0", 9)).entries
        2
        >>> position.loss(position, StreamSnapshot(True, 1, "9-0", "9-0", "9-0", 6)) is None
        True
        """
        if not seen.exists:
            return StreamLoss("it is gone") if self.is_known else None
        if _order(seen.last) < _order(self.after):
            return StreamLoss(f"its last id is {seen.last}")
        if self.digest and seen.digest and seen.digest != self.digest:
            return StreamLoss("that entry is another one")
        if self.digest and not seen.digest and not self._may_be_removed(seen):
            return StreamLoss("that entry is not there and was not deleted")
        if self.read is None or moved.read is None or seen.added is None:
            return None
        unread = seen.unread(moved.after)
        # while more entries wait than were read just now, the number is only known from before the
        # read
        most = max(self.read + (seen.unread(self.after) or 0), moved.read + (unread or 0))
        if most > seen.added:
            return StreamLoss(
                f"{seen.added:,} entries were ever added, fewer than were read and wait"
            )
        lost = seen.added - moved.read - (unread or 0)
        return StreamLoss(f"{lost:,} entries", lost) if lost and unread is not None else None

    def _may_be_removed(self, seen: StreamSnapshot) -> bool:
        """Return whether the entry that was read last may have been trimmed or deleted."""
        own = _order(self.after)
        is_trimmed = not seen.length or _order(seen.first_entry) > own
        return is_trimmed or not seen.deleted or _order(seen.deleted) >= own


def digest_of(entries: Entries) -> str:
    """Return a digest of one entry's fields; empty without an entry."""
    if not entries:
        return ""
    _, fields = entries[0]
    return hashlib.blake2b(repr(sorted(fields.items())).encode(), digest_size=8).hexdigest()


def _order(id: str) -> tuple[int, int]:
    milliseconds, _, number = id.partition("-")
    return int(milliseconds), int(number or 0)


def _text(id: bytes | str) -> str:
    return id.decode() if isinstance(id, bytes) else id
