"""Load: one acknowledged sender per source, in portions, until stopped.

Where it runs: the verifier, a thread per source.  A portion is a stream of its own to the ingress;
the next one is generated when every message of the previous one is acknowledged, so the order of
messages over all portions is kept, whichever process dies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from wallaroo.errors import WallarooError
from wallaroo.testing.verify.cases import Case

PORTION_S = 3.0  # duration of a portion at the load's rate

# (port, stream, payloads, rate): returns when all are acknowledged
Send = Callable[[int, str, list[bytes], float], None]


class Load:
    """The sender of one source."""

    def __init__(
        self,
        case: Case,
        source: str,
        port: int,
        rate: float,
        send: Send,
        events_max: int | None = None,
    ):
        self._case = case
        self._source = source
        self._port = port
        self._rate = rate
        self._send = send
        self._events_max = events_max
        self._is_stopping = threading.Event()
        self.sent = 0  # acknowledged
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"load {source}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """End after the current portion."""
        self._is_stopping.set()

    @property
    def has_ended(self) -> bool:
        """Return whether everything generated is acknowledged, or the sender failed."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        size = max(1, int(self._rate * PORTION_S))
        try:
            while not self._is_stopping.is_set():
                left = size if self._events_max is None else self._events_max - self.sent
                if left <= 0:
                    break
                payloads = self._case.payloads(self._source, min(size, left))
                self._send(self._port, f"portion at {self.sent}", payloads, self._rate)
                self.sent += len(payloads)
        except WallarooError as error:  # reported by the harness
            self.error = error
