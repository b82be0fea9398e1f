"""A case: an application, its endless input, and its oracle.

Input is generated from a seed, in portions, always in the same order.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from wallaroo.testing.verify.trial.result import Faults

State = dict[Any, Any]  # key -> what its state object must hold


class Case(ABC):
    """An application with its input and its oracle."""

    module: ClassVar[str]
    sources: ClassVar[tuple[str, ...]]
    has_files: ClassVar[bool] = False  # whether the output goes to files as well
    has_letters: ClassVar[bool] = False  # whether events fail

    def __init__(self, seed: int):
        self._chances = {source: random.Random(f"{seed} {source}") for source in self.sources}

    @abstractmethod
    def payloads(self, source: str, count: int) -> list[bytes]:
        """Return a source's next ``count`` events; threads may call for other sources."""

    @abstractmethod
    def judge(self, lines: Iterable[bytes], faults: Faults) -> int:
        """Compare the output with all input generated so far; return the number of outputs."""

    def judge_letters(self, letters: Iterable[bytes], faults: Faults) -> int:
        """Compare the dead letters with all input generated so far; return their number."""
        count = 0
        for letter in letters:
            count += 1
            faults.note("wrong", f"a dead letter of an application that has none: {letter!r}")
        return count

    @abstractmethod
    def state(self) -> State:
        """Return the expected content of each key's final state."""

    @abstractmethod
    def facts(self, state: Any) -> Any:
        """Return the content of a state object, for comparison with ``state()``."""

    def judge_state(self, states: Iterable[tuple[Any, Any]], faults: Faults) -> None:
        """Compare the final state objects, by key, with the oracle's."""
        expected = self.state()
        found = {key: self.facts(state) for key, state in states}
        for key in expected.keys() | found.keys():
            if expected.get(key) != found.get(key):
                faults.note(
                    "wrong_state", f"{key!r} is {found.get(key)}, must be {expected.get(key)}"
                )
