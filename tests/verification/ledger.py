"""A ledger of numbered outputs: lost, duplicated and late ones.

Memory is bounded by the outputs that are missing, not by those received.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from wallaroo.testing.verify.trial.result import Faults


class Ledger:
    """A check that each key's outputs arrive as 1, 2, 3, ..."""

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
