"""The bytes from a resuming receiver: a greeting, then offsets.

An offset is how many bytes the receiver has; it sends one as often as it likes.
"""

from __future__ import annotations

from wallaroo.connectors.tcp.pipe import GREETING, OFFSET


class ResumeStream:
    """The parser of one connection: bytes from the receiver in, offsets out."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._has_begun = False

    def feed(self, chunk: bytes) -> list[int]:
        """Return the complete offsets in order.

        A connection's first one came with its greeting.  Raises ValueError with words for people if
        the other side does not speak this protocol.
        """
        self._rest += chunk
        if not self._has_begun:
            if not GREETING.startswith(self._rest[: len(GREETING)]):
                raise ValueError(
                    "the receiver does not speak the resume protocol; start it with --resume, or "
                    "drop resume=True"
                )
            if len(self._rest) < len(GREETING):
                return []
            self._has_begun = True
            del self._rest[: len(GREETING)]
        whole = len(self._rest) // OFFSET.size * OFFSET.size
        offsets = [has for (has,) in OFFSET.iter_unpack(self._rest[:whole])]
        del self._rest[:whole]
        return offsets
