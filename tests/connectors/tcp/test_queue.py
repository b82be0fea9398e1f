"""The send queue: one stream of bytes out of batches, and going back in it."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.sinks.identities import commit_of
from wallaroo.connectors.tcp.queue import SendQueue
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.staging import Staged, StagedToken


def queue_of(batches: list[list[list[bytes]]], offset: int = 0) -> tuple[SendQueue, bytes]:
    """A queue of batches of parts of outputs, and all its bytes."""
    parts: dict[str, list[bytes]] = {}

    def load(token: StagedToken) -> Staged:
        outputs = parts[token["file"]]
        return Staged(memoryview(b"".join(outputs)), array("I", map(len, outputs)))

    queue = SendQueue(offset, 0, load)
    stream = b""
    for number, batch in enumerate(batches):
        tokens = []
        start = len(stream)
        for index, part in enumerate(batch):
            name = f"{number}-{index}"
            parts[name] = part
            tokens.append(
                StagedToken(
                    file=name, inline="", bytes=sum(map(len, part)), outputs=len(part), crc=0
                )
            )
            stream += b"".join(part)
        queue.add(
            PendingBatch(
                commit_of(number), start, len(stream) - start, sum(map(len, batch)), tuple(tokens)
            )
        )
    return queue, stream


def drained(queue: SendQueue, limit: int) -> bytes:
    sent = b""
    while queue.has_more():
        piece = b"".join(queue.views(limit))
        assert 0 < len(piece) <= limit
        queue.advance(len(piece))
        sent += piece
    return sent


some_batches = st.lists(
    st.lists(st.lists(st.binary(max_size=5), max_size=4), max_size=3), max_size=4
)


@given(some_batches, st.integers(1, 7))
def test_any_slicing_gives_the_same_stream(batches: list[list[list[bytes]]], limit: int) -> None:
    queue, stream = queue_of(batches)
    assert drained(queue, limit) == stream


@given(some_batches, st.data())
def test_a_boundary_is_where_an_output_begins(
    batches: list[list[list[bytes]]], data: st.DataObject
) -> None:
    queue, stream = queue_of(batches)
    starts, place = {0}, 0
    for batch in batches:
        for part in batch:
            for output in part:
                place += len(output)
                starts.add(place)
    offset = data.draw(st.integers(0, len(stream)))
    assert queue.boundary(offset) == max(start for start in starts if start <= offset)
    queue.seek(offset)
    assert offset + queue.rest_of_output() == min(start for start in starts if start >= offset)
    assert drained(queue, 3) == stream[offset:]


def test_a_batch_handed_over_twice_counts_once() -> None:
    queue, _ = queue_of([[[b"ab"]], [[b"cd"]]])
    assert not queue.add(PendingBatch(commit_of(1), 2, 2, 1, ()))
    assert drained(queue, 100) == b"abcd"


def test_released_batches_cannot_be_sent_again() -> None:
    queue, _ = queue_of([[[b"ab"]], [[b"cd"]]])
    assert [batch.batch for batch in queue.advance(3)] == [0]
    assert [batch.batch for batch in queue.release(3)] == [0]
    with pytest.raises(ValueError, match="outside"):
        queue.seek(1)
