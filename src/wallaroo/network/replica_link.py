"""The link to a replica, which keeps a checkpoint's copy.

Where it runs: driver, ingress and feeders.

The protocol, over a proved connection (`network.proved_connections`): a request is the lengths of
its head and its payload, the head (JSON: ``op`` and its fields), and the payload; the answer has
the same form.  The first request is the hello, which names the checkpoint, the run's epoch and its
owner.  An answer with ``error`` is one of `OVER`, `REFUSED` and `LATER`, with a message for people.

The invariant: each request may be repeated on another connection, whether or not it was executed.
A file is sent whole, under a temporary name, or from an offset that the copy has.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from wallaroo.errors import CheckpointError, TakenOverError
from wallaroo.network.proved_connections import DriverEndpoint, connect, exactly
from wallaroo.network.replica import REPLICA_KEY, Replica

CONNECT_S = 2.0
ANSWER_S = 8.0  # for a request; twice that is less than `HUNG_S`
LIST_S = 60.0  # for the list of its files, of which it reads the ends
LATE_S = 2.0  # without the copy, until that is reported
RETRY_S = 0.25
PART_BYTES = 8 << 20  # limit for the files in one request
OVER = "over"  # another run owns the copy
REFUSED = "refused"  # the copy cannot be of this checkpoint
LATER = "later"  # not yet, or not while its disk is in this state
LENGTHS = struct.Struct(">IQ")
# in place of an offset
WHOLE = -1
COMPLETE = -2  # all of it was sent under its name with `PART`
PART = ".part"
NO_SIZES: Mapping[str, int] = MappingProxyType({})

Fields = dict[str, Any]


class Sent(NamedTuple):
    """A file, or its end, for the copy."""

    name: str
    content: bytes
    offset: int = WHOLE


class Stated(NamedTuple):
    """The size and tail checksum of a file of the copy."""

    size: int
    crc: int


class UnreadyError(ConnectionError):
    """An answer of the replica that it is not ready."""


@dataclass(slots=True)
class Outage:
    """The time since the last confirmation of a copy, in words."""

    place: str
    what: str = "acknowledgements"
    since: float | None = None  # monotonic
    error: str = ""
    is_there: bool = False
    is_late: bool = False

    def failed(self, error: BaseException) -> bool:
        """Note an unconfirmed attempt; return whether to report it now."""
        now = time.monotonic()
        self.since = now if self.since is None else self.since
        words = getattr(error, "strerror", "") or str(error) or type(error).__name__
        self.error = words.removesuffix(".")
        self.is_there = isinstance(error, UnreadyError)
        was_late = self.is_late
        self.is_late = now - self.since >= LATE_S
        return self.is_late and not was_late

    def ended(self) -> float:
        """Note an answer; return the seconds without one, 0 if that was not reported."""
        since = self.since
        was_late = self.is_late
        self.since = None
        self.is_late = False
        return time.monotonic() - since if since is not None and was_late else 0.0

    @property
    def seconds(self) -> float:
        """Return for how many seconds nothing was confirmed; 0 if everything is."""
        return 0.0 if self.since is None else time.monotonic() - self.since

    @property
    def cause(self) -> str:
        """Return the awaited event, in words."""
        return f"the replica at {self.place}, which confirms nothing ({self.error})"

    @property
    def words(self) -> str:
        """Return the outage and the remedy, in words."""
        way_out = (
            "It continues by itself"
            if self.is_there
            else "Start `wallaroo replica` there, on the folder that it had; if that disk is lost, "
            "on an empty one with the same replica.key"
        )
        return f"{self.what} wait for {self.cause}. {way_out}"


class ReplicaLink:
    """A connection to a replica, both sides proved, after the hello."""

    def __init__(self, replica: Replica, role: str, **fields: Any):
        """Connect.  Raises OSError, EOFError, TakenOverError or CheckpointError."""
        self._place = replica.place
        secret = bytes.fromhex(replica.secret)
        endpoint = DriverEndpoint((replica.host, replica.port), secret, replica.certificate)
        try:
            self._socket = connect(endpoint, CONNECT_S)
        except EOFError as error:
            raise ConnectionError(
                f"it closes connections without its key: is --replica-key a copy of its "
                f"{REPLICA_KEY}?"
            ) from error
        self._socket.settimeout(ANSWER_S)
        try:
            self.hello = self.ask(
                "hello",
                role=role,
                checkpoint=replica.checkpoint,
                epoch=replica.epoch,
                owner=replica.owner,
                **fields,
            )
        except BaseException:
            self.close()
            raise

    def ask(self, op: str, payload: bytes = b"", **fields: Any) -> Fields:
        """Send a request; return its answer."""
        self.send(op, payload, **fields)
        return self.answer()

    def send(self, op: str, payload: bytes = b"", **fields: Any) -> None:
        """Send a request, whose answer is fetched later."""
        write_message(self._socket, {"op": op, **fields}, payload)

    def answer(self) -> Fields:
        """Return the answer to the oldest request.  Raises as the constructor does."""
        answer, _ = read_message(self._socket)
        error = answer.get("error")
        words = str(answer.get("words", ""))
        if error == OVER:
            raise TakenOverError(words)
        if error == REFUSED:
            raise CheckpointError(f"the replica at {self._place}: {words}")
        if error:
            raise UnreadyError(words)
        return answer

    def write(self, files: Iterable[Sent]) -> None:
        """Put files on the copy's disk, in this order; files of one request share its syncs."""
        for batch in _batches(files):
            self.send_files(batch)
            self.answer()

    def send_files(self, files: Iterable[Sent]) -> None:
        """Send files, whose answer is fetched later."""
        files = tuple(files)
        heads = [
            (each.name, len(each.content), zlib.crc32(each.content), each.offset) for each in files
        ]
        self.send("write", b"".join(each.content for each in files), files=heads)

    def stated(self, folders: Iterable[str]) -> dict[str, Stated]:
        """Return the files of the copy below folders, or of these names."""
        self._socket.settimeout(LIST_S)
        answer = self.ask("list", folders=list(folders))
        self._socket.settimeout(ANSWER_S)
        return {name: Stated(size, crc) for name, size, crc in answer["files"]}

    def bring(
        self,
        root: Path,
        names: Iterable[str],
        stated: Mapping[str, Stated],
        sizes: Mapping[str, int] = NO_SIZES,
    ) -> list[str]:
        """Send the differences of files below ``root``; return the names of existing ones.

        Of a file in ``sizes`` so many bytes count; the copy has no more of it.
        """
        there: list[str] = []

        def differing() -> Iterator[Sent]:
            for name in names:
                with suppress(FileNotFoundError):  # removed meanwhile
                    path = root / name
                    size = sizes[name] if name in sizes else path.stat().st_size
                    yield from self._differing(path, size, name, stated.get(name))
                    there.append(name)

        self.write(differing())
        return there

    def _differing(self, path: Path, size: int, name: str, stated: Stated | None) -> Iterator[Sent]:
        offset = 0
        if stated is not None and stated.size <= size and crc_of(path, stated.size) == stated.crc:
            offset = stated.size
            if offset == size:
                return
        if size - offset <= PART_BYTES:
            with open(path, "rb") as file:
                file.seek(offset)
                content = file.read(size - offset)
            yield Sent(name, content, offset if offset else WHOLE)
            return
        unfinished = name if offset else f"{name}{PART}"
        with open(path, "rb") as file:
            file.seek(offset)
            while content := file.read(min(PART_BYTES, size - offset)):
                yield Sent(unfinished, content, offset)
                offset += len(content)
        if unfinished != name:
            yield Sent(name, b"", COMPLETE)

    def close(self) -> None:
        self._socket.close()


def _batches(files: Iterable[Sent]) -> Iterator[list[Sent]]:
    batch: list[Sent] = []
    size = 0
    for each in files:
        if batch and size + len(each.content) > PART_BYTES:
            yield batch
            batch = []
            size = 0
        batch.append(each)
        size += len(each.content)
    if batch:
        yield batch


def crc_of(path: Path, size: int) -> int:
    """Return the CRC-32 of the last `PART_BYTES` of a file's first ``size`` bytes.

    Names are never reused, and files only differ at their ends, to which one of two processes has
    appended.  So the cost of a comparison does not grow with the files.
    """
    with open(path, "rb") as file:
        file.seek(max(0, size - PART_BYTES))
        return zlib.crc32(file.read(min(size, PART_BYTES)))


def write_message(connection: Any, head: Fields, payload: bytes = b"") -> None:
    """Send a request or an answer."""
    encoded = msgspec.json.encode(head)
    connection.sendall(LENGTHS.pack(len(encoded), len(payload)) + encoded + payload)


def read_message(connection: Any) -> tuple[Fields, bytes]:
    """Return the next request or answer.  Raises EOFError or OSError."""
    head_bytes, payload_bytes = LENGTHS.unpack(exactly(connection, LENGTHS.size))
    if head_bytes > PART_BYTES * 8 or payload_bytes > PART_BYTES * 64:
        raise ConnectionError("it sends messages that no replica and no run sends")
    head = msgspec.json.decode(exactly(connection, head_bytes))
    return head, exactly(connection, payload_bytes)
