"""TCPSinkConfig: output to one receiver as a stream of bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.network.tls import TLS
from wallaroo.sinks.interface import SinkCommitter, SinkConfig, SinkWriter, WriteContext
from wallaroo.sinks.staging import StagedWriter
from wallaroo.steps.kinds import Encoder
from wallaroo.steps.option_values import keep_port
from wallaroo.user_code.references import load


@dataclass(frozen=True, slots=True)
class TCPSinkConfig(SinkConfig):
    """A sink that sends outputs to one TCP receiver, in order.

    The receiver is at ``host:port``; framing is done by the encoder.  The application connects
    to it and retries every 250 ms while it is unavailable; nothing is dropped meanwhile, output
    waits in the outbox.  A receiver that stays up gets everything in order: once while the driver
    or the egress survives, at least once if both die in the same instant or a connection breaks;
    then the next connection begins with the first output that its kernel had not acknowledged.  If
    the *receiver* dies, bytes that its kernel had acknowledged but it had not read are lost.
    ``resume=True`` is exactly once in all cases, with a receiver that reports how many bytes it has
    (``wallaroo receive --resume``; see docs/connectors/tcp.md).

    With ``tls=TLS(ca="receivers.pem")`` the connection is encrypted, and the receiver has to show a
    certificate for ``host`` that one of these signed.  If the egress dies, an encrypted connection
    ends with it, and output may be sent again.

    ``port`` may be text, as ``tcp_parse_output_addrs`` returns it.
    """

    kind: ClassVar[str] = "tcp"
    target_form: ClassVar[str] = "{0.host}:{0.port}"
    opener: ClassVar[str] = "wallaroo.connectors.tcp.committer:open_committer"
    shown_options: ClassVar[str] = "{0.host!r}, {0.port!r}"
    can_roll_back: ClassVar[bool] = True  # if nothing after the commit has begun to leave
    has_staged_tokens: ClassVar[bool] = True
    host: str
    port: int | str
    encoder: Encoder[Any] | None = None
    resume: bool = False
    tls: TLS | None = None
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        keep_port(self, self.port)

    @property
    def bound_by(self) -> str:
        return "resume=True" if self.resume else ""

    def writer(self, context: WriteContext) -> SinkWriter:
        return StagedWriter(context)

    def committer(self, sink: str, staging: Path, is_durable: bool) -> SinkCommitter:
        open_committer: Callable[..., SinkCommitter] = load(self.opener)
        return open_committer(self, staging, is_durable)
