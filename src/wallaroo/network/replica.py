"""Address of a replica, and the run whose copy it keeps.

Where it runs: driver, ingress and feeders.
"""

from __future__ import annotations

from dataclasses import dataclass, field

REPLICA_KEY = "replica.key"  # in a copy: information that a run needs to reach its replica
WRITER = "`wallaroo replica`"  # writes that file


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica, and the run that it keeps the copy of."""

    host: str
    port: int
    secret: str = field(repr=False)  # hexadecimal
    certificate: str = field(default="", repr=False)  # PEM; empty: without TLS
    checkpoint: str = ""
    epoch: int = 0
    owner: str = ""

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}"
