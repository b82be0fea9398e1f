"""Load of a verified run, and the waits that keep the run alive.

One acknowledged sender per source sends in portions, until stopped.

Where it runs: the verifier, a thread per source.  A portion is a stream of its own to the ingress;
the next one is generated when every message of the previous one is acknowledged, so the order of
messages over all portions is kept, whichever process dies.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from wallaroo.errors import PeerError, WallarooError
from wallaroo.testing.verify.cases import Case
from wallaroo.testing.verify.disturbances.damage import BitFlips
from wallaroo.testing.verify.trial.result import Result
from wallaroo.testing.verify.trial.supervised import Supervised, describe

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


POLL_S = 0.02
BLAMES_ITSELF = 70  # exit code of a run that reports an error as its own bug


class RunWaits:
    """Waits of a verification, during which the run is kept alive.

    The run is restarted if it died; an end that nothing explains is noted in the result.
    """

    def __init__(self, run: Supervised, loads: Sequence[Load], flips: BitFlips, result: Result):
        self._run = run
        self._loads = loads
        self._flips = flips
        self._result = result
        self._explained: list[float] = []  # until when a fault explains an end

    def expect_end(self, seconds: float) -> None:
        """Note that a fault explains one end of the run within ``seconds``."""
        self._explained = sorted([*self._explained, time.monotonic() + seconds])

    def pause(self, seconds: float) -> None:
        """Wait, and restart the run if it dies meanwhile."""
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0:
            self._look()
            time.sleep(min(POLL_S, rest))

    def await_(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for a condition, keeping the run alive.  Raises PeerError after ``seconds``."""
        until = time.monotonic() + seconds
        while not condition():
            self._look()
            if time.monotonic() > until:
                raise PeerError(
                    f"Not within {seconds:.0f} s: {what}. The log of the run ends "
                    f"so:\n{self._run.tail()}"
                )
            time.sleep(POLL_S)

    def _look(self) -> None:
        """Keep the run alive; note an end that no fault explains."""
        if self._run.has_ended:
            self._judge_end()
            self._run.look()
        for load in self._loads:
            if load.error is not None:
                raise load.error

    def _judge_end(self) -> None:
        now = time.monotonic()
        self._explained = [until for until in self._explained if until > now]
        # an end due to a flipped bit does not use up a fault's explanation
        is_refused = self._flips.undo_named(self._run.said())
        is_explained = is_refused or bool(self._explained)
        code = self._run.code
        is_planned = self._run.starts <= len(self._run.faults)
        if code == BLAMES_ITSELF or not (is_explained or is_planned):
            self._result.ended_by_itself.append(
                f"{describe(code)} (start {self._run.starts}); see run.log"
            )
        if not is_refused:
            self._explained = self._explained[1:]
