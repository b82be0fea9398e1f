"""Messages between a committer and its egress, and from a resuming receiver.

Where it runs: the configuration travels; the pipe runs in the egress.

An egress is started with a configuration, then JSON lines pass in both directions.

To the egress: ``commit`` (a pending batch), ``start`` (everything an earlier run left has been
handed over: connect), ``ping``, ``close``.  From the egress: ``ready`` (the progress it found),
``waiting`` (for what), ``alive`` (the answer to a ping; it reads its input and does its work),
``handed_over`` (a second descriptor of a connection is under way), ``lost`` (a connection ended),
``accepted`` (the place), ``sent`` (a batch left, and when), ``released`` (a batch never has to be
sent again), ``ending`` (bytes that are not acknowledged yet, of how many on this connection),
``broken`` (the outbox is damaged).
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from typing import Any

from wallaroo.tls import TLS

Message = dict[str, Any]

EXIT_BROKEN = 3  # the outbox itself is damaged; starting again would not help
OUT_BYTES_MAX = 64 * 1024  # unread messages to the committer above which places are not reported
# a resuming receiver: this, then u64 bytes it has, repeated as often as it likes
GREETING = b"WLRESUM1"
OFFSET = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class EgressConfig:
    """The configuration that an egress is started with."""

    host: str
    port: int
    staging: str
    is_durable: bool
    is_resuming: bool
    handover_fd: int = -1  # a Unix socket for a second descriptor of connections; -1: none
    inherited_fd: int = -1  # the connection that a killed egress left; -1: none
    inherited_start: int = 0
    inherited_base: int = 0
    tls: TLS | None = None

    @classmethod
    def from_json(cls, text: str) -> EgressConfig:
        """Return the configuration that the committer wrote as JSON."""
        fields = json.loads(text)
        tls = fields.pop("tls")
        return cls(**fields, tls=TLS(**tls) if tls else None)


class Pipe:
    """JSON lines from and to the committer, which never block the sending."""

    def __init__(self) -> None:
        os.set_blocking(0, False)
        os.set_blocking(1, False)
        self._partial = bytearray()
        self._out = bytearray()
        self._held_back: list[Message] = []
        self.is_open = True

    @property
    def has_output(self) -> bool:
        """Return whether messages wait for the committer."""
        return bool(self._out) and self.is_open

    @property
    def is_congested(self) -> bool:
        """Return whether too much is unread to send what the committer can do without."""
        return len(self._out) > OUT_BYTES_MAX

    def send(self, **message: Any) -> None:
        """Queue one message, and write as much as the pipe accepts."""
        if self.is_open:
            self._out += json.dumps(message).encode() + b"\n"
            self.flush()

    def flush(self) -> None:
        """Write as much as the pipe accepts."""
        try:
            while self._out:
                del self._out[: os.write(1, self._out)]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.is_open = False

    def receive(self) -> list[Message]:
        """Return all complete messages that have arrived.

        At the end of the pipe ``is_open`` becomes False.
        """
        try:
            while chunk := os.read(0, 1 << 18):
                self._partial += chunk
            self.is_open = False
        except BlockingIOError:
            pass
        *lines, rest = bytes(self._partial).split(b"\n")
        self._partial = bytearray(rest)
        messages = self._held_back + [json.loads(line) for line in lines]
        self._held_back = []
        return messages

    def hold_back(self, messages: list[Message]) -> None:
        """Put messages back: the next ``receive`` returns them first."""
        self._held_back += messages
