"""Heads of stages that accept blocks, from a source or a shuffle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from wallaroo.engine.columnar.calls import Calls, returned
from wallaroo.engine.columnar.keys import keys_of_list
from wallaroo.engine.columnar.rows import count_of
from wallaroo.engine.failures.policies import OnError
from wallaroo.engine.operators.interface import Emit
from wallaroo.engine.stages.readers import Keyed, Payloads, decode_keyed
from wallaroo.protocols.framing import Framing, frame_splitter
from wallaroo.steps.kinds import Decoder
from wallaroo.vectorized.row_error import Inconvertible
from wallaroo.vectorized.steps import BatchDecoder
from wallaroo.vectorized.valid_rows import require_valid

# frames to decode at once: a block's columns then fit into a core's second-level cache
GATHERED_BYTES = 256 * 1024


def payloads_to_blocks(
    decoder: BatchDecoder[Any], emit: Emit, failed: OnError
) -> Callable[[Payloads], None]:
    """Return the head of a source stage whose decoder accepts many payloads at once."""
    decode = decoder.function
    calls = Calls(decoder, failed)

    def call(keys: Any, payloads: Any) -> Any:
        decoded = returned(decoder, decode(payloads), None, len(payloads))
        if decoded is not None and isinstance(decoded[1], pa.RecordBatch):
            try:
                require_valid(decoded[1])
            except ValueError as error:
                raise Inconvertible(str(error)) from error
        return decoded

    def run(payloads: Payloads) -> None:
        waiting = list(payloads)
        size = payloads_max or len(waiting)
        for first in range(0, len(waiting), size or 1):
            for done in calls(None, waiting[first : first + size], call):
                emit(*done)

    payloads_max = getattr(decode, "payloads_max", 0)
    return run


class GatheredFrames:
    """Head of a source stage that collects frames into blocks.

    This saves calls.
    """

    def __init__(
        self,
        decoder: BatchDecoder[Any],
        framing: Framing,
        emit: Emit,
        failed: OnError,
        bytes_min: int = GATHERED_BYTES,
    ) -> None:
        self._framing = framing
        self._split = frame_splitter(framing)
        self._run = payloads_to_blocks(decoder, emit, failed)
        self._emit = emit
        self._count: Any = getattr(decoder.function, "count", None)
        self._rows: Any = getattr(decoder.function, "rows", None)
        self._bytes_min = bytes_min
        self._waiting: list[bytes] = []
        self._bytes = 0

    def feed(self, frames: bytes) -> int:
        """Accept frames; return their number."""
        count = None if self._count is None else self._count(frames, self._framing)
        if count is None:
            self.flush()
            payloads = self._split(frames)
            self._run(payloads)
            return len(payloads)
        self._waiting.append(frames)
        self._bytes += len(frames)
        if self._bytes >= self._bytes_min:
            self.flush()
        return int(count)

    def flush(self) -> None:
        """Emit the frames that wait."""
        if not self._waiting:
            return
        frames = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        rows = self._rows(frames, self._framing)
        if rows is None:
            self._run(self._split(frames))
        elif count_of(rows):
            self._emit(None, rows)


def events_to_blocks(emit: Emit) -> Keyed:
    """Return the head of a stage that accepts blocks, after a shuffle of events."""

    def run(keys: list[Any], events: list[Any]) -> None:
        emit(keys_of_list(keys), events)

    return run


def decoded_to_blocks(decoder: Decoder[Any], failed: OnError, emit: Emit) -> Keyed:
    """Return the head of a stage that accepts blocks, after a shuffle of undecoded payloads."""
    decoded: list[Any] = []
    events: list[Any] = []

    def gather(key: Any, event: Any) -> None:
        decoded.append(key)
        events.append(event)

    decode = decode_keyed(decoder, gather, failed)

    def run(keys: list[Any], payloads: list[Any]) -> None:
        decode(keys, payloads)
        if events:
            gathered = list(events)
            of = keys_of_list(decoded)
            decoded.clear()
            events.clear()
            emit(of, gathered)

    return run
