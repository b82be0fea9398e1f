"""Acknowledged streams: senders that resume from the count of stored frames.

Where it runs: ingress; ``hello`` and ``COUNT`` also in senders.

A sender learns how many of its frames are stored, and continues there after any crash.

The protocol, on a port of its own: the sender connects and sends ``hello(stream)``.  The ingress
answers with a u64 (big-endian): the number of this stream's frames that are published in the spool.
The sender continues from there; after each publication the ingress sends the new count.  A second
connection for a stream ends the first.  A stream's name is 1 to 255 bytes of any kind, compared
byte by byte.  A sender may give a secret with the name (version 2 of the hello).  The first stored
frame that was sent with a secret binds the stream to it: only hellos with the same secret continue
it; all others are closed, those of version 2 after the answer ``REFUSED``.

The invariants: a count is sent only after the chunk that it counts was published, and counts only
frames whose append returned.  Each chunk carries its stream's count in ``resume``, so that count
and frames are stored by one write.  A file next to the spool (``streams``) holds the counts at some
position; it is written again before a segment is removed, so that file and log together always hold
every stream's count.
"""

from __future__ import annotations

import hmac
import json
import struct
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from wallaroo.durable.slots import check_version
from wallaroo.durable.whole_file import write_whole
from wallaroo.errors import PeerError
from wallaroo.spool import Boundary, SpoolReader
from wallaroo.spool.format import corrupt, digest, disk_error
from wallaroo.spool.writer import SpoolWriter

COUNT = struct.Struct(">Q")
REFUSED = (1 << 64) - 1  # instead of a count: the stream is bound to another secret
_HELLO = struct.Struct(">4sBB")  # magic, version, bytes of the stream's name
_MAGIC = b"wlrs"
PLAIN_VERSION = 1
SECRET_VERSION = 2  # after the name: a byte with the secret's length, and the secret
HELLO_BYTES_MAX = _HELLO.size + 255 + 1 + 255
# Since version 2 names are hexadecimal, before they were text; since 3 the file holds hashes of
# secrets.
FILE_VERSION = 3
_DIGEST_BYTES = 32  # SHA-256
_NOTE_BYTES = 1 + 255 + _DIGEST_BYTES


class Hello(NamedTuple):
    """A sender's first message, and the bytes after it."""

    stream: bytes
    secret: bytes  # empty: none
    rest: bytes


def hello(stream: str | bytes, secret: bytes = b"") -> bytes:
    """Return a sender's first message; text is sent as UTF-8.

    Raises ValueError for a name of no or more than 255 bytes, and for a secret of more.
    """
    name = stream.encode() if isinstance(stream, str) else stream
    if not 1 <= len(name) <= 255:
        raise ValueError("A stream's name has 1 to 255 bytes.")
    if len(secret) > 255:
        raise ValueError("A stream's secret has at most 255 bytes.")
    if not secret:
        return _HELLO.pack(_MAGIC, PLAIN_VERSION, len(name)) + name
    return _HELLO.pack(_MAGIC, SECRET_VERSION, len(name)) + name + bytes([len(secret)]) + secret


def read_hello(content: bytes) -> Hello | None:
    """Return a sender's hello, None while it is incomplete; raise PeerError for anything else."""
    is_other_version = len(content) > 4 and content[4] not in (PLAIN_VERSION, SECRET_VERSION)
    if not _MAGIC.startswith(content[:4]) or is_other_version or content[5:6] == b"\0":
        raise PeerError(
            f"it does not begin with the hello of an acknowledged stream; first bytes "
            f"{content[:16].hex(' ')}"
        )
    if len(content) < _HELLO.size or len(content) < _HELLO.size + content[5]:
        return None
    end = _HELLO.size + content[5]
    name = content[_HELLO.size : end]
    if content[4] == PLAIN_VERSION:
        return Hello(name, b"", content[end:])
    if len(content) <= end or len(content) < end + 1 + content[end]:
        return None
    after = end + 1 + content[end]
    return Hello(name, content[end + 1 : after], content[after:])


def _note(stream: bytes, digest_: bytes | None) -> bytes:
    """Return a stream's note in a chunk: its name, or, longer than any name, name and hash."""
    if digest_ is None:
        return stream
    return (bytes([len(stream)]) + stream + digest_).ljust(_NOTE_BYTES, b"\0")


def _stream_in(note: bytes) -> bytes:
    return note[1 : 1 + note[0]] if len(note) == _NOTE_BYTES else note


def _digest_in(note: bytes) -> bytes | None:
    if len(note) != _NOTE_BYTES:
        return None
    return note[1 + note[0] : 1 + note[0] + _DIGEST_BYTES]


class StreamNumbers:
    """A number per stream of one source, exact over any crash.

    It is the number of stored frames, or, for a connector's stream, the id of the last message.
    """

    def __init__(self, writer: SpoolWriter, stream_in: Callable[[bytes], bytes] = _stream_in):
        """Read the counts that belong to the writer's position, which must be published.

        ``stream_in`` finds the stream in the part after the count in a chunk's ``resume``.
        """
        self._path = writer.folder / "streams"
        self._writer = writer
        self.counts: dict[bytes, int] = {}
        self._digests: dict[bytes, bytes] = {}  # by stream: the secret that it began with, hashed
        self._offered: dict[bytes, bytes] = {}  # the same, until the first frame is stored
        has_secrets = stream_in is _stream_in
        start = self._load()
        for chunk in SpoolReader(writer.folder).chunks(max(start, writer.first), writer.position):
            if chunk.resume:
                count = COUNT.unpack_from(chunk.resume)[0]
                note = chunk.resume[COUNT.size :]
                stream = stream_in(note)
                self.counts[stream] = count
                stored = _digest_in(note) if has_secrets else None
                if stored is not None:
                    self._digests[stream] = stored

    def admit(self, stream: bytes, secret: bytes) -> bool:
        """Return whether a sender with this secret may continue a stream.

        The frames stored next bind the stream to it, if none is bound to it yet.
        """
        offered = sha256(secret).digest()
        stored = self._digests.get(stream)
        if stored is not None:
            return hmac.compare_digest(stored, offered)
        self._offered.pop(stream, None)
        if secret:
            self._offered[stream] = offered
        return True

    def resume_after(self, stream: bytes, frames: int) -> bytes:
        """Return the ``resume`` of a chunk with the next frames of a stream."""
        bound = self._digests.get(stream) or self._offered.get(stream)
        return COUNT.pack(self.counts.get(stream, 0) + frames) + _note(stream, bound)

    def add(self, stream: bytes, frames: int) -> None:
        """Count frames of a stream, after their chunk was appended."""
        self.counts[stream] = self.counts.get(stream, 0) + frames
        if stream in self._offered:
            self._digests[stream] = self._offered.pop(stream)

    def remove_consumed(self) -> None:
        """Remove consumed segments, after the counts in them are stored elsewhere.

        Call it right after a publication.  Raises SpoolFullError if there is no room for the
        counts; then nothing is removed.
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
            "secrets": {stream.hex(): stored.hex() for stream, stored in self._digests.items()},
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
        self._digests = {
            bytes.fromhex(name): bytes.fromhex(stored)
            for name, stored in content.get("secrets", {}).items()
        }
        return Boundary(content["byte"], content["events"])
