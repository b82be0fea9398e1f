"""Counts of faults in a run's output and state.

Where it runs: pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field


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
        setattr(self, kind, getattr(self, kind) + count)
        if len(self.examples) < self.EXAMPLES_MAX:
            self.examples.append(f"{kind.replace('_', ' ')}: {example}")

    def add(self, other: Faults) -> None:
        for kind in ("lost", "duplicated", "out_of_order", "wrong", "wrong_state"):
            setattr(self, kind, getattr(self, kind) + getattr(other, kind))
        if other.total:
            self.examples += other.examples[: self.EXAMPLES_MAX - len(self.examples)]

    @property
    def total(self) -> int:
        return self.lost + self.duplicated + self.out_of_order + self.wrong + self.wrong_state
