"""Parser of runs of chunks, for files and sockets.

Where it runs: driver, workers, ingress (pure: bytes come in through a function).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wallaroo.errors import CheckpointError
from wallaroo.spool.format import CHECKSUM_BYTES, CHUNK_HEADER, Chunk, digest

PIECE_BYTES = 2 * 1024 * 1024  # read at once: large enough for the disk, small enough for the cache

Window = Callable[[int, int], bytes]
"""``window(byte, count)``: the log's bytes from ``byte`` on, ``count`` of them; fewer only if there
are no more.
"""


def parse_chunks(
    window: Window,
    low: int,
    high: int,
    damaged: Callable[[int, str], CheckpointError],
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[Chunk]:
    """Yield the chunks between two of the log's bytes, each checked against its position.

    ``window`` is called with bytes in rising order and always at a chunk boundary, for
    ``piece_bytes`` (a chunk header at least) or as many as a larger chunk needs: all chunks below
    have been yielded.  Raises the error of ``damaged(byte, why)`` for the first damaged chunk.
    """
    unpack = CHUNK_HEADER.unpack_from
    header_bytes = CHUNK_HEADER.size
    wanted = piece_bytes
    while low < high:
        asked = min(wanted, high - low)
        piece = window(low, asked)
        view = memoryview(piece)
        size = len(piece)
        at = 0
        wanted = piece_bytes
        while at + header_bytes <= size:
            checksum, frames, resume, receipt_ns, connection, events = unpack(piece, at)
            body = at + header_bytes
            middle = body + frames
            stop = middle + resume
            if stop > size:
                wanted = max(piece_bytes, stop - at)
                break
            if digest(view[at + CHECKSUM_BYTES : stop], low + at) != checksum:
                raise damaged(low + at, "the checksum of a chunk differs")
            yield Chunk(receipt_ns, connection, events, piece[body:middle], piece[middle:stop])
            at = stop
        # not just a chunk larger than a piece
        if at == 0 and not (size == asked < wanted <= high - low):
            raise damaged(low, "a chunk is not whole")
        low += at
