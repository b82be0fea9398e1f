"""Writer's side of a spool's copy on a second host.

Where it runs: ingress and feeders.

The invariants:

* ``wait`` returns when the log, up to the end that was sent, is on the copy's disk.  It sends
  while the writer syncs its own file, so the two syncs take the time of the longer one.
* The copy's log is whole at each moment: data is appended to the existing data, and a segment that
  differs is replaced as a whole.  The head is sent with each new segment and before deletions; a
  start on the copy finds the rest of the log (`spool.recovery`).
* Streams' counts and the head are sent before segments are deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from wallaroo.errors import CheckpointError, TakenOverError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.network.replica import Replica
from wallaroo.network.replica_link import Outage, ReplicaLink, Sent
from wallaroo.spool.format import CHUNKS, Boundary, ReplicaSilentError, Segment

HEAD = "head"
STREAMS = "streams"
COPIED = frozenset([HEAD, STREAMS, "tail"])
INDEX = ".index"
_ERRORS = (OSError, EOFError, TakenOverError, CheckpointError)


def is_copied(name: str) -> bool:
    """Return whether a file of a spool's folder is a part of its copy."""
    return name in COPIED or name.endswith((CHUNKS, INDEX))


class SpoolCopy:
    """The copy of the spool in ``folder``, kept by a replica."""

    def __init__(self, folder: Path, replica: Replica):
        self._folder = folder
        self._root = folder.parents[1]
        self._prefix = str(folder.relative_to(self._root))
        self._replica = replica
        self._link: ReplicaLink | None = None
        self._outage = Outage(replica.place)
        self._is_pending = False  # whether an answer is pending
        self._sizes: dict[str, int] = {}  # segments, as they were sent
        self._end: Boundary | None = None  # the copy has the log up to here

    def holds(self, end: Boundary) -> bool:
        """Return whether the copy has the log up to ``end``."""
        return self._end == end

    def send(self, segments: Sequence[Segment], end: Boundary) -> None:
        """Send what was appended up to ``end``, if there is a connection."""
        if self._is_pending:  # the writer's own sync failed
            self._drop()
        if self._link is None:
            return
        try:
            self._link.send_files(tuple(self._appended(segments, end)))
            self._is_pending = True
        except _ERRORS:
            self._drop()
        fault_point("spool.copy_sent")

    def wait(self, end: Boundary) -> None:
        """Return once everything sent is on the copy's disk.

        Raises ReplicaSilentError if there is no answer; the call may be repeated.
        """
        was_connected = self._link is not None
        try:
            if self._link is None:
                self._link = self._connected()
            elif self._is_pending:
                self._link.answer()
            self._is_pending = False
        except _ERRORS as error:
            self._drop()
            if was_connected and not isinstance(error, TimeoutError):
                self.wait(end)  # once more: the replica may have been restarted
                return
            self._outage.failed(error)
            raise ReplicaSilentError(f"{self._outage.words}.") from error
        self._outage.ended()
        self._end = end
        fault_point("spool.copied")

    def remove(self, names: Iterable[str]) -> None:
        """Delete consumed segments; if that fails, a later connection does it."""
        if self._link is None or self._is_pending:
            return
        try:
            self._link.write(self._texts())
            self._link.ask("delete", names=[self._name(each) for each in names])
        except _ERRORS:
            self._drop()

    def close(self) -> None:
        self._drop()

    def _connected(self) -> ReplicaLink:
        """Return a connection to a copy that matches the folder."""
        link = ReplicaLink(self._replica, "part")
        try:
            stated = link.stated([self._prefix])
            names = [name for name in sorted(os.listdir(self._folder)) if is_copied(name)]
            self._sizes = {
                name: (self._folder / name).stat().st_size
                for name in names
                if name.endswith(CHUNKS)
            }
            there = link.bring(self._root, map(self._name, names), stated)
            link.ask("delete", names=sorted(stated.keys() - there))
        except BaseException:
            link.close()
            raise
        return link

    def _appended(self, segments: Sequence[Segment], end: Boundary) -> Iterator[Sent]:
        limit = end
        changed: list[Sent] = []
        for segment in reversed(segments):
            name = segment.path.name
            before = self._sizes.get(name)
            size = segment.offset(limit.byte)
            if before is None or size > before:
                content = _read(segment.path, before or 0, size)
                changed.append(Sent(self._name(name), content, before or 0))
                self._sizes[name] = size
            if before is not None:
                break
            limit = segment.start
        yield from reversed(changed)
        if len(changed) > 1:
            yield from self._texts()

    def _texts(self) -> Iterator[Sent]:
        for name in (STREAMS, HEAD):
            with suppress(FileNotFoundError):
                yield Sent(self._name(name), (self._folder / name).read_bytes())

    def _name(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    def _drop(self) -> None:
        self._is_pending = False
        if self._link is not None:
            self._link.close()
            self._link = None


def _read(path: Path, start: int, end: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(end - start)
