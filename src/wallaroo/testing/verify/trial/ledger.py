"""A ledger of numbered outputs: lost, duplicated and late ones.

Where it runs: pure.  Memory is bounded by the outputs that are missing, not by those received.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Faults:
    """Counts of faults by kind; ``examples`` are the first few."""

    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    wrong: int = 0
    wrong_state: int = 0
    examples: list[str] = field(default_factory=list)

    EXAMPLES_MAX = 10

    def note(self, kind: str, example: str, count: int = 1) -> None:
        """Count a fault."""
        setattr(self, kind, getattr(self, kind) + count)
        if len(self.examples) < self.EXAMPLES_MAX:
            self.examples.append(f"{kind.replace('_', ' ')}: {example}")

    def add(self, other: Faults) -> None:
        """Add the faults of ``other``."""
        for kind in ("lost", "duplicated", "out_of_order", "wrong", "wrong_state"):
            setattr(self, kind, getattr(self, kind) + getattr(other, kind))
        if other.total:
            self.examples += other.examples[: self.EXAMPLES_MAX - len(self.examples)]

    @property
    def total(self) -> int:
        """Return the number of all faults."""
        return self.lost + self.duplicated + self.out_of_order + self.wrong + self.wrong_state


class Ledger:
    """A check that each key's outputs arrive as 1, 2, 3, ...

    >>> faults = Faults()
    >>> ledger = Ledger(faults)
    >>> for number in (1, 3, 2, 3):
    ...     ledger.receive("a", number)
    >>> ledger.close({"a": 4})
    >>> faults.lost, faults.duplicated, faults.out_of_order, faults.wrong
    (1, 1, 1, 0)
    """

    def __init__(self, faults: Faults):
        self._faults = faults
        self._next: dict[Hashable, int] = {}
        self._missing: dict[Hashable, set[int]] = {}

    def receive(self, key: Hashable, number: int) -> None:
        """Check one output."""
        due = self._next.get(key, 1)
        if number == due:
            self._next[key] = due + 1
        elif number > due:
            self._missing.setdefault(key, set()).update(range(due, number))
            self._next[key] = number + 1
        elif number in self._missing.get(key, ()):
            self._missing[key].remove(number)
            self._faults.note("out_of_order", f"{key!r} {number} behind {due - 1}")
        else:
            self._faults.note("duplicated", f"{key!r} {number}")

    def close(self, totals: Mapping[Any, int]) -> None:
        """Note the remaining faults, given the number of outputs that each key should have."""
        for key, numbers in self._missing.items():
            for number in sorted(numbers):
                self._faults.note("lost", f"{key!r} {number}")
        for key, total in totals.items():
            came = self._next.get(key, 1) - 1
            if came < total:
                self._faults.note("lost", f"{key!r} {came + 1} to {total}", total - came)
        for key, due in self._next.items():
            if due - 1 > totals.get(key, 0):
                self._faults.note(
                    "wrong", f"{key!r} {due - 1}: there are only {totals.get(key, 0)}"
                )
