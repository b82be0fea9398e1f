"""NATSSinkConfig: outputs as messages of JetStream streams.

Where it runs: the configuration travels; its writer runs in workers, its committer in the driver.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.errors import PeerError, Problem, WallarooParameterError, optional_library
from wallaroo.sinks.addressed import addressed
from wallaroo.sinks.addresses import without_secrets
from wallaroo.sinks.interface import SinkCommitter, SinkConfig, SinkWriter, WriteContext
from wallaroo.sinks.staging import StagedWriter
from wallaroo.steps import Encoder
from wallaroo.tls import TLS
from wallaroo.tls_sockets import client_context


@dataclass(frozen=True, slots=True)
class NATSSinkConfig(SinkConfig):
    """A sink that publishes to JetStream, in order.

    Each output is stored once, within the stream's deduplication window.  The encoder returns the
    payload, or ``(payload, subject)``; ``subject`` is that of outputs without one.  An output is
    done when the server has stored it; one that was unconfirmed when a process died or a connection
    broke is published again, with the same ``Nats-Msg-Id``: the stream drops it if the first one
    came within its ``duplicate_window`` (two minutes, unless the stream is configured otherwise).

    A stream has to accept the subjects; with ``stream`` it has to be this one.  ``url`` is
    ``nats://[user:password@]host:port``, ``tls://``, or several, separated by commas;
    ``credentials`` is a ``.creds`` file.  Needs nats-py where the driver runs: ``pip install
    'wallaroo-spark[nats]'``.
    """

    kind: ClassVar[str] = "nats"

    url: str = field(repr=False)  # may hold a password
    subject: str = ""
    encoder: Encoder[Any] | None = None
    stream: str = ""
    credentials: str = ""
    tls: TLS | None = None
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not self.subject and self.encoder is None:
            raise self._wrong("No subject is named.", "Name one, or let the encoder return it.")
        if {"*", ">"} & set(self.subject.split(".")) or len(self.subject.split()) > 1:
            raise self._wrong(
                f"subject={self.subject!r} is no subject to publish to.",
                "Name one; wildcards and spaces cannot be in it.",
            )
        object.__setattr__(self, "encoder", addressed(self.encoder))

    def _wrong(self, what: str, fix: str) -> WallarooParameterError:
        return WallarooParameterError(Problem(f"NATSSinkConfig({self.subject!r})", "", what, fix))

    @property
    def label(self) -> str:
        return f"nats {self.target}"

    @property
    def target(self) -> str:
        return self.subject or (f"stream {self.stream}" if self.stream else "subjects")

    @property
    def address(self) -> str:
        return without_secrets(self.url)

    def writer(self, context: WriteContext) -> SinkWriter:
        return StagedWriter(context)

    def committer(self, sink: str, staging: Path, is_durable: bool) -> SinkCommitter:
        user = f"Sink '{sink}' ({self.label})"
        with optional_library(user, "nats-py", "nats"):
            from wallaroo.clients.nats import Server, addresses_of
            from wallaroo.sinks.nats.committer import Target, open_committer
        try:
            addresses_of(self.url)
        except ValueError as error:
            raise PeerError(f"{user}: the address cannot be read: {error}.") from None
        context = client_context(self.tls) if self.tls is not None else None
        server = Server(self.url, self.credentials, context)
        target = Target(sink, server, self.target, self.subject, self.stream)
        return open_committer(target, staging, is_durable)
