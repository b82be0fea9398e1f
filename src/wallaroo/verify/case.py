"""What a case is: an application, its input from a seed without end, and the oracle.

Where it runs: the verifier.  Input is made in portions, always in the same order.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from wallaroo.verify.ledger import Faults

KEYS = 300

State = dict[Any, Any]  # key -> what its state object must hold


class Case(ABC):
    """One application with its input and its oracle."""

    module: ClassVar[str]
    sources: ClassVar[tuple[str, ...]]
    has_files: ClassVar[bool] = False  # whether the output goes to files as well
    has_letters: ClassVar[bool] = False  # whether events fail

    def __init__(self, seed: int):
        self._chances = {source: random.Random(f"{seed} {source}") for source in self.sources}

    @abstractmethod
    def payloads(self, source: str, count: int) -> list[bytes]:
        """Make the next events of a source.  Sources may be asked from different threads."""

    @abstractmethod
    def judge(self, lines: Iterable[bytes], faults: Faults) -> int:
        """Hold the output against everything made so far; return how many outputs there were."""

    def judge_letters(self, letters: Iterable[bytes], faults: Faults) -> int:
        """Hold the dead letters against everything made so far; return how many there were."""
        count = 0
        for letter in letters:
            count += 1
            faults.note("wrong", f"a dead letter of an application that has none: {letter!r}")
        return count

    @abstractmethod
    def state(self) -> State:
        """What each key's state must hold in the end."""

    @abstractmethod
    def facts(self, state: Any) -> Any:
        """What a state object holds, to be compared with ``state()``."""

    def judge_state(self, states: Iterable[tuple[Any, Any]], faults: Faults) -> None:
        """Hold the final state objects, by key, against the oracle's."""
        expected = self.state()
        found = {key: self.facts(state) for key, state in states}
        for key in expected.keys() | found.keys():
            if expected.get(key) != found.get(key):
                faults.note(
                    "wrong_state", f"{key!r} is {found.get(key)}, must be {expected.get(key)}"
                )
