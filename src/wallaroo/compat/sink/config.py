"""SinkConnectorConfig: outputs to a sink program that speaks Wallaroo's connector protocol.

Where it runs: the configuration is pickled; writers run in workers, the committer in the driver.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.steps.kinds import Decoder, Encoder
from wallaroo.steps.option_values import keep_port


@dataclass(frozen=True, slots=True)
class SinkConnectorConfig(QueuedSinkConfig):
    """A sink that sends outputs to a sink program, exactly once.

    The program is at ``host:port`` and gets outputs in order.  Each commit of the application with
    output is one transaction of the program's, by two-phase commit; each output is a message.
    Exactly once needs a program that keeps what it voted for across its own crash.  While the
    program is unavailable, or votes no, output waits in the outbox.

    ``cookie`` has to be the program's.  ``decoder`` is for the program, if it imports this
    configuration.
    """

    kind: ClassVar[str] = "connector"
    target_form: ClassVar[str] = "{0.name}"
    shown_options: ClassVar[str] = "name={0.name!r}"
    system: ClassVar[str] = "wallaroo.compat.sink.session:ConnectorSystem"

    name: str
    encoder: Encoder[Any] | None
    decoder: Decoder[Any] | None
    port: int | str
    cookie: str = field(repr=False)
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        keep_port(self, self.port)
        if not isinstance(self.cookie, str):
            raise self._wrong("cookie is not text.", "Give the text that the sink program awaits.")

    @property
    def label(self) -> str:
        return f"connector {self.host}:{self.port}"
