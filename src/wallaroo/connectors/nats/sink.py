"""NATSSinkConfig: outputs as messages of JetStream streams."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.network.tls import TLS
from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.sinks.wrapped_encoder import AddressedOutput, AddressPack, decoded, wrapped
from wallaroo.steps.kinds import Encoder

_is_subject = re.compile(r"(?!(?:.*\.)?[*>](?:\.|$))[^\s.]+(?:\.[^\s.]+)*").fullmatch


def _subject_problem(subject: str) -> str:
    if _is_subject(subject):
        return ""
    return "a subject to publish to has no wildcards, no spaces and no empty parts"


@dataclass(frozen=True, slots=True)
class NATSSinkConfig(QueuedSinkConfig):
    """A sink that publishes to JetStream, in order.

    Each output is stored once, within the stream's deduplication window.  The encoder returns the
    payload, or ``(payload, subject)``; ``subject`` is that of outputs without one.  An output is
    done when the server has stored it; one that was unconfirmed when a process died or a connection
    broke is published again, with the same ``Nats-Msg-Id``: the stream drops it if the first one
    arrived within its ``duplicate_window`` (two minutes, unless the stream is configured
    otherwise).

    A stream has to accept the subjects; with ``stream`` it has to be this one.  ``url`` is
    ``nats://[user:password@]host:port``, ``tls://``, or several, separated by commas; a password is
    percent-encoded.  ``credentials`` is a ``.creds`` file.  Needs nats-py where the driver runs.
    """

    kind: ClassVar[str] = "nats"
    shown_options: ClassVar[str] = "{0.subject!r}"
    system: ClassVar[str] = "wallaroo.connectors.nats.committer:NATSSystem"
    library: ClassVar[str] = "nats-py"

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
        if self.subject and (problem := _subject_problem(self.subject)):
            raise self._wrong(
                f"subject={self.subject!r} is not a subject to publish to.", f"Name one: {problem}."
            )
        pack = AddressPack(_subject_problem, bool(self.subject))
        object.__setattr__(self, "encoder", wrapped(self.encoder, pack))

    def decoded(self, output: bytes) -> AddressedOutput:
        return decoded(output, self.subject)

    @property
    def target(self) -> str:
        return self.subject or (f"stream {self.stream}" if self.stream else "subjects")
