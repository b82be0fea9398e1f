"""Acknowledged streams: a sender learns how many of its frames are stored, and continues there
after any crash.

Where it runs: ingress; ``hello`` and ``COUNT`` also in senders.

The protocol, on a port of its own: the sender connects and sends ``hello(stream)``.  The ingress
answers with a u64 (big-endian): the frames of this stream that are in the spool for good.  The
sender sends from there on; after each publication the ingress sends the new count.  A second
connection for a stream ends the first.  A stream's name is 1 to 255 bytes of any kind, compared
byte by byte.

The invariants: a count is sent only after the chunk that it counts was published, and counts only
frames whose append returned.  Each chunk carries its stream's count in ``resume``, so that count
and frames are stored by one write.  A file beside the spool (``streams``) holds the counts at some
position; it is written again before a segment is removed, so that file and log together always
hold every stream's count.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

from wallaroo.durable.versions import check_version
from wallaroo.durable.whole_file import write_whole
from wallaroo.errors import PeerError
from wallaroo.spool import Boundary, SpoolReader, SpoolWriter
from wallaroo.spool.format import corrupt, digest, disk_error

COUNT = struct.Struct(">Q")
_HELLO = struct.Struct(">4sBB")  # magic, version, bytes of the stream's name
_MAGIC = b"wlrs"
PROTOCOL_VERSION = 1
HELLO_BYTES_MAX = _HELLO.size + 255
# of the file: since 2 names are hexadecimal, before they were text
FILE_VERSION = 2


def hello(stream: str | bytes) -> bytes:
    """Return what a sender says first; text is sent as UTF-8.  Raises ValueError for a name of no
    or more than 255 bytes.
    """
    name = stream.encode() if isinstance(stream, str) else stream
    if not 1 <= len(name) <= 255:
        raise ValueError("A stream's name has 1 to 255 bytes.")
    return _HELLO.pack(_MAGIC, PROTOCOL_VERSION, len(name)) + name


def read_hello(content: bytes) -> tuple[bytes, bytes] | None:
    """Return the stream's name and what follows, None while the hello is not whole.  Raises
    PeerError for anything else.
    """
    is_other_version = len(content) > 4 and content[4] != PROTOCOL_VERSION
    if not _MAGIC.startswith(content[:4]) or is_other_version or content[5:6] == b"\0":
        raise PeerError(
            f"it does not begin with the hello of an acknowledged stream; first bytes "
            f"{content[:16].hex(' ')}"
        )
    if len(content) < _HELLO.size or len(content) < _HELLO.size + content[5]:
        return None
    end = _HELLO.size + content[5]
    return content[_HELLO.size : end], content[end:]


def _whole(note: bytes) -> bytes:
    return note


class Streams:
    """A number per stream of one source, exact over any crash: how many frames are stored, or, of a
    connector's stream, the id of the last message.
    """

    def __init__(self, writer: SpoolWriter, stream_in: Callable[[bytes], bytes] = _whole):
        """Read the counts that belong to the writer's position, which must be published.
        ``stream_in`` finds the stream in what follows the count in a chunk's ``resume``.
        """
        self._path = writer.folder / "streams"
        self._writer = writer
        self.counts: dict[bytes, int] = {}
        start = self._load()
        for chunk in SpoolReader(writer.folder).chunks(max(start, writer.first), writer.position):
            if chunk.resume:
                count = COUNT.unpack_from(chunk.resume)[0]
                self.counts[stream_in(chunk.resume[COUNT.size :])] = count

    def resume_after(self, stream: bytes, frames: int) -> bytes:
        """Return the ``resume`` of a chunk with the next frames of a stream."""
        return COUNT.pack(self.counts.get(stream, 0) + frames) + stream

    def add(self, stream: bytes, frames: int) -> None:
        """Count frames of a stream, after their chunk was appended."""
        self.counts[stream] = self.counts.get(stream, 0) + frames

    def remove_consumed(self) -> None:
        """Remove consumed segments, after the counts in them are stored elsewhere.  Call it right
        after a publication.  Raises SpoolFullError if there is no room for the counts; then nothing
        is removed.
        """
        if not self._writer.has_consumed():
            return
        if self.counts:
            self._save(self._writer.position)
        self._writer.remove_consumed()

    def _save(self, position: Boundary) -> None:
        table = {
            "version": FILE_VERSION,
            "byte": position.byte,
            "events": position.events,
            "counts": {stream.hex(): count for stream, count in self.counts.items()},
        }
        content = json.dumps(table).encode()
        stored = digest(content).to_bytes(8, "big") + content
        try:
            write_whole(self._path, stored, is_durable=True, points="streams")
        except OSError as error:
            raise disk_error(self._writer.folder, error) from error

    def _load(self) -> Boundary:
        try:
            stored = self._path.read_bytes()
        except FileNotFoundError:
            return Boundary()
        if digest(stored[8:]).to_bytes(8, "big") != stored[:8]:
            raise corrupt(self._path, 0, "its checksum differs")
        content = json.loads(stored[8:])
        check_version(self._path, content["version"], FILE_VERSION)
        is_text = content["version"] == 1
        self.counts = {
            name.encode() if is_text else bytes.fromhex(name): count
            for name, count in content["counts"].items()
        }
        return Boundary(content["byte"], content["events"])
