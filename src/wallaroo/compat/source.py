"""SourceConnectorConfig: a port for source programs that speak Wallaroo's connector protocol.

Where it runs: the configuration is pickled; the sockets live in the ingress process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.protocols.connector.frames import FRAME_BYTES_MAX
from wallaroo.protocols.framing import Framing
from wallaroo.sources.interface import Event, FedBy, SourceConfig
from wallaroo.sources.listening import ConnectorOptions, Listening
from wallaroo.steps.kinds import Decoder, Encoder

U32_MAX = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class SourceConnectorConfig(SourceConfig[Event]):
    """A port on ``host:port`` for source programs (connector protocol, version 3).

    A program sends messages of numbered streams; each message has an id, which rises in its stream.
    Acknowledged messages are in the spool, and a message whose id was seen is dropped: a program
    that resumes from the id it receives after a lost connection neither loses nor duplicates
    messages.

    The decoder gets a message's payload; a message without one is not an event.  ``cookie`` must
    equal the program's.  A program may send ``max_credits`` messages ahead; it receives new credits
    when it has ``refill_credits`` left, and none while the backlog is at its bound.  Port 0 picks a
    free port.  ``encoder`` is for the program, if it imports this configuration.
    """

    kind: ClassVar[str] = "connector"
    label_form: ClassVar[str] = "connector {0.host}:{0.port}"
    fed_by: ClassVar[FedBy] = FedBy.CLIENTS
    carries_times: ClassVar[bool] = True

    name: str
    encoder: Encoder[Any] | None
    decoder: Decoder[Event]
    port: int | str
    cookie: str = field(repr=False)
    max_credits: int
    refill_credits: int
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        largest = self.max_credits
        least = self.refill_credits
        if not (isinstance(largest, int) and 1 <= largest <= U32_MAX):
            raise self._wrong(
                f"max_credits={largest!r} is not a number of messages.", "Give 1 or more."
            )
        if not (isinstance(least, int) and 0 <= least < largest):
            what = f"refill_credits={least!r} is not below max_credits={largest}."
            raise self._wrong(what, f"Give a number from 0 to {largest - 1}.")
        if not isinstance(self.cookie, str):
            raise self._wrong("cookie is not text.", "Give the text that source programs send.")

    @property
    def listening(self) -> Listening | None:
        options = ConnectorOptions(self.cookie, self.max_credits, self.refill_credits)
        return Listening(self.host, int(self.port), connector=options)

    @property
    def wire_framing(self) -> Framing:
        return Framing(max_size=FRAME_BYTES_MAX)
