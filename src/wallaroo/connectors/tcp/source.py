"""The TCP source: clients connect to its port and send frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from wallaroo.network.tls import TLS
from wallaroo.protocols.framing import Framing, line_framing
from wallaroo.sources.interface import Event, FedBy, SourceConfig
from wallaroo.sources.listening import Listening
from wallaroo.steps.kinds import Decoder
from wallaroo.steps.option_values import check_choice, is_at_least

FRAMINGS = ("length", "lines")


@dataclass(frozen=True, slots=True)
class TCPSourceConfig(SourceConfig[Event]):
    r"""A port on ``host:port`` for any number of clients.

    ``framing="length"``: each client sends frames, a header of the decoder's ``header_length``,
    read by its ``length_fmt``, then the payload.  ``framing="lines"``: each client sends lines that
    end with ``\n`` or ``\r\n``; the decoder gets a line without its end, empty ones too, and its
    header does not matter.  The text after the last newline is a line, too, if the client then
    closes its connection in an orderly way.

    A frame or line larger than ``max_size`` closes its connection.  Nothing is acknowledged to the
    sender.  With ``tls=TLS(certificate=..., key=...)`` only TLS connections are accepted.  Port 0
    picks a free port.  ``valid=False`` does not listen.  ``parallelism`` and ``max_received_count``
    are accepted for compatibility and limit nothing.

    In the API of 2017, ``TCPSourceConfig(host, port, decoder)``, it gets its pipeline's name.
    """

    kind: ClassVar[str] = "tcp"
    label_form: ClassVar[str] = "tcp {0.host}:{0.port}"
    fed_by: ClassVar[FedBy] = FedBy.CLIENTS

    name: str
    host: str
    port: int | str
    decoder: Decoder[Event] = cast(Decoder[Event], None)  # noqa: RUF009  # only the old form has none
    valid: bool = True
    parallelism: int = 10
    max_size: int = 16384  # largest payload accepted, bytes
    max_received_count: int = 50
    framing: Literal["length", "lines"] = "length"
    tls: TLS | None = None

    def __post_init__(self) -> None:
        port: Any = self.port
        given: Any = self.decoder
        if given is None and not isinstance(port, int | str):
            for name, value in (
                ("decoder", port),
                ("port", self.host),
                ("host", self.name),
                ("name", ""),
            ):
                object.__setattr__(self, name, value)
        check_choice(self, "framing", FRAMINGS)
        if not is_at_least(self.max_size, 1):
            raise self._wrong(
                f"max_size={self.max_size!r} is not a size.", "Give bytes, 1 or more."
            )

    @property
    def listening(self) -> Listening | None:
        return Listening(self.host, int(self.port), self.tls) if self.valid else None

    @property
    def wire_framing(self) -> Framing:
        if self.framing == "lines":
            return line_framing(self.max_size)
        return Framing(self.decoder.header_length(), self.decoder.length_fmt, self.max_size)
