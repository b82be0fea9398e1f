"""What an end of an application is to the verifier: something that takes events, something that
lines are read from, a system that is disturbed.

Where it runs: the verifier.
"""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator

from wallaroo.verify.processes import kill

PARTITIONS = 3
DELIVERY_S_MAX = 300.0


class Input(ABC):
    """Where events are put; a key's events stay in order."""

    arguments: list[str]

    @abstractmethod
    def put(self, payloads: list[bytes]) -> None:
        """Put events; return when they are safe."""


class Output(ABC):
    """Where lines are read from."""

    arguments: list[str]

    @abstractmethod
    def lines(self) -> Iterator[bytes]:
        """Yield all lines that are committed, each key's in order."""


class Disturbed(ABC):
    """A system whose own processes are disturbed."""

    name: str

    @abstractmethod
    def pids(self) -> list[int]:
        """Return its processes, the one that serves first."""

    @abstractmethod
    def start(self) -> None:
        """Start it again on the same data."""

    @abstractmethod
    def stop(self, *, is_killed: bool) -> None:
        """Kill it, or end it in order."""

    def kill(self) -> None:
        """Kill it and start it again on the same data."""
        self.stop(is_killed=True)
        self.start()

    def restart(self) -> None:
        """End it in order and start it again."""
        self.stop(is_killed=False)
        self.start()

    def hold(self, seconds: float) -> None:
        """Stop all of its processes for a while: connections stay open, and nothing answers."""
        held = [pid for pid in self.pids() if kill(pid, signal.SIGSTOP)]
        try:
            time.sleep(seconds)
        finally:
            for pid in held:
                kill(pid, signal.SIGCONT)
