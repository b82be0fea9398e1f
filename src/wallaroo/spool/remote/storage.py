"""The driver's checkpoint files, for tasks without access to its folder.

Where it runs: worker.  A request whose connection breaks is repeated; only a server that stays
unavailable is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from wallaroo.durable.appended_file import AppendedFile
from wallaroo.errors import CheckpointError, InternalError
from wallaroo.spool.remote.link import RETRY_S_MAX, Endpoint, Link, Retries, keep, taken

PART_BYTES = 1 << 20  # sent at once
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class RemoteStorage:
    """The files that tasks read and add: a ``Storage``.  It is picklable."""

    server: Endpoint
    retry_s: float = RETRY_S_MAX

    def publish(self, name: str, content: bytes, writer: str = "") -> None:
        """Publish a file on the driver's host."""
        self._publish(name, len(content), lambda: (content,))

    def publish_file(self, name: str, path: Path) -> None:
        """Publish a copy of a local file on the driver's host."""
        self._publish(name, path.stat().st_size, lambda: _parts(path))

    def _publish(
        self, name: str, size: int, parts: Callable[[], Iterable[bytes | memoryview]]
    ) -> None:
        self._asked(lambda link: link.publish(name, size, parts()), f"{name} cannot be written")

    def read(self, name: str) -> bytes:
        """Return the content.  Raises CheckpointError if there is no such name."""
        try:
            return self._asked(lambda link: link.read(name), f"{name} cannot be read")
        except FileNotFoundError as error:
            host, port = self.server.address
            raise CheckpointError(
                f"the checkpoint on the driver's host ({host}:{port}) lacks {name}, which a commit "
                f"refers to. End the run and look at it there: `wallaroo state verify`."
            ) from error

    def open(self, name: str) -> bytes:
        """Return the content; a part of it would cost another request."""
        return self.read(name)

    def names(self, folder: str) -> list[str]:
        """Return a folder's published names (last components), sorted."""
        return self._asked(lambda link: link.names(folder), f"{folder} cannot be listed")

    def _asked(self, ask: Callable[[Link], Answer], what: str) -> Answer:
        """Return the answer to a request, over a new connection if one breaks."""
        retries = Retries(self.server.address, self.retry_s, what)
        while True:
            link = taken(self.server)
            is_whole = False
            began = time.monotonic()
            try:
                if link is None:
                    link = Link(self.server, retries.begin())
                answer = ask(link)
                is_whole = True
            except FileNotFoundError:  # a valid answer, too
                is_whole = True
                raise
            except OSError as error:
                if link is not None and time.monotonic() - began > self.retry_s:
                    retries.renew()  # a large file was in transit
                retries.spend(error)
            else:
                return answer
            finally:
                if is_whole and link is not None:
                    keep(self.server, link)
                elif link is not None:
                    link.close()

    def delete(self, name: str) -> None:
        """Refuse: only the driver deletes."""
        raise _of_driver(name)

    def open_log(self, name: str) -> AppendedFile:
        """Refuse: only the driver writes the log."""
        raise _of_driver(name)

    def append(self, log: AppendedFile, record: bytes) -> None:
        """Refuse: only the driver writes the log."""
        raise _of_driver("the log")

    def cut(self, name: str, size: int) -> None:
        """Refuse: only the driver writes the log."""
        raise _of_driver(name)


def _of_driver(name: str) -> InternalError:
    return InternalError(f"a task of another host tried to change {name}")


def _parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(PART_BYTES):
            yield part
