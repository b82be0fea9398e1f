"""UDPSinkConfig: outputs as datagrams.

Where it runs: the configuration travels; its writer runs in workers, its committer in the driver.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.sinks.interface import SinkCommitter, SinkConfig, SinkWriter, WriteContext
from wallaroo.sinks.staging import StagedWriter
from wallaroo.sinks.udp.committer import Target, open_committer
from wallaroo.steps import Encoder


@dataclass(frozen=True, slots=True)
class UDPSinkConfig(SinkConfig):
    """A sink that sends datagrams to ``host:port``, one per output; best effort.

    An output is done when the operating system has accepted it.  Its fate is then unknown: networks
    and receivers lose datagrams, and change their order.  Outputs sent shortly before the driver
    died are sent again.  At most ``per_s`` datagrams a second are sent (``None``: as fast as they
    come).  An output larger than a datagram (65,507 bytes) ends the run.
    """

    kind: ClassVar[str] = "udp"

    host: str
    port: int
    encoder: Encoder[Any] | None = None
    per_s: int | None = None
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not 1 <= self.port <= 0xFFFF:
            raise self._wrong(f"port={self.port!r} is no port.", "Give 1 to 65535.")
        if self.per_s is not None and self.per_s < 1:
            raise self._wrong(f"per_s={self.per_s!r} sends nothing.", "Give 1 or more, or None.")

    def _wrong(self, what: str, fix: str) -> WallarooParameterError:
        return WallarooParameterError(Problem(f"UDPSinkConfig({self.host!r})", "", what, fix))

    @property
    def label(self) -> str:
        return f"udp {self.target}"

    @property
    def target(self) -> str:
        return f"{self.host}:{self.port}"

    def writer(self, context: WriteContext) -> SinkWriter:
        return StagedWriter(context)

    def committer(self, sink: str, staging: Path, is_durable: bool) -> SinkCommitter:
        target = Target(sink, (self.host, self.port), self.per_s)
        return open_committer(target, staging, is_durable)
