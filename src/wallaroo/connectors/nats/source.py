"""NATSSourceConfig: the messages of a JetStream stream as events."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from wallaroo.network.tls import TLS
from wallaroo.sources.feeds.generator import unpickled
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.steps.kinds import Decoder
from wallaroo.steps.option_values import check_choice, is_count

ON_DATA_LOSS = ("stop", "skip")
NAME = re.compile(r"[^\s.*>/\\]+")


@dataclass(frozen=True, slots=True)
class NATSSourceConfig(SourceConfig[Event]):
    """A source that reads a JetStream stream in order, exactly once.

    All of it is read, or the messages of ``subject`` (which may have wildcards).  A message's
    number in the stream is stored with it; reading continues after it.  The decoder gets
    a message's payload; without one, events are `NATSMessage`.  ``start`` is the number that an
    application without a commit begins with; ``None``: messages from now on.

    A stream that keeps messages until they are acknowledged (its retention is ``workqueue`` or
    ``interest``) is read from its beginning through a durable consumer, whose name begins with
    ``consumer`` (``wallaroo-<name>``; one application, one name), and a message is acknowledged
    when it is on disk.  Any other stream has to keep unread messages: if retention or a
    purge removes messages before they are read, the run ends with their number, or, with
    ``on_data_loss="skip"``, continues without them and counts them.  With ``subject``, and in a
    stream that limits the messages of a subject, missing numbers do not indicate a loss.

    ``url`` is ``nats://[user:password@]host:port``, ``tls://``, or several, separated by commas;
    a password is percent-encoded.  ``credentials`` is a ``.creds`` file.  The stream must exist.
    Needs nats-py on the driver's host.
    """

    kind: ClassVar[str] = "nats"
    label_form: ClassVar[str] = "nats stream {0.stream}"
    opener: ClassVar[str] = "wallaroo.connectors.nats.reader:open_feed"
    library: ClassVar[tuple[str, ...]] = ("nats-py",)

    name: str
    stream: str
    url: str = field(repr=False)  # may hold a password
    decoder: Decoder[Event] = unpickled
    subject: str = ""
    start: int | None = 1
    consumer: str = ""
    on_data_loss: str = "stop"
    credentials: str = ""
    tls: TLS | None = None

    def __post_init__(self) -> None:
        for option, name in (("stream", self.stream), ("consumer", self.consumer or "default")):
            if not NAME.fullmatch(name):
                raise self._wrong(
                    f"{option}={name!r} is not a name.",
                    "Give one without spaces, dots, slashes, * and >.",
                )
        if self.start is not None and not is_count(self.start):
            raise self._wrong(f"start={self.start!r} is not a number.", "Give 1 or more, or None.")
        check_choice(self, "on_data_loss", ON_DATA_LOSS)

    def for_trial(self) -> Self:
        return self.for_fork("trial")

    def for_fork(self, name: str) -> Self:
        source = re.sub(r"[^A-Za-z0-9_-]", "_", self.name)
        return replace(self, consumer=f"{self.consumer or f'wallaroo-{source}'}-{name}")
