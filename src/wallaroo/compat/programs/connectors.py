"""Sources that can rewind, and the connector that sends several of them.

Where it runs: source programs.
"""

from __future__ import annotations

import hashlib
import struct
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wallaroo.compat.programs import connector_wire_messages as cwm
from wallaroo.compat.programs.client import AtLeastOnceSourceConnector, Stream
from wallaroo.compat.programs.faults import ConnectorError, ProtocolError
from wallaroo.protocols.connector.frames import NO_POINT

__all__ = [
    "AtLeastOnceSourceConnector",
    "BaseIter",
    "BaseSource",
    "ConnectorError",
    "FramedFileReader",
    "MultiSourceConnector",
    "ProtocolError",
    "ThrottledFileReader",
    "cwm",
]

_LENGTH = struct.Struct(">I")


class BaseIter(ABC):
    """An iterator; subclasses have ``__next__``."""

    def __iter__(self) -> Any:
        return self

    def next(self) -> Any:
        """Return the next item."""
        return self.__next__()

    @abstractmethod
    def __next__(self) -> Any:
        raise NotImplementedError


class BaseSource(ABC):
    """A source that can rewind.

    It has a ``name`` and perhaps a ``key``, as bytes.
    """

    name: bytes

    @abstractmethod
    def __str__(self) -> str:
        """Return a description of the source, for people."""

    @abstractmethod
    def reset(self, pos: int = 0) -> None:
        """Continue after the message with point of reference ``pos``; 2**64 - 1: from the start."""

    @abstractmethod
    def point_of_ref(self) -> int:
        """Return the point of reference of the message that was returned last."""

    @abstractmethod
    def __next__(self) -> tuple[bytes | None, int]:
        """Return the next message and its ascending point of reference.

        ``(None, any)`` if there is none at the moment.  Raises StopIteration at the end.
        """

    @abstractmethod
    def wallaroo_acked(self, point_of_ref: int) -> None:
        """Handle an acknowledgement: messages up to this point are safe."""

    def close(self) -> None:  # noqa: B027  # there may be nothing to close
        """Release the source's resources."""


class _FileReader(BaseIter, BaseSource):
    """A file whose points of reference are offsets of message ends."""

    def __init__(self, filename: str):
        self.file = Path(filename).open("rb")  # noqa: SIM115  # closed by `close`
        self.name = filename.encode()
        self.key = self.name
        self.last_acked: int | None = None

    def __str__(self) -> str:
        return (
            f"{type(self).__name__}(filename: {self.name!r}, closed: {self.file.closed}, "
            f"point_of_ref: {self.point_of_ref()})"
        )

    def point_of_ref(self) -> int:
        return -1 if self.file.closed else self.file.tell()

    def reset(self, pos: int = 0) -> None:
        self.file.seek(0 if pos == NO_POINT else pos)

    def wallaroo_acked(self, point_of_ref: int) -> None:
        self.last_acked = point_of_ref

    def close(self) -> None:
        self.file.close()

    def _read_framed(self) -> bytes:
        """Read a message after its u32 length; none if the file ends within it."""
        header = self.file.read(_LENGTH.size)
        if len(header) < _LENGTH.size:
            raise StopIteration
        (length,) = _LENGTH.unpack(header)
        content = self.file.read(length)
        if len(content) < length:
            raise StopIteration
        return content


class FramedFileReader(_FileReader):
    """A reader of a file of length-prefixed messages.

    The length is a big-endian u32.
    """

    def __next__(self) -> tuple[bytes | None, int]:
        content = self._read_framed()
        return content, self.file.tell()


class ThrottledFileReader(_FileReader):
    """A reader of messages, or lines with newlines, at ``limit_rate`` bytes/s."""

    def __init__(
        self,
        filename: str,
        limit_rate: float = 999999999,
        is_framed: bool = False,
        is_text_lines: bool = False,
    ):
        if is_framed == is_text_lines:
            raise ConnectorError("Exactly one of is_framed and is_text_lines must be true.")
        super().__init__(filename)
        self.limit_rate = limit_rate
        self._is_framed = is_framed
        self._next_at = 0.0

    def __next__(self) -> tuple[bytes | None, int]:
        now = time.monotonic()
        if now < self._next_at:
            return None, self.file.tell()
        content = self._read_framed() if self._is_framed else self.file.readline()
        if not content:
            raise StopIteration
        self._next_at = max(now - 1.0, self._next_at) + len(content) / self.limit_rate
        return content, self.file.tell()


@dataclass(slots=True, eq=False)
class _Feed:
    """A source that is being sent."""

    source: Any
    is_open: bool = False
    is_ending: bool = False
    sent: int | None = None  # point of the last message sent since it was opened


class MultiSourceConnector(AtLeastOnceSourceConnector, BaseIter):
    """A connector that sends sources in turn, each as a stream."""

    def __init__(
        self,
        version: str,
        cookie: str,
        program_name: str,
        instance_name: str,
        host: str,
        port: int | str,
        delay: float = 0,
    ):
        super().__init__(version, cookie, program_name, instance_name, host, port, delay)
        self._feeds: dict[int, _Feed] = {}
        self._turn = 0
        self._was_added = False

    @staticmethod
    def get_id(bs: bytes | str) -> int:
        """Return a source's stream id: the first 64 bits of its name's SHA-256."""
        raw = bs.encode() if isinstance(bs, str) else bs
        return int(hashlib.sha256(raw).hexdigest()[:16], 16)

    def add_source(self, source: Any) -> None:
        """Begin to send a source, before or after ``connect``."""
        stream = self.get_id(source.name)
        if stream in self._feeds:
            raise ConnectorError(
                f"Cannot add Source {source}. A source exists with that ID: "
                f"{self._feeds[stream].source}"
            )
        self._feeds[stream] = _Feed(source)
        self._was_added = True
        self.notify(stream, source.name, max(0, source.point_of_ref()))

    def remove_source(self, source: Any) -> None:
        """End a source; it is closed when its messages are acknowledged."""
        stream = self.get_id(source.name)
        feed = self._feeds.get(stream)
        if feed is not None and not feed.is_ending:
            feed.is_ending = True
            if feed.is_open:
                self.end_of_stream(stream)

    def __next__(self) -> cwm.Message | None:
        feeds = list(self._feeds.items())
        if not feeds:
            if self._was_added:
                raise StopIteration
            return None
        for step in range(1, len(feeds) + 1):
            stream, feed = feeds[(self._turn + step) % len(feeds)]
            if not feed.is_open or feed.is_ending:
                continue
            try:
                value, point = next(feed.source)
            except StopIteration:
                self.remove_source(feed.source)
                continue
            if value is None:
                continue
            self._turn += step
            feed.sent = point
            return cwm.Message(stream, point, 0, getattr(feed.source, "key", None), value)
        return None

    def stream_opened(self, stream: Stream) -> None:
        feed = self._feeds.get(stream.id)
        if feed is None:
            raise ConnectorError(
                f"Stream {stream} was opened for unknown source. Please use the add_source "
                f"interface."
            )
        if stream.point_of_ref != feed.source.point_of_ref():
            feed.source.reset(stream.point_of_ref)
        feed.is_open = True
        feed.is_ending = False
        feed.sent = None

    def stream_closed(self, stream: Stream) -> None:
        feed = self._feeds.get(stream.id)
        if feed is not None:
            feed.is_open = False

    def stream_acked(self, stream: Stream) -> None:
        feed = self._feeds.get(stream.id)
        if feed is None:
            return
        point = stream.point_of_ref
        if point != NO_POINT:
            feed.source.wallaroo_acked(point)
        is_complete = feed.sent is None or (point != NO_POINT and point >= feed.sent)
        if feed.is_ending and is_complete:
            del self._feeds[stream.id]
            self._streams.pop(stream.id, None)
            feed.source.close()
            self.stream_removed(stream)
