"""The thread that feeds a source.

Where it runs: the verifier.
"""

from __future__ import annotations

import threading
import time

from tests.endpoints.interface import DELIVERY_S_MAX, Input
from tests.endpoints.oracles import Oracle

PORTION_MAX = 5000


class Feeding(threading.Thread):
    """Puts portions of events until it is stopped; an error is kept for the caller.

    What was due while the system was away is put at once when it is there again.
    """

    def __init__(self, end: Input, oracle: Oracle, rate: float):
        super().__init__(name="feeding", daemon=True)
        self._end = end
        self._oracle = oracle
        self._rate = rate
        self._stopping = threading.Event()
        self.sent = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        began = time.monotonic()
        put = 0
        try:
            while not self._stopping.wait(self._end.portion_s):
                due = int((time.monotonic() - began) * self._rate) - put
                if due > 0:
                    put += due
                    payloads = self._oracle.payloads(min(due, PORTION_MAX))
                    self._end.put(payloads)
                    self.sent += len(payloads)
        except BaseException as error:  # noqa: BLE001  # the thread's boundary: the verifier raises it
            self.error = error

    def finish(self) -> None:
        """Put no portion after this one; return when it is safe."""
        self._stopping.set()
        self.join(DELIVERY_S_MAX)
        if self.error is not None:
            raise self.error
        self._end.finish()
