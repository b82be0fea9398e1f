"""Acknowledged streams: a sender learns how many of its frames are safe, and continues there after
any crash.

Where it runs: ingress; ``hello`` and ``COUNT`` also in senders.

The protocol, on a port of its own: the sender connects and says ``hello(stream)``.  The ingress
answers with a u64 (big-endian): the frames of this stream that are in the spool for good.  The
sender sends from there on; after each publish the ingress sends the new count.  A second connection
for a stream ends the first.

The law: a count is sent only after the chunk that it counts is published.  Each chunk carries its
stream's count in ``resume``, so that count and frames are stored by one write.  A file beside the
spool (``streams``) holds the counts at some position; before a segment is removed that file is
written anew, so that file and log together always tell every stream's count.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

from wallaroo.errors import PeerError
from wallaroo.faults import fault_point
from wallaroo.spool import Position, SpoolReader, SpoolWriter
from wallaroo.spool.format import VERSION, check_version, corrupt, digest
from wallaroo.spool.writer import sync_folder

COUNT = struct.Struct(">Q")
_HELLO = struct.Struct(">4sBB")  # magic, version, bytes of the stream's name
_MAGIC = b"wlrs"
HELLO_BYTES_MAX = _HELLO.size + 255


def hello(stream: str) -> bytes:
    """Return what a sender says first.  Raises ValueError for a name of no or more than 255
    bytes.
    """
    name = stream.encode()
    if not 1 <= len(name) <= 255:
        raise ValueError("A stream's name has 1 to 255 bytes.")
    return _HELLO.pack(_MAGIC, VERSION, len(name)) + name


def read_hello(content: bytes) -> tuple[str, bytes] | None:
    """Return the stream's name and what follows, None while the hello is not whole.  Raises
    PeerError for anything else.
    """
    if not _MAGIC.startswith(content[:4]) or (len(content) > 4 and content[4] != VERSION):
        raise PeerError(
            f"it does not begin with the hello of an acknowledged stream; first bytes "
            f"{content[:16].hex(' ')}"
        )
    if len(content) < _HELLO.size or len(content) < _HELLO.size + content[5]:
        return None
    end = _HELLO.size + content[5]
    return content[_HELLO.size : end].decode("utf-8", "replace"), content[end:]


class Streams:
    """The counts of one source's streams, exact over any crash."""

    def __init__(self, writer: SpoolWriter):
        """Read the counts that belong to the writer's position, which must be published."""
        self._path = writer.folder / "streams"
        self._writer = writer
        self.counts: dict[str, int] = {}
        start = self._load()
        for chunk in SpoolReader(writer.folder).chunks(max(start, writer.first), writer.position):
            if chunk.resume:
                self.counts[chunk.resume[COUNT.size :].decode()] = COUNT.unpack_from(chunk.resume)[
                    0
                ]

    def add(self, stream: str, frames: int) -> bytes:
        """Count frames of a stream; return the ``resume`` of their chunk."""
        count = self.counts.get(stream, 0) + frames
        self.counts[stream] = count
        return COUNT.pack(count) + stream.encode()

    def remove_consumed(self) -> None:
        """Remove consumed segments, after the counts in them are stored elsewhere.  Call it right
        after a publish.
        """
        if not self._writer.has_consumed():
            return
        if self.counts:
            self._save(self._writer.position)
        self._writer.remove_consumed()

    def _save(self, position: Position) -> None:
        table = {
            "version": VERSION,
            "byte": position.byte,
            "events": position.events,
            "counts": self.counts,
        }
        content = json.dumps(table).encode()
        fresh = self._path.with_suffix(".new")
        with open(fresh, "wb") as file:
            file.write(digest(content).to_bytes(8, "little") + content)
            file.flush()
            fault_point("streams.fsync")
            os.fsync(file.fileno())
        fault_point("streams.rename")
        os.replace(fresh, self._path)
        fault_point("streams.sync_folder")
        sync_folder(self._path.parent)

    def _load(self) -> Position:
        try:
            stored = self._path.read_bytes()
        except FileNotFoundError:
            return Position()
        if digest(stored[8:]).to_bytes(8, "little") != stored[:8]:
            raise corrupt(self._path, 0, "its checksum differs")
        content = json.loads(stored[8:])
        check_version(Path(self._path), content["version"])
        self.counts = dict(content["counts"])
        return Position(content["byte"], content["events"])
