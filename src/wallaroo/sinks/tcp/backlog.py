"""Committed batches whose output has not left, in order, and which of them the egress still has to
be handed.

Where it runs: driver; pure.

Pending files count committed bytes, skipped ones too.  The egress counts the bytes that the
receiver gets.  This is where the one becomes the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from wallaroo.identity import NO_BATCH
from wallaroo.sinks.pending import PendingBatch
from wallaroo.sinks.tcp.egress.pipe import Message


def end_of(batch: PendingBatch) -> int:
    """Return where a batch ends, skipped bytes included."""
    return batch.end + batch.skipped_bytes


class Backlog:
    """The batches; ``end`` counts skipped bytes, ``sent_end`` does not."""

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
        """Where the output ends as the receiver counts it."""
        return self.end - self._skipped

    @property
    def committed(self) -> int:
        """The last batch whose output left completely."""
        return next(iter(self._unsent)) - 1 if self._unsent else self.last

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add(self, batch: PendingBatch) -> None:
        """Append a batch, and have it handed over."""
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
        """Whether a batch has a pending file."""
        return batch.batch <= self._listed_to

    def take_unlisted(self, before: int) -> list[PendingBatch]:
        """Return the batches before ``before`` without a pending file, in order; they get one."""
        found: list[PendingBatch] = []
        for number, batch in self._pending.items():
            if number >= before:
                break
            if number > self._listed_to:
                found.append(batch)
        if found:
            self._listed_to = found[-1].batch
        return found

    def start_again(self) -> None:
        """Have everything handed over, then the egress started."""
        self._to_hand = deque([*self._messages.values(), {"start": True}])

    def pull(self) -> Message | None:
        """The next message to hand over."""
        return self._to_hand.popleft() if self._to_hand else None

    def take_sent(self, batch: int) -> PendingBatch | None:
        """Note that a batch left; return it the first time."""
        return self._unsent.pop(batch, None)

    def take_released(self, last: int) -> Iterable[PendingBatch]:
        """Forget the batches up to ``last``, and return them."""
        released = [batch for batch in self._pending if batch <= last]
        for batch in released:
            del self._messages[batch]
            yield self._pending.pop(batch)
