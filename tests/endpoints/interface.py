"""What an end of an application is to the verifier: something that takes events, something that
lines are read from, a system that is disturbed.

Where it runs: the verifier.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from wallaroo.testing.verify.trial.processes import kill

PARTITIONS = 3
DELIVERY_S_MAX = 900.0  # systems may be away for minutes
Pause = Callable[[float], None]


class Input(ABC):
    """Where events are put; a key's events stay in order."""

    arguments: list[str]
    portion_s = 0.25  # between two portions of events

    @abstractmethod
    def put(self, payloads: list[bytes]) -> None:
        """Put events; return when they are safe."""

    def finish(self) -> None:  # noqa: B027  # most have nothing to do
        """Let everything that was put be seen."""


class Output(ABC):
    """Where lines are read from."""

    arguments: list[str]
    is_watched = False  # whether the oracle judges what a reader sees at any moment

    @abstractmethod
    def lines(self) -> Iterator[bytes]:
        """Yield all lines that are committed, each key's in order."""

    def known(self) -> Iterator[bytes]:
        """Yield them without reading again what was read before: for waits, not for a verdict."""
        return self.lines()


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

    def leave(self, pause: Pause, away_s: float, *, is_killed: bool) -> None:
        """Kill it, or end it in order, and start it again on the same data after a while."""
        self.stop(is_killed=is_killed)
        try:
            pause(away_s)
        finally:
            self.start()

    def hold(self, pause: Pause, away_s: float) -> None:
        """Stop all of its processes for a while: connections stay open, and nothing answers."""
        held = [pid for pid in self.pids() if kill(pid, signal.SIGSTOP)]
        try:
            pause(away_s)
        finally:
            for pid in held:
                kill(pid, signal.SIGCONT)
