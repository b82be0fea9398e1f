"""The ingress's configuration, which the driver passes to it.

Where it runs: driver and ingress.
"""

from __future__ import annotations

from dataclasses import dataclass

from wallaroo.durable.levels import Durability
from wallaroo.network.replica import Replica
from wallaroo.network.tls import TLS
from wallaroo.protocols.framing import Framing
from wallaroo.sources.listening import ConnectorOptions

BACKLOG_BYTES_MAX = 256 * 1024 * 1024  # per source, in the spool and not yet consumed
HANDSHAKE_S = 10.0  # for a sender of an acknowledged stream to name its stream


@dataclass(frozen=True, slots=True)
class IngressSource:
    """One source that listens: its address, framing and spool."""

    name: str
    host: str
    port: int  # 0: any free one
    folder: str
    framing: Framing
    # listen there, too, for senders that want acknowledgements (see ``acks``); 0: any free one
    ack_port: int | None = None
    tls: TLS | None = None
    connector: ConnectorOptions | None = None  # frames are the connector protocol's
    durability: Durability | None = None  # None: the one of the configuration


@dataclass(frozen=True, slots=True)
class IngressConfig:
    """All sources of an application that listen."""

    sources: tuple[IngressSource, ...]
    is_durable: bool = False
    backlog_bytes_max: int = BACKLOG_BYTES_MAX
    checkpoint: str = ""  # the id of the checkpoint that the spools belong to
    handshake_s: float = HANDSHAKE_S
    replica: Replica | None = None  # keeps the spools' copies
