"""Committed batches as one stream of bytes, and the place in it.

Where it runs: pure (the loader reads staged output).

An egress sends the batches in order.  Every byte of a sink's output has an *offset*, counted from
the first byte the checkpoint ever committed.  ``offset`` is the next byte to hand to the socket.
Batches stay in the queue until they are released, so that the place can go back to what the other
side acknowledged.

The invariant: every batch begins where the one before it ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate

from wallaroo.durable.commit_id import NO_BATCH
from wallaroo.errors import InternalError
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.staging import Staged, StagedToken

VIEWS_MAX = 512  # buffers per send; systems allow 1024 (IOV_MAX)
Loader = Callable[[StagedToken], Staged]


class SendQueue:
    """The committed, unreleased batches, and the next byte to send."""

    def __init__(self, offset: int, start: int, loader: Loader):
        """Begin at ``offset``; ``start`` is the end of the last batch that was released."""
        self.offset = max(offset, start)
        self.start = start
        self._load = loader
        self._batches: deque[PendingBatch] = deque()
        self._current: PendingBatch | None = None
        # the current batch's: offset of the part, the part
        self._parts: list[tuple[int, Staged]] = []

    @property
    def end(self) -> int:
        """Return the offset after the last committed byte."""
        return self._batches[-1].end if self._batches else self.start

    @property
    def batch(self) -> int:
        """Return the batch that the last ``views`` belong to; -1 if there were none."""
        return self._current.batch if self._current is not None else NO_BATCH

    def has_more(self) -> bool:
        """Return whether something waits to be sent."""
        return bool(self._batches) and self.offset < self._batches[-1].end

    def add(self, batch: PendingBatch) -> bool:
        """Append a batch; return False if it is already known."""
        if self._batches and batch.batch <= self._batches[-1].batch:
            return False
        if batch.start != self.end:
            raise InternalError(
                f"batch {batch.batch} begins at byte {batch.start}, the one before it ends at "
                f"{self.end}"
            )
        self._batches.append(batch)
        return True

    def views(self, limit: int) -> list[memoryview]:
        """Return at most ``limit`` next bytes, all of one batch; [] if none waits."""
        views: list[memoryview] = []
        for start, part in self._around(self.offset):
            if limit <= 0 or len(views) == VIEWS_MAX:
                break
            skipped = max(0, self.offset - start)
            if skipped < len(part.body):
                views.append(part.body[skipped : skipped + limit])
                limit -= len(views[-1])
        return views

    def advance(self, count: int) -> tuple[PendingBatch, ...]:
        """Count bytes as handed over; return the batches that are complete with them."""
        before = self.offset
        self.offset += count
        return tuple(batch for batch in self._batches if before < batch.end <= self.offset)

    def seek(self, offset: int) -> None:
        """Move to ``offset``, which must be one that is still held."""
        if not self.start <= offset <= self.end:
            raise ValueError(f"offset {offset} is outside of {self.start}..{self.end}")
        self.offset = offset

    def boundary(self, offset: int) -> int:
        """Return the largest offset up to ``offset`` that begins an output or ends the stream."""
        offset = max(offset, self.start)
        for start, part in self._around(offset):
            if start <= offset < start + len(part.body):
                ends = [0, *accumulate(part.lengths)]
                return start + ends[bisect_right(ends, offset - start) - 1]
        return offset

    def rest_of_output(self) -> int:
        """Return the number of bytes left of the current output; 0 between outputs."""
        for start, part in self._around(self.offset):
            place = self.offset - start
            if 0 <= place < len(part.body):
                ends = [0, *accumulate(part.lengths)]
                index = bisect_right(ends, place)
                return 0 if ends[index - 1] == place else ends[index] - place
        return 0

    def release(self, offset: int) -> list[PendingBatch]:
        """Forget all batches that end at or before ``offset``, and return them."""
        released = []
        while self.is_releasable(offset):
            released.append(self._batches.popleft())
        if released:
            self.start = released[-1].end
            if self._current is not None and self._current.batch <= released[-1].batch:
                self._current = None
                self._parts = []
        return released

    def is_releasable(self, offset: int) -> bool:
        """Return whether `release` would release a batch."""
        return bool(self._batches) and self._batches[0].end <= min(offset, self.offset)

    def skips(self) -> list[PendingBatch]:
        return [batch for batch in self._batches if batch.skipped_bytes]

    def is_empty(self) -> bool:
        return not self._batches

    def _around(self, offset: int) -> Sequence[tuple[int, Staged]]:
        """Return the verified parts of ``offset``'s batch, each with its offset."""
        if self._current is None or not self._current.start <= offset < self._current.end:
            self._current = next(
                (batch for batch in self._batches if batch.start <= offset < batch.end), None
            )
            self._parts = []
            if self._current is not None:
                start = self._current.start
                for token in self._current.tokens:
                    part = self._load(token)
                    self._parts.append((start, part))
                    start += len(part.body)
        return self._parts
