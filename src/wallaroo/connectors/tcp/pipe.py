"""Messages between a committer and its egress, and from a resuming receiver.

Where it runs: the configuration is pickled; each side has an end of the pipe.

An egress is started with a configuration, then JSON lines pass in both directions.

To the egress: ``commit`` (a pending batch), ``start`` (everything an earlier run left has been
handed over: connect), ``ping``, ``close``.  From the egress: ``ready`` (the recorded progress),
``waiting`` (for what), ``alive`` (the answer to a ping, and during a long read),
``handed_over`` (a second descriptor of a connection is under way), ``lost`` (a connection ended),
``accepted`` (the place), ``sent`` (a batch left, and when), ``released`` (a batch is never sent
again), ``ending`` (unacknowledged bytes, of how many on this connection), ``broken`` (the outbox
is damaged).
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from typing import Any

import msgspec

from wallaroo.network.tls import TLS

Message = dict[str, Any]

EXIT_BROKEN = 3  # the outbox itself is damaged; starting again would not help
READ_BYTES = 1 << 18
OUT_BYTES_MAX = 64 * 1024  # places are not reported while more than this is unread
# A resuming receiver sends the greeting, then u64 counts of the bytes it has, at any time.
GREETING = b"WLRESUM1"
OFFSET = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class EgressConfig:
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
    owner: str = ""  # the run's claim to its checkpoint (durable.ownership)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def from_json(cls, text: str) -> EgressConfig:
        """Return the configuration that the committer wrote as JSON."""
        return msgspec.json.decode(text, type=cls)


class Pipe:
    """JSON lines from and to the other side, which never block."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        os.set_blocking(incoming, False)
        os.set_blocking(outgoing, False)
        self.incoming = incoming
        self.outgoing = outgoing
        self._partial = bytearray()
        self._out = bytearray()
        self._held_back: list[Message] = []
        self._is_broken = False  # the other side reads no more; it may have written before
        self.has_ended = False  # everything that the other side wrote was received

    @property
    def is_open(self) -> bool:
        """Return whether the other side still reads and writes, as far as is known."""
        return not (self._is_broken or self.has_ended)

    @property
    def has_output(self) -> bool:
        """Return whether messages wait for the other side."""
        return bool(self._out) and self.is_open

    @property
    def is_congested(self) -> bool:
        """Return whether too much is unread to send what the committer does not need."""
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
                del self._out[: os.write(self.outgoing, self._out)]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._is_broken = True

    def receive(self) -> list[Message]:
        """Return all complete messages that have arrived.

        At the end of the pipe ``has_ended`` becomes True: the other side may have died in the
        middle of a message, and the messages before it count.
        """
        try:
            while chunk := os.read(self.incoming, READ_BYTES):
                self._partial += chunk
            self.has_ended = True
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
