"""UDPSinkConfig: outputs as datagrams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.steps.kinds import Encoder
from wallaroo.steps.option_values import is_count


@dataclass(frozen=True, slots=True)
class UDPSinkConfig(QueuedSinkConfig):
    """A sink that sends datagrams to ``host:port``, one per output; best effort.

    An output is done when the operating system has accepted it.  Its fate is then unknown: networks
    and receivers lose datagrams, and change their order.  Outputs sent shortly before the driver
    died are sent again.  At most ``per_s`` datagrams per second are sent (``None``: without limit).
    An output larger than a datagram (65,507 bytes) ends the run.
    """

    kind: ClassVar[str] = "udp"
    target_form: ClassVar[str] = "{0.host}:{0.port}"
    shown_options: ClassVar[str] = "{0.host!r}"
    system: ClassVar[str] = "wallaroo.connectors.udp.committer:UDPSystem"

    host: str
    port: int
    encoder: Encoder[Any] | None = None
    per_s: int | None = None
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not 1 <= self.port <= 0xFFFF:
            raise self._wrong(f"port={self.port!r} is not a port.", "Give 1 to 65535.")
        if self.per_s is not None and not is_count(self.per_s):
            raise self._wrong(f"per_s={self.per_s!r} sends nothing.", "Give 1 or more, or None.")
