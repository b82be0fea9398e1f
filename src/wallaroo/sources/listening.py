"""The listening options of a source, for the process that reads ports.

Where it runs: the driver queries sources for it; the ingress works with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wallaroo.network.tls import TLS


@dataclass(frozen=True, slots=True)
class ConnectorOptions:
    """The options of a port for source programs (``connector_protocol``)."""

    cookie: str = field(repr=False)
    max_credits: int
    refill_credits: int


@dataclass(frozen=True, slots=True)
class Listening:
    """The address and options of a source that listens."""

    host: str
    port: int  # 0: any free one
    tls: TLS | None = None
    connector: ConnectorOptions | None = None  # None: clients send plain frames or lines

    @property
    def can_acknowledge(self) -> bool:
        """Return whether it may have a second port for acknowledged senders."""
        return self.connector is None
