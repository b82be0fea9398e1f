"""The result of a verification: counts of faults, and its text.

Where it runs: pure.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from wallaroo.testing.verify.trial.processes import Kind
from wallaroo.testing.verify.trial.schedule import Fault


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


@dataclass(slots=True)
class Result:
    """A verification's figures; ``recoveries``: seconds from kill to commit and output."""

    case: str
    seed: int
    kills: dict[Kind, int] = field(default_factory=dict)
    recoveries: dict[Kind, list[float]] = field(default_factory=dict)
    # ends of the run that no kill of driver or JVM explains
    ended_by_itself: list[str] = field(default_factory=list)
    disturbances: int = 0  # kills, deaths at fault points, and changes of a cluster
    starts: int = 0
    events: int = 0
    outputs: int = 0
    injected: dict[Fault, int] = field(default_factory=dict)
    places: Counter[tuple[Fault, str]] = field(default_factory=Counter)  # all faults except signals
    refused: Counter[str] = field(default_factory=Counter)  # flips that a reader named, by kind
    unread: int = 0  # flips that no reader reported: rewritten with their files, or never read
    changes: Counter[str] = field(default_factory=Counter)  # by name: changes of a cluster
    repeated: int = 0  # outputs that a plain receiver got more than once
    letters: int = 0  # events that failed and became dead letters
    faults: Faults = field(default_factory=Faults)
    seconds: float = 0.0

    def note(self, kind: Kind, fault: Fault) -> None:
        self.kills[kind] += 1
        self.injected[fault] = self.injected.get(fault, 0) + 1
        self.disturbances += 1

    def note_fault(self, fault: Fault, place: str) -> None:
        """Count a fault to a disk, a clock, a file or the network."""
        self.injected[fault] = self.injected.get(fault, 0) + 1
        self.places[fault, place] += 1
        self.disturbances += 1

    @property
    def is_clean(self) -> bool:
        """Return whether there was a disturbance, without which nothing is proved, and no fault."""
        return self.faults.total == 0 and not self.ended_by_itself and self.disturbances > 0

    @property
    def verdict(self) -> str:
        """Return the verdict, which is the last line of the text."""
        if self.faults.total or self.ended_by_itself:
            return "NOT exactly once"
        if not self.disturbances:
            return (
                "none: nothing was killed, so nothing was proved. Give more --seconds, or leave "
                "--seconds out"
            )
        return "exactly once"

    def figures(self) -> dict[str, Any]:
        """Return the figures, for programs."""
        faults = self.faults
        return {
            "case": self.case,
            "seed": self.seed,
            "verdict": self.verdict,
            "disturbances": self.disturbances,
            "deeds": {fault.value: count for fault, count in self.injected.items()},
            "processes": {kind.value: count for kind, count in self.kills.items() if count},
            "places": [[fault.value, at, count] for (fault, at), count in self.places.items()],
            "changes": dict(self.changes),
            "refused": sum(self.refused.values()),
            "unread": self.unread,
            "starts": self.starts,
            "events": self.events,
            "outputs": self.outputs,
            "repeated": self.repeated,
            "lost": faults.lost,
            "duplicated": faults.duplicated,
            "out_of_order": faults.out_of_order,
            "wrong": faults.wrong + faults.wrong_state,
            "ended_by_itself": len(self.ended_by_itself),
            "seconds": round(self.seconds, 1),
        }

    def text(self) -> str:
        """Return the figures, examples of faults and the verdict as text."""
        kinds = ", ".join(f"{kind.value} {count}" for kind, count in self.kills.items() if count)
        faults = self.faults
        lines = [
            f"{self.case}, seed {self.seed}: {self.disturbances} faults in {self.seconds:.0f} s "
            f"({self._faults_text() or 'none'}), {self.starts} starts",
            f"  processes: {kinds or 'none'}",
            *self._places_lines(),
            f"  events {self.events:,}  outputs {self.outputs:,}"
            + (f"  dead letters {self.letters:,}" if self.letters else "")
            + (f"  repeated {self.repeated:,}" if self.repeated else ""),
            f"  lost {faults.lost:,}  duplicated {faults.duplicated:,}  out of order "
            f"{faults.out_of_order:,}  wrong {faults.wrong:,}  wrong state {faults.wrong_state:,}",
        ]
        for kind, took in self.recoveries.items():
            if took:
                ordered = sorted(took)
                median = ordered[len(ordered) // 2]
                most = ordered[-1]
                lines.append(
                    f"  recovery from the death of the {kind.value}: median {median:.1f} s, "
                    f"longest {most:.1f} s"
                )
        lines += [f"  the run ended unasked: {end}" for end in self.ended_by_itself]
        lines += [f"  {example}" for example in faults.examples]
        lines.append(f"  verdict: {self.verdict}")
        return "\n".join(lines)

    def _faults_text(self) -> str:
        named = [f"{fault.value} {count}" for fault, count in self.injected.items()]
        named += [f"{change} {count}" for change, count in self.changes.items()]
        others = self.disturbances - sum(self.injected.values()) - self.changes.total()
        return ", ".join([*named, *([f"other {others}"] if others else [])])

    def _places_lines(self) -> list[str]:
        """Return a line per fault that is not a signal, with the places it struck."""
        lines = []
        for fault in dict.fromkeys(fault for fault, _ in self.places):
            places = ", ".join(
                f"{place} {count}{self._refused_text(fault, place)}"
                for (one, place), count in sorted(self.places.items(), key=lambda item: item[0][1])
                if one is fault
            )
            lines.append(f"  {fault.value}: {places}")
        return lines

    def _refused_text(self, fault: Fault, place: str) -> str:
        count = self.refused[place] if fault is Fault.FLIP else 0
        return f" ({count} refused)" if count else ""
