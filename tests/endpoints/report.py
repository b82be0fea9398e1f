"""What trials found, and the table of docs/faults.md that is made of it: ``python -m
tests.endpoints.report [--check]``.

Figures are never typed by hand: trials with ``--record`` append a line to ``results.jsonl``.

Where it runs: the verifier, or a process of its own.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from wallaroo.options import HostKind

RESULTS = Path(__file__).with_name("results.jsonl")
PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
BEGIN, END = "<!-- endpoints: begin -->", "<!-- endpoints: end -->"


@dataclass(frozen=True, slots=True)
class Result:
    """One trial."""

    ends: str
    seed: int
    seconds: int
    starts: int
    events: int
    outputs: int
    faults: dict[str, int]
    lost: int
    duplicated: int
    out_of_order: int
    wrong: int
    unexplained: list[str]
    host: str = HostKind.MICRO_BATCH.value  # or resident, in-process
    readings: int = 0  # of tables, while they were written

    @property
    def row(self) -> str:
        """Which row of the table it belongs to."""
        host = "" if self.host == HostKind.MICRO_BATCH else f" ({self.host})"
        return self.ends.replace("-", ", ") + host

    @property
    def is_clean(self) -> bool:
        """Whether it is exactly once, and nothing ended that was not disturbed."""
        return bool(self.faults) and not self.unexplained and not self.has_wrong_output

    @property
    def verdict(self) -> str:
        """What was proved."""
        if self.is_clean:
            return "exactly once"
        is_undisturbed = not (self.faults or self.unexplained or self.has_wrong_output)
        return "none: nothing was disturbed" if is_undisturbed else "NOT exactly once"

    @property
    def has_wrong_output(self) -> bool:
        """Whether anything came out that must not, or did not that must."""
        return bool(self.lost or self.duplicated or self.out_of_order or self.wrong)

    def __str__(self) -> str:
        lines = [
            f"{self.ends} on {self.host}, seed {self.seed}: {sum(self.faults.values())} faults in "
            f"{self.seconds} s, {self.starts} starts",
            "  " + ", ".join(f"{name} {count}" for name, count in self.faults.items()),
            f"  events {self.events:,}  outputs {self.outputs:,}  readings {self.readings:,}  "
            f"lost {self.lost:,}  duplicated {self.duplicated:,}  "
            f"out of order {self.out_of_order:,}  wrong {self.wrong:,}",
            *(f"  {line}" for line in self.unexplained),
            f"  verdict: {self.verdict}",
        ]
        return "\n".join(lines)


def record(result: Result) -> None:
    """Keep a result, and write the table."""
    with RESULTS.open("a") as file:
        file.write(json.dumps(asdict(result)) + "\n")
    PAGE.write_text(page())


def results() -> list[Result]:
    """Return what is kept."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return [Result(**json.loads(line)) for line in lines]


def page() -> str:
    """Return the page as it should be."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    found = results()
    return f"{before}{BEGIN}\n\n{table(found)}\n\n{readings(found)}\n\n{END}{after}"


def table(found: list[Result]) -> str:
    """A row per pair of ends."""
    lines = [
        "| from, to | faults | of them | events | lost | duplicated | out of order | wrong |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    rows = list(dict.fromkeys(result.row for result in found))
    for name in rows:
        lines.append(_row(name, [each for each in found if each.row == name]))
    if len(rows) > 1:
        lines.append(_row("all", found))
    return "\n".join(lines)


def readings(found: list[Result]) -> str:
    """Sum up the trials whose tables were read while they were written."""
    read = [result for result in found if result.readings]
    faults: Counter[str] = Counter()
    for result in read:
        faults.update(result.faults)
    kills = sum(count for kind, count in faults.items() if kind.endswith(" killed"))
    amiss = sum(each.lost + each.duplicated + each.out_of_order + each.wrong for each in read)
    return (
        f"In {len(read)} of these trials tables and folders were read while they were written: "
        f"{sum(result.readings for result in read):,} readings, during {faults.total():,} faults, "
        f"{kills:,} of them kills, and one at the end of each, found {amiss:,} rows that were "
        f"missing, doubled, out of order or wrong."
    )


def _row(name: str, found: list[Result]) -> str:
    kinds: Counter[str] = Counter()
    for result in found:
        kinds.update(result.faults)
    of_them = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    figures = [
        sum(result.events for result in found),
        sum(result.lost for result in found),
        sum(result.duplicated for result in found),
        sum(result.out_of_order for result in found),
        sum(result.wrong for result in found),
    ]
    rest = " | ".join(f"{figure:,}" for figure in figures)
    return f"| {name} | {kinds.total():,} | {of_them} | {rest} |"


def main() -> int:
    """Write the table, or only say whether it is as the results say."""
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text() == text else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
