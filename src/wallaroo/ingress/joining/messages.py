"""Messages between a driver and an ingress host.

Where it runs: driver and ingress hosts.

The protocol, over a proved connection (`network.proved_connections`); a message is as in
`network.replica`, a head in JSON and a payload:

1. The host: ``join`` with its name, its folder's id, and whether it is leaving.  Or ``lost`` with
   the name of a host to be abandoned.
2. The driver: ``welcome`` with `Terms` and the committed positions of the host's spools.  Or
   ``refused``, ``later`` (a retry may succeed soon) with words; ``left``: no commit includes it any
   more.
3. The host checks its spools, and listens: ``ready`` with the place of its range server.  Or
   ``refused`` with words.
4. From then on, the host: ``head`` for each publication of a source, with boundaries; the driver:
   ``committed`` after each commit.  Either at least once a second: one that is silent for
   ``SILENT_S`` is gone.

The invariant: the host's spool is on its disk before the driver learns of it, and the driver's
commit is published before the host learns of it.  So either may die at any moment: the other's
knowledge is correct.
"""

from __future__ import annotations

import hmac
import ssl
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from wallaroo.ingress.config import IngressSource
from wallaroo.network.replica_link import Fields
from wallaroo.sources.joined.hosts import Committed
from wallaroo.spool.connections import OpenConnections
from wallaroo.spool.format import TAIL, Boundary, SpoolHead, pack_head, unpack_head

JOIN = "join"
LOST = "lost"
WELCOME = "welcome"
REFUSED = "refused"
LATER = "later"
LEFT = "left"
READY = "ready"
HEAD = "head"
COMMITTED = "committed"
SILENT_S = 5.0
BEAT_S = 1.0
START_S = 120.0  # for a host to check its spools and to listen
KEY = "ingress.key"  # in the checkpoint's folder
WRITER = "`wallaroo run --ingress-listen`"  # writes that file


@dataclass(frozen=True, slots=True)
class Terms:
    """The sources that an ingress host is to receive, with their options."""

    checkpoint: str
    sources: tuple[IngressSource, ...]
    backlog_bytes_max: int

    def to_json(self) -> Fields:
        return asdict(self)

    @staticmethod
    def from_json(stated: Fields) -> Terms:
        return msgspec.convert(stated, Terms)


def secret_of_ranges(secret: bytes) -> bytes:
    """Return the secret of the range servers of a run's ingress hosts, which is never sent."""
    return hmac.digest(secret, b"ranges", "sha256")


def committed_json(committed: dict[str, Committed]) -> Fields:
    """Return the committed positions by source, as sent."""
    return {
        source: [each.position.byte, each.position.events, each.released.byte, each.released.events]
        for source, each in committed.items()
    }


def committed_of(stated: Fields) -> dict[str, Committed]:
    return {
        source: Committed(Boundary(*numbers[:2]), Boundary(*numbers[2:]))
        for source, numbers in stated.items()
    }


def head_message(
    source: str, head: SpoolHead, found: OpenConnections | None, boundaries: list[Boundary]
) -> tuple[Fields, bytes]:
    """Return a head with boundaries up to it, and the open connections if they have changed."""
    packed = pack_head(head)
    stated: Fields = {"op": HEAD, "source": source, "bytes": len(packed)}
    if found is not None:
        stated["open"] = [found.events, found.following, sorted(found.open)]
    return stated, packed + b"".join(TAIL.pack(each.byte, each.events) for each in boundaries)


def head_of(
    stated: Fields, payload: bytes
) -> tuple[SpoolHead, OpenConnections | None, list[Boundary]]:
    end = stated["bytes"]
    found = stated.get("open")
    return (
        unpack_head(payload[:end]),
        None if found is None else OpenConnections(found[0], found[1], frozenset(found[2])),
        [Boundary(*numbers) for numbers in TAIL.iter_unpack(payload[end:])],
    )


def has_more(connection: Any) -> bool:
    """Return whether TLS holds decrypted bytes that a selector cannot see."""
    return isinstance(connection, ssl.SSLSocket) and connection.pending() > 0
