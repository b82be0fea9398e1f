"""Line of commits: the files of ``commits/`` that count.

Where it runs: driver and workers; pure but for ``read_line``.

Two runs may write commits concurrently: the owner of the checkpoint, and one that has not yet
learned that it lost ownership.  Files of commits are named by number and epoch of the run that
wrote them, so none is ever overwritten; the line determines for each number whose commit counts.
It is a tuple of pieces (first number, epoch), each of which lasts until the next one begins.  Every
run writes the line that it continues into its claim before it acts on it; the newest claim that has
a line is the one that counts.  Files without an epoch have the previous format, and epoch 0.

With the line, at the start and at the end of a run, the newest commit on it is noted: a log that
ends before that one, even an empty log, has lost commits.  The note is of one checkpoint, as claims
stay when a fresh start deletes everything else.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from wallaroo.durable.commit_id import NO_BATCH
from wallaroo.errors import CheckpointError
from wallaroo.state.log.layout import COMMITS, OWNERS
from wallaroo.state.log.storage import WAYS_OUT, Storage

SUFFIX = ".run"
_READ_TRIES = 20


class CommitFile(NamedTuple):
    """A file of ``commits/``, by its name.

    It is one commit, or a segment that begins with it.
    """

    first: int
    epoch: int
    is_segment: bool

    @property
    def name(self) -> str:
        epoch = f".{self.epoch}" if self.epoch else ""
        return f"{COMMITS}/{self.first:020d}{epoch}{SUFFIX if self.is_segment else ''}"


def commit_file(name: str) -> CommitFile | None:
    """Return the file of this name, without its folder; None if it is not a file of commits.

    >>> commit_file(f"{3:020d}.7.run"), commit_file(f"{3:020d}")
    (CommitFile(first=3, epoch=7, is_segment=True), CommitFile(first=3, epoch=0, is_segment=False))
    >>> commit_file("notes.txt")
    """
    first, _, epoch = name.removesuffix(SUFFIX).partition(".")
    if not first.isdigit() or not (epoch.isdigit() or not epoch):
        return None
    return CommitFile(int(first), int(epoch or 0), name.endswith(SUFFIX))


@dataclass(frozen=True, slots=True)
class Line:
    """The line of commits.

    ``view`` is the epoch of the last take-over, which began new views.
    """

    pieces: tuple[tuple[int, int], ...] = ((0, 0),)
    view: int = 0
    last: int = NO_BATCH  # the newest commit of this checkpoint
    checkpoint: str = ""

    def epoch_of(self, batch: int) -> int:
        """Return the epoch whose commit ``batch`` counts; -1 if it was before the line.

        >>> line = Line(((0, 1), (5, 3)))
        >>> line.epoch_of(4), line.epoch_of(5), line.epoch_of(900)
        (1, 3, 3)
        """
        return next((epoch for first, epoch in reversed(self.pieces) if first <= batch), -1)

    def counts(self, file: CommitFile) -> bool:
        """Return whether a file, or at least the beginning of a segment, is on the line."""
        return self.epoch_of(file.first) == file.epoch

    def file_of(self, batch: int, *, is_segment: bool = False) -> CommitFile:
        """Return the file of commit ``batch``, or of the segment that begins with it."""
        return CommitFile(batch, self.epoch_of(batch), is_segment)

    def view_of(self, checkpoint: str) -> str:
        """Return the name under which hosts keep views of the checkpoint of this id.

        Workers of a run that was taken over may still write to theirs.
        """
        return f"{checkpoint}-{self.view}" if self.view else checkpoint

    def name_of(self, batch: int) -> str:
        """Return the name of commit ``batch`` in the storage."""
        return self.file_of(batch).name

    def continued(self, first: int, epoch: int, oldest: int) -> Line:
        """Return the line on which ``epoch`` writes from ``first`` on.

        Pieces before the ``oldest`` commit that is retained are left out.

        >>> Line(((0, 1), (5, 3), (9, 4))).continued(7, 6, oldest=6).pieces
        ((5, 3), (7, 6))
        """
        kept = [piece for piece in self.pieces if piece[0] < first]
        while len(kept) > 1 and kept[1][0] <= oldest:
            del kept[0]
        return replace(self, pieces=(*kept, (first, epoch)))

    def lost_end(self, batches: Collection[int], checkpoint: str) -> str:
        """Return how a log with these commits ends before it should; "" if it does not.

        >>> Line(last=5, checkpoint="c").lost_end([3, 4], "c")
        'commits/00000000000000000005 is missing: the checkpoint had commits up to 5, and has 4.'
        >>> Line(last=5, checkpoint="c").lost_end([], "begun afresh")
        ''
        """
        newest = max(batches, default=NO_BATCH)
        if checkpoint != self.checkpoint or newest >= self.last:
            return ""
        left = "none" if newest == NO_BATCH else f"{newest}"
        name = self.name_of(self.last)
        return f"{name} is missing: the checkpoint had commits up to {self.last}, and has {left}."


class ClaimFile(NamedTuple):
    """A file of ``owners/``, by its name."""

    epoch: int
    name: str


def claim_files(names: list[str]) -> list[ClaimFile]:
    """Return the claims among these names, newest first."""
    epochs = ((name.partition(".")[0], name) for name in names)
    return sorted((ClaimFile(int(epoch), name) for epoch, name in epochs if epoch.isdigit()))[::-1]


def encode_line(line: Line) -> bytes:
    """Return a line as a claim holds it: a checksum, then JSON."""
    fields = {"line": line.pieces, "view": line.view, "last": line.last, "of": line.checkpoint}
    body = json.dumps(fields, separators=(",", ":")).encode()
    return b"%08x %b\n" % (zlib.crc32(body), body)


def lines_in(content: bytes) -> Iterator[Line]:
    """Yield the complete lines of a claim, oldest first; a torn one was never acted on."""
    for text in content.split(b"\n")[1:-1]:
        crc, _, body = text.partition(b" ")
        if crc == b"%08x" % zlib.crc32(body):
            stated = json.loads(body)
            pieces = tuple((first, epoch) for first, epoch in stated["line"])
            noted = (stated.get("last", NO_BATCH), stated.get("of", ""))  # newer than the line
            yield Line(pieces, stated["view"], *noted)


def read_line(storage: Storage, below: int | None = None) -> Line:
    """Return the line of the newest claim that has one (of those ``below`` an epoch)."""
    for _ in range(_READ_TRIES):
        try:
            for claim in claim_files(storage.names(OWNERS)):
                if below is None or claim.epoch < below:
                    lines = list(lines_in(storage.read(f"{OWNERS}/{claim.name}")))
                    if lines:
                        return lines[-1]
        except CheckpointError as error:  # renamed or deleted a moment ago
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
        else:
            return _without_claims(storage)
    raise CheckpointError(
        f"the claims in {OWNERS}/ of the checkpoint change faster than they can be read: several "
        f"runs take it over from each other. Leave one of them, then try again."
    )


def _without_claims(storage: Storage) -> Line:
    """Return the line of a checkpoint without claims; raise if its claims are missing."""
    for name in storage.names(COMMITS):
        file = commit_file(name)
        if file is not None and file.epoch:
            raise CheckpointError(
                f"{file.name} was written in epoch {file.epoch}, and no file of {OWNERS}/ says "
                f"which epochs count. {WAYS_OUT}"
            )
    return Line()
