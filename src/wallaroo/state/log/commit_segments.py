"""Runs: many commits appended to one file.

They serve commits every few milliseconds.

Where it runs: pure (bytes in, bytes out).

A run is the file ``commits/<number of its first commit>.<epoch>.run``.  Each record is a line of
facts (version, length and crc32 of the body, crc32 of these three), then the body: the commit as
JSON, whose snapshots are null if they equal those of the record before it.

The invariants:

* A record is committed once it is whole (and synced, in durable mode).  Only a record that ends
  with the file may be unfinished: it was never committed, and the next run cuts it off.
* A power cut may leave zeros instead of unsynced bytes. No record contains a zero byte,
  so zeros after the last whole record, or at the end of a record that ends with the file, were
  never committed.  Zeros followed by anything else are damage.
* The line of facts has a checksum of its own, so damage is never mistaken for an unfinished record.
* The first record of a run states its snapshots.
* A run to which another process may still write is not part of the line: a run that takes the
  checkpoint over copies it (`CommitLog.continue_as`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from wallaroo.errors import CheckpointError
from wallaroo.state.log.commit_record import VERSION, Commit, SnapshotRef, body_of, commit_of
from wallaroo.state.log.layout import check_version
from wallaroo.state.log.line import CommitFile
from wallaroo.state.log.storage import WAYS_OUT

HEAD_BYTES_MAX = 64


def encode_record(commit: Commit, before: tuple[SnapshotRef, ...] | None) -> bytes:
    """Return a commit's record; ``before``: the preceding record's snapshots, or None."""
    body = body_of(commit, has_snapshots=commit.snapshots != before)
    facts = b"%d %d %08x" % (VERSION, len(body), zlib.crc32(body))
    return b"%b %08x\n%b" % (facts, zlib.crc32(facts), body)


def encode_segment(commits: Sequence[Commit]) -> bytes:
    """Return the content of a segment that holds these commits, oldest first."""
    befores = (None, *(commit.snapshots for commit in commits))
    return b"".join(map(encode_record, commits, befores))


@dataclass(slots=True)
class CommitSegment:
    """A run, as far as it was read."""

    file: CommitFile
    ends: list[int] = field(default_factory=list)
    snapshots: tuple[SnapshotRef, ...] | None = None  # the last record's
    damage: str = ""  # the damage after the last record

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def first(self) -> int:
        """Return the number of its first commit."""
        return self.file.first

    @property
    def next(self) -> int:
        """Return the number after its last commit."""
        return self.first + len(self.ends)

    @property
    def end(self) -> int:
        """Return the size in bytes of its complete records."""
        return self.ends[-1] if self.ends else 0

    def end_after(self, batch: int) -> int:
        """Return the size in bytes of its records up to commit ``batch``."""
        return self.ends[batch - self.first]

    def read_on(self, content: bytes) -> list[Commit]:
        """Return the commits added since; ``content`` is that of the whole file."""
        commits: list[Commit] = []
        written = len(content.rstrip(b"\0"))
        try:
            while (commit := self._next(content, written)) is not None:
                commits.append(commit)
        except CheckpointError as error:
            self.damage = str(error)
        return commits

    def _next(self, content: bytes, written: int) -> Commit | None:
        at = self.end
        line_end = content.find(b"\n", at, at + HEAD_BYTES_MAX)
        if line_end < 0 and written - at < HEAD_BYTES_MAX:
            return None
        start = line_end + 1
        length, crc = self._facts(content[at:line_end] if line_end > 0 else b"")
        if start + length > len(content) or written < start + length == len(content):
            return None
        body = content[start : start + length]
        if zlib.crc32(body) != crc:
            raise self._damaged()
        raw = json.loads(body)
        commit = commit_of(raw, self.snapshots if raw["snapshots"] is None else None)
        if commit.batch != self.next:
            raise CheckpointError(f"{self.name} holds commit {commit.batch}. {WAYS_OUT}")
        self.ends.append(start + length)
        self.snapshots = commit.snapshots
        return commit

    def _facts(self, line: bytes) -> tuple[int, int]:
        facts, _, own = line.rpartition(b" ")
        try:
            version, length, crc = facts.split(b" ")
            if int(own, 16) != zlib.crc32(facts):
                raise self._damaged()
            check_version(self.name, int(version), VERSION)
            return int(length), int(crc, 16)
        except ValueError:
            raise self._damaged() from None

    def _damaged(self) -> CheckpointError:
        return CheckpointError(f"{self.name} is corrupt at commit {self.next}. {WAYS_OUT}")
