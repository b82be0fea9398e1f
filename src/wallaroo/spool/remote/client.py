"""Reader of a spool over the network, from another host.

Where it runs: worker.  A connection that breaks is replaced, and reading continues after the last
chunk that was yielded; only a server that stays unavailable is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from wallaroo.errors import CheckpointError
from wallaroo.network.tls_sockets import Address
from wallaroo.spool.format import Boundary, Chunk, folder_of
from wallaroo.spool.reader import parse_chunks
from wallaroo.spool.remote.link import (
    RECEIVE_S_MAX,
    RETRY_S_MAX,
    Endpoint,
    Link,
    Retries,
    keep,
    taken,
)

WINDOW_BYTES = 512 * 1024  # received before chunks are yielded


@dataclass(frozen=True, slots=True)
class RemoteSpool:
    """One source's spool on the driver's host.

    Picklable, cheap, holds no connection itself.
    """

    address: Address
    secret: bytes = field(repr=False)
    source: str
    certificate: str = field(default="", repr=False)  # the server's, PEM; empty: without TLS
    retry_s: float = RETRY_S_MAX
    window_bytes: int = WINDOW_BYTES
    receive_s: float = RECEIVE_S_MAX  # for the next bytes

    def chunks(self, start: Boundary, end: Boundary) -> Iterator[Chunk]:
        """Yield the chunks of a range in order, checked.

        Raises CheckpointError if a local reader would, and PeerError if the server stays
        unavailable for ``retry_s`` or is another run's.
        """
        low = start.byte
        high = end.byte
        server = self._server
        retries = Retries(self.address, self.retry_s, "spool ranges cannot be read")
        folder = folder_of(Path(), self.source).name
        while low < high:
            link = taken(server)
            is_whole = False
            try:
                if link is None:
                    link = Link(server, retries.begin(), self.receive_s)
                link.ask(folder, low, high)
                yield from parse_chunks(link.window, low, high, self._damaged, self.window_bytes)
                low = high
                is_whole = True
            except OSError as error:
                if link is not None and link.byte > low:
                    low = link.byte  # everything below has been yielded
                    retries.renew()
                retries.spend(error)
            finally:  # an abandoned range, too: its bytes are still on their way
                if is_whole and link is not None:
                    keep(server, link)
                elif link is not None:
                    link.close()

    @property
    def _server(self) -> Endpoint:
        return Endpoint(self.address, self.secret, self.certificate)

    def _damaged(self, byte: int, why: str) -> CheckpointError:
        host, port = self.address
        return CheckpointError(
            f"the spool of source '{self.source}', read from {host}:{port}, is corrupt at byte "
            f"{byte} of the log: {why}. The driver's disk or the network changed it. Run again; if "
            "it comes back, restore the spool's files from a copy, or start over with an empty "
            "checkpoint directory."
        )
