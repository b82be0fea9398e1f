"""What the process that reads ports has to know of a source that listens on one.

Where it runs: the driver asks sources for it; the ingress works with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wallaroo.tls import TLS


@dataclass(frozen=True, slots=True)
class ConnectorOptions:
    """How a source speaks with source programs (``connector_protocol``)."""

    cookie: str = field(repr=False)
    max_credits: int
    refill_credits: int


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a source listens, and how."""

    host: str
    port: int  # 0: any free one
    tls: TLS | None = None
    connector: ConnectorOptions | None = None  # None: clients send plain frames or lines

    @property
    def can_acknowledge(self) -> bool:
        """Whether it can have a second port, for senders that want acknowledgements; those of the
        connector protocol have them anyway.
        """
        return self.connector is None
