"""Committed batches with unsent output, in order.

Where it runs: driver; pure.

The backlog also keeps those that still have to be handed to the egress.  Pending files count
committed bytes, skipped ones included; the egress counts the bytes that the receiver gets.  The
backlog converts between the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from wallaroo.connectors.tcp.pipe import Message
from wallaroo.durable.commit_id import NO_BATCH
from wallaroo.sinks.queued.pending import PendingBatch


def end_of(batch: PendingBatch) -> int:
    """Return the offset after a batch, skipped bytes included."""
    return batch.end + batch.skipped_bytes


class Backlog:
    """One sink's unreleased batches; ``end`` counts skipped bytes, ``sent_end`` does not."""

    def __init__(self, end: int, skipped: int, last: int):
        self.end = end
        self.last = last  # last batch that was committed, with output or without
        self._skipped = skipped
        self._pending: dict[int, PendingBatch] = {}  # in order; until released
        self._unsent: dict[int, PendingBatch] = {}
        self._messages: dict[int, Message] = {}
        self._to_hand: deque[Message] = deque()
        self._listed_to = NO_BATCH  # batches up to this one have pending files

    @property
    def sent_end(self) -> int:
        """Return the end of the output as the receiver counts it."""
        return self.end - self._skipped

    @property
    def committed(self) -> int:
        """Return the last batch up to which all output was sent."""
        return next(iter(self._unsent)) - 1 if self._unsent else self.last

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add(self, batch: PendingBatch) -> None:
        """Append a batch, and queue it for the egress."""
        handed = replace(batch, start=batch.start - self._skipped)
        message = {"commit": handed.to_json(), "end": end_of(batch)}
        self._pending[batch.batch] = batch
        self._unsent[batch.batch] = batch
        self._messages[batch.batch] = message
        self._to_hand.append(message)
        self._skipped += batch.skipped_bytes
        self.end = end_of(batch)
        self.last = batch.batch

    def note_listed(self) -> None:
        """Note that all batches have pending files."""
        self._listed_to = self.last

    def is_listed(self, batch: PendingBatch) -> bool:
        return batch.batch <= self._listed_to

    def take_unlisted(self, before: int) -> list[PendingBatch]:
        """Return the batches before ``before`` that lack a pending file, in order.

        They count as listed from now on: the caller writes their files.
        """
        unlisted: list[PendingBatch] = []
        for number, batch in self._pending.items():
            if number >= before:
                break
            if number > self._listed_to:
                unlisted.append(batch)
        if unlisted:
            self._listed_to = unlisted[-1].batch
        return unlisted

    def start_again(self) -> None:
        """Queue all batches for a new egress, then the message that starts it."""
        self._to_hand = deque([*self._messages.values(), {"start": True}])

    def pull(self) -> Message | None:
        """Return the next message to hand over; None if there is none."""
        return self._to_hand.popleft() if self._to_hand else None

    def take_sent(self, batch: int) -> PendingBatch | None:
        """Note that a batch left; return it the first time."""
        return self._unsent.pop(batch, None)

    def take_released(self, last: int) -> Iterable[PendingBatch]:
        """Forget the batches up to ``last``, and yield them."""
        released = [batch for batch in self._pending if batch <= last]
        for batch in released:
            del self._messages[batch]
            yield self._pending.pop(batch)
