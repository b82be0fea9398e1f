"""NATSSourceConfig: the messages of a JetStream stream as events.

Where it runs: the configuration travels; the stream is read by a feeder process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from wallaroo.errors import PeerError, optional_library
from wallaroo.sources.feed import Feed
from wallaroo.sources.generator import unpickled
from wallaroo.sources.inbox import InboxFeed
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.steps import Decoder
from wallaroo.tls import TLS
from wallaroo.tls_sockets import client_context

NAME = re.compile(r"[^\s.*>/\\]+")


@dataclass(frozen=True, slots=True)
class NATSSourceConfig(SourceConfig[Event]):
    """A source that reads a JetStream stream in order, exactly once.

    All of it is read, or the messages of ``subject`` (which may have wildcards).  A message's
    number in the stream is stored with it; reading continues after it.  The decoder gets
    a message's payload; without one, events are `NATSMessage`.  ``start`` is the number that an
    application without a commit begins with; ``None``: what comes from now on.

    A stream that keeps messages until they are acknowledged (its retention is ``workqueue`` or
    ``interest``) is read from its beginning through a durable consumer, whose name begins with
    ``consumer`` (``wallaroo-<name>``; one application, one name), and a message is acknowledged
    when it is on disk.  Any other stream has to keep what was not read yet.

    ``url`` is ``nats://[user:password@]host:port``, ``tls://``, or several, separated by commas;
    ``credentials`` is a ``.creds`` file.  The stream must exist.  Needs nats-py on the driver's
    host: ``pip install 'wallaroo-spark[nats]'``.
    """

    kind: ClassVar[str] = "nats"

    name: str
    stream: str
    url: str = field(repr=False)  # may hold a password
    decoder: Decoder[Event] = unpickled
    subject: str = ""
    start: int | None = 1
    consumer: str = ""
    credentials: str = ""
    tls: TLS | None = None

    def __post_init__(self) -> None:
        for option, name in (("stream", self.stream), ("consumer", self.consumer or "default")):
            if not NAME.fullmatch(name):
                raise self._wrong(
                    f"{option}={name!r} is no name.",
                    "Give one without spaces, dots, slashes, * and >.",
                )
        if self.start is not None and self.start < 1:
            raise self._wrong(f"start={self.start!r} is no number.", "Give 1 or more, or None.")

    @property
    def label(self) -> str:
        return f"nats stream {self.stream}"

    def open_feed(self, resume: bytes) -> Feed:
        user = f"Source '{self.name}' ({self.label})"
        with optional_library(user, "nats-py", "nats"):
            from wallaroo.clients.nats import Server, addresses_of
            from wallaroo.sources.nats.reader import Subscription, follow
        try:
            addresses_of(self.url)
        except ValueError as error:
            raise PeerError(f"{user}: the address cannot be read: {error}.") from None
        context = client_context(self.tls) if self.tls is not None else None
        subscription = Subscription(
            self.name,
            Server(self.url, self.credentials, context),
            self.stream,
            self.subject,
            self.start,
            self.consumer or f"wallaroo-{re.sub(r'[^A-Za-z0-9_-]', '_', self.name)}",
            self.decoder is not unpickled,
        )
        return InboxFeed(self.name, partial(follow, subscription), resume)
