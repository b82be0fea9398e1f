"""What passes between a committer and its egress (a configuration, then JSON lines), and from a
resuming receiver.

Where it runs: the configuration travels; the pipe runs in the egress.

To the egress: ``commit`` (a pending batch), ``start`` (everything an earlier run left has been handed over:
connect), ``close``.  From the egress: ``ready`` (the progress it found), ``waiting`` (for what),
``kept`` (a connection is in custody), ``lost`` (a connection), ``accepted`` (the place), ``sent``
(a batch left, and when), ``released`` (a batch never has to be sent again), ``broken`` (the outbox
is damaged).
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]

EXIT_BROKEN = 3  # the outbox itself is damaged; starting again would not help
# a resuming receiver: this, then u64 bytes it has, then u64 bytes it has, as often as it likes
GREETING = b"WLRESUM1"
OFFSET = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class EgressConfig:
    """What the committer tells an egress at its start."""

    host: str
    port: int
    staging: str
    is_durable: bool
    is_resuming: bool
    keeper: int  # descriptor of a Unix socket that takes connections into custody; -1: none
    kept: int = -1  # descriptor of the connection a killed egress left; -1: none
    kept_start: int = 0
    kept_base: int = 0


class Pipe:
    """JSON lines from and to the committer, never blocking the sending."""

    def __init__(self) -> None:
        os.set_blocking(0, False)
        os.set_blocking(1, False)
        self._partial, self._out = bytearray(), bytearray()
        self.is_open = True

    @property
    def has_output(self) -> bool:
        """Whether messages wait for the committer."""
        return bool(self._out) and self.is_open

    def say(self, **message: Any) -> None:
        """Queue one message and write what goes."""
        self._out += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Write what the pipe takes."""
        try:
            while self._out:
                del self._out[: os.write(1, self._out)]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.is_open = False

    def hear(self) -> list[dict[str, Any]]:
        """All complete messages that are there; at the end of the pipe ``is_open`` becomes
        False.
        """
        try:
            while chunk := os.read(0, 1 << 18):
                self._partial += chunk
            self.is_open = False
        except BlockingIOError:
            pass
        *lines, rest = bytes(self._partial).split(b"\n")
        self._partial = bytearray(rest)
        return [json.loads(line) for line in lines]
