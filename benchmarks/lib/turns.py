"""Contestants that take turns, round after round, as medians, and as ratios within the rounds.

Where it runs: the benchmark's process.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from benchmarks.engine.event_cost import Cost
from benchmarks.lib.machine import Report, median

PLAIN = "plain PySpark"


def add_rounds(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--rounds``."""
    parser.add_argument("--rounds", type=int, default=1, help="turns of each, default %(default)d")


class Turns:
    """Costs by contestant, one for each round; ``event`` is the noun for what they process."""

    def __init__(self, report: Report, event: str):
        self._report = report
        self._event = event
        self._costs: dict[str, list[Cost]] = {}

    def add(self, who: str, cost: Cost) -> None:
        """Add a contestant's turn, and print it."""
        self._costs.setdefault(who, []).append(cost)
        kinds = ", ".join(f"{kind} {us:.2f}" for kind, us in cost.cpu_us.items())
        self._report.notes.append(f"{who}, CPU in us per {self._event}: {kinds}")
        print(f"{who}: {cost.events_per_s:,.0f} {self._event}s/s", flush=True)

    def finish(
        self, against: Mapping[str, str], wanted: float | None = None, note: str = ""
    ) -> None:
        """Add all figures; ``against``: by contestant the one that it is compared with.

        ``wanted`` is the rate that those compared are to reach; ``note`` is about the CPU time.
        """
        for who, costs in self._costs.items():
            rate = median(cost.events_per_s for cost in costs)
            at_least = wanted if who in against else None
            self._report.add(f"{who}: {self._event}s/s", rate, "", at_least=at_least)
            spent_us = median(cost.total_us for cost in costs)
            self._report.add(f"{who}: CPU per {self._event}{note}", spent_us, "us")
        for who, other in against.items():
            pairs = list(zip(self._costs[who], self._costs[other], strict=True))
            rates = median(ours.events_per_s / theirs.events_per_s for ours, theirs in pairs)
            self._report.add(f"{who} beside {other}: rate", rates, "x")
            spent = median(ours.total_us / theirs.total_us for ours, theirs in pairs)
            self._report.add(f"{who} beside {other}: CPU", spent, "x")
