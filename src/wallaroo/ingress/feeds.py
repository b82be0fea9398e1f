"""What feeders feed: generators and files as runs of frames that can be continued.

Where it runs: feeder processes.  The law of a feed: ``resume`` describes exactly what lies behind
the frames that ``next_chunk`` returned last; a feed made with it goes on there.
"""

from __future__ import annotations

import os
import pickle
import struct
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from wallaroo.errors import InternalError, PeerError, UserCodeError
from wallaroo.framing import FrameError, frame_walker
from wallaroo.sources.file import PAYLOAD_BYTES_MAX, FileSourceConfig
from wallaroo.sources.generator import GenSourceConfig
from wallaroo.sources.interface import SourceConfig

CHUNK_BYTES_MAX = 64 * 1024  # of generated values
CHUNK_S_MAX = 0.005
RESUME_SHARE = 0.1  # of a generator's time spent on pickling it, at most
READ_BYTES = 256 * 1024  # of a file, at once
_LENGTH = struct.Struct(">I")
_OFFSET = struct.Struct("<Q")


class Run(NamedTuple):
    """Whole frames and where to continue behind them."""

    frames: bytes
    events: int
    resume: bytes


class Feed(Protocol):
    """Gives runs of frames until there is nothing more."""

    def next_run(self) -> Run | None:
        """Return the next frames, ``None`` at the end.  Raises UserCodeError or PeerError."""


def feed_of(source: SourceConfig, resume: bytes) -> Feed:
    """Make the feed of a source, continuing at ``resume`` (empty: from the start)."""
    if isinstance(source, GenSourceConfig):
        return GeneratorFeed(source, resume)
    if isinstance(source, FileSourceConfig):
        return FileFeed(source, resume)
    raise InternalError(f"no feeder knows a source of kind {source.kind!r}")


class GeneratorFeed:
    """Runs a user's generator; what it was before each run is kept, so that a failure costs no
    event and no attribute.
    """

    def __init__(self, source: GenSourceConfig, resume: bytes):
        self._name = source.name
        self._snapshot = resume or pickle.dumps((source.gen_instance, None, "new"))
        self._instance, self._value, self._state = pickle.loads(self._snapshot)
        self._run_began = time.monotonic()
        self._snapshot_s = 0.0

    def next_run(self) -> Run | None:
        """Return values up to the bounds of a chunk, pickled and framed."""
        parts, failure = self._collect(None)
        # what apply changed before it failed must not stay: run the good ones again
        while failure is not None and parts:
            self._instance, self._value, self._state = pickle.loads(self._snapshot)
            parts, failure = self._collect(len(parts))
        if failure is not None:
            raise failure
        if not parts:
            return None
        began = time.monotonic()
        self._snapshot = self._pickled((self._instance, self._value, self._state))
        self._run_began = time.monotonic()
        self._snapshot_s = self._run_began - began
        return Run(b"".join(parts), len(parts), self._snapshot)

    def _collect(self, count: int | None) -> tuple[list[bytes], UserCodeError | None]:
        parts: list[bytes] = []
        size, until = 0, self._run_began + max(CHUNK_S_MAX, self._snapshot_s / RESUME_SHARE)
        try:
            while self._state != "ended" and len(parts) != count:
                value = self._step()
                if value is None:
                    self._state = "ended"
                    break
                pickled = self._pickled(value)
                self._value, self._state = value, "running"
                parts.append(_LENGTH.pack(len(pickled)) + pickled)
                size += len(pickled)
                if count is None and (size >= CHUNK_BYTES_MAX or time.monotonic() >= until):
                    break
        except UserCodeError as failure:
            return parts, failure
        return parts, None

    def _step(self) -> Any:
        try:
            return (
                self._instance.initial_value()
                if self._state == "new"
                else self._instance.apply(self._value)
            )
        except Exception as problem:  # noqa: BLE001  # the gate to the user's generator
            raise self._failure(problem) from None

    def _pickled(self, value: Any) -> bytes:
        try:
            return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except Exception as problem:  # noqa: BLE001  # pickle calls the user's __reduce__ and __getstate__
            raise self._failure(problem) from None

    def _failure(self, problem: Exception) -> UserCodeError:
        last = traceback.extract_tb(problem.__traceback__)[-1]
        trace = "".join(traceback.format_exception(problem))
        event = "the first" if self._state == "new" else f"behind {repr(self._value)[:200]}"
        return UserCodeError(
            self._name,
            f"{last.filename}:{last.lineno}",
            event,
            f"{type(problem).__name__}: {problem}",
            trace,
        )


class FileFeed:
    """Reads a file from an offset; it keeps nothing but the offset."""

    def __init__(self, source: FileSourceConfig, resume: bytes):
        self._source = source
        self._offset: int = _OFFSET.unpack(resume)[0] if resume else 0
        self._take: Callable[[bytes, bool], tuple[int, list[bytes], int]] = self._lines
        if source.form == "frames":
            self._walk = frame_walker(source.wire_framing)
            self._take = self._frames
        try:
            self._fd = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
            size = os.fstat(self._fd).st_size
            os.pread(self._fd, 1, 0)
        except OSError as problem:
            raise PeerError(
                f"source '{source.name}' cannot read {Path(source.path).absolute()}: "
                f"{problem.strerror}. "
                "Give it a readable regular file."
            ) from None
        if size < self._offset:
            raise PeerError(
                f"source '{source.name}': {source.path} has {size} bytes, and {self._offset} were "
                f"read before. "
                "Put the same file back, or start over with an empty checkpoint directory."
            )

    def next_run(self) -> Run | None:
        """Return the frames of the next part of the file."""
        wanted = READ_BYTES
        while True:
            part = os.pread(self._fd, wanted, self._offset)
            if not part:
                return None
            end, frames, events = self._take(part, len(part) < wanted)
            self._offset += end
            if events:
                return Run(b"".join(frames), events, _OFFSET.pack(self._offset))
            if not end:
                wanted *= 2
                if wanted > 2 * PAYLOAD_BYTES_MAX:
                    where = (
                        f"source '{self._source.name}': {self._source.path}, byte {self._offset}"
                    )
                    raise PeerError(
                        f"{where}: a line or frame is longer than {PAYLOAD_BYTES_MAX} bytes."
                    )

    def _lines(self, part: bytes, is_last: bool) -> tuple[int, list[bytes], int]:
        newline = part.rfind(b"\n")
        if newline < 0 and not is_last:
            return 0, [], 0
        is_open = is_last and newline != len(part) - 1  # the last line has no newline
        end = len(part) if is_open else newline + 1
        lines = part[: end if is_open else newline].split(b"\n")
        if b"\r" in part:
            lines = [line[:-1] if line.endswith(b"\r") else line for line in lines]
        if self._source.skip_empty:
            lines = [line for line in lines if line]
        return end, [_LENGTH.pack(len(line)) + line for line in lines], len(lines)

    def _frames(self, part: bytes, is_last: bool) -> tuple[int, list[bytes], int]:
        try:
            end, frames = self._walk(part, 0, len(part))
        except FrameError as problem:
            if problem.frames:
                return problem.end, [part[: problem.end]], problem.frames
            raise PeerError(
                f"source '{self._source.name}': {self._source.path}, byte {self._offset}: {problem}"
            ) from None
        if not frames and is_last:
            raise PeerError(
                f"source '{self._source.name}': {self._source.path} ends inside a frame: the last "
                f"{len(part)} bytes, "
                f"from byte {self._offset} on, are not whole. First bytes {part[:16].hex(' ')}."
            )
        return end, [part[:end]], frames
