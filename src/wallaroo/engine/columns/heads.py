"""Heads of stages that take blocks: from a source's frames, and from blocks of a shuffle.

Where it runs: pure (in workers).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallaroo.engine.columns.calls import Calls, returned
from wallaroo.engine.columns.keys import keys_of_list
from wallaroo.engine.columns.operators import exploding
from wallaroo.engine.failures import OnError
from wallaroo.engine.heads import Keyed, Payloads, decode_keyed
from wallaroo.engine.operators.interface import Emit
from wallaroo.engine.packing import Kind
from wallaroo.framing import Framing, frame_splitter
from wallaroo.steps import Decoder
from wallaroo.vectorized.steps import BatchDecoder


def payloads_to_blocks(
    decoder: BatchDecoder[Any], emit: Emit, failed: OnError
) -> Callable[[Payloads], None]:
    """Head of a source stage whose decoder takes many payloads at once."""
    decode = decoder.function
    calls = Calls(decoder, failed)

    def call(keys: Any, payloads: Any) -> Any:
        return returned(decoder, decode(payloads), None, len(payloads))

    def run(payloads: Payloads) -> None:
        done = calls(None, payloads, call) if payloads else None
        if done is not None:
            emit(*done)

    return run


def frames_to_blocks(
    decoder: BatchDecoder[Any], framing: Framing, emit: Emit, failed: OnError
) -> Callable[[bytes], int]:
    """The same for frames as they were received: those that the decoder takes as they are, are not
    cut apart.
    """
    split, run = frame_splitter(framing), payloads_to_blocks(decoder, emit, failed)
    from_frames: Any = getattr(decoder.function, "from_frames", _never)

    def feed(frames: bytes) -> int:
        whole = from_frames(frames, framing)
        if whole is not None:
            rows, count = whole
            if len(rows) if hasattr(rows, "__len__") else rows.num_rows:
                emit(None, rows)
            return int(count)
        payloads = split(frames)
        run(payloads)
        return len(payloads)

    return feed


def _never(frames: bytes, framing: Framing) -> None:
    return None


def keyed_head(kind: Kind, takes_blocks: bool, emit: Emit) -> Keyed:
    """Head of a stage after a shuffle, where blocks come or are wanted."""
    if kind is Kind.COLUMNS:
        return emit if takes_blocks else exploding(emit)

    def run(keys: list[Any], events: list[Any]) -> None:
        emit(keys_of_list(keys), events)

    return run


def decoded_to_blocks(decoder: Decoder[Any], failed: OnError, emit: Emit) -> Keyed:
    """Head of a stage that takes blocks, after a shuffle that carries undecoded payloads."""
    own: list[Any] = []
    events: list[Any] = []

    def gather(key: Any, event: Any) -> None:
        own.append(key)
        events.append(event)

    decode = decode_keyed(decoder, gather, failed)

    def run(keys: list[Any], payloads: list[Any]) -> None:
        decode(keys, payloads)
        if events:
            gathered = list(events)
            of = keys_of_list(own)
            own.clear()
            events.clear()
            emit(of, gathered)

    return run
