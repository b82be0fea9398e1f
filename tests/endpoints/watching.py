"""The thread that reads tables while they are written.

Where it runs: the verifier.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tests.endpoints.interface import DELIVERY_S_MAX, Output
from tests.endpoints.oracles import Oracle
from wallaroo.testing.verify.trial.result import Faults

WATCH_S = 0.5


class Watching(threading.Thread):
    """Reads each sink that is a table again and again, and lets the oracle judge what it sees."""

    def __init__(self, sinks: Sequence[Output], oracle: Oracle):
        super().__init__(name="watching", daemon=True)
        self._sinks = sinks
        self._oracle = oracle
        self._stopping = threading.Event()
        self.faults = Faults()
        self.readings = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopping.wait(WATCH_S):
                for number, sink in enumerate(self._sinks):
                    if sink.is_watched:
                        self._read(number, sink)
        except BaseException as error:  # noqa: BLE001  # the thread's boundary: the verifier raises it
            self.error = error

    def _read(self, number: int, sink: Output) -> None:
        try:
            lines = list(sink.lines())
        except Exception:  # noqa: BLE001  # the system may be away, or there is no table yet
            return
        self.readings += 1
        self._oracle.watch(number, lines, self.faults)

    def finish(self) -> Faults:
        """Read no more; return what was wrong."""
        self._stopping.set()
        self.join(DELIVERY_S_MAX)
        if self.error is not None:
            raise self.error
        return self.faults
