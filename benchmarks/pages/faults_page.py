"""Write the figures of docs/faults.md from what verifications and simulations wrote as JSON.

    python -m benchmarks.pages.faults_page [--check]

``results/faults.jsonl`` has a line for each run of ``wallaroo verify``,
``results/simulation.jsonl`` one for each of ``make simulate``, ``results/owners.jsonl`` one for
each of ``python -m tests.faults.owners --json``.  Nothing in the tables is typed by hand.

Where it runs: a process of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
VERIFIED, SIMULATED = RESULTS / "faults.jsonl", RESULTS / "simulation.jsonl"
OWNED = RESULTS / "owners.jsonl"
PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
KINDS = ("driver", "jvm", "worker", "daemon", "planner", "ingress", "egress")
OF_CLUSTERS = {
    "workers joined": ("grow1", "grow2", "revive"),
    "workers left": ("shrink1", "shrink2"),
    "master killed": ("master",),
}
OF_DISKS = ("enospc", "eio", "torn", "clock", "flip", "partition")
WRONG = ("lost", "duplicated", "out_of_order", "wrong", "ended_by_itself")

Run = dict[str, Any]


def main() -> int:
    """Write the tables, or only say whether they are as the results say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where they differ")
    args = parser.parse_args()
    before = PAGE.read_text(encoding="utf-8")
    after = with_figures(before, page(read(VERIFIED), read(SIMULATED), read(OWNED)))
    if args.check:
        return int(before != after)
    PAGE.write_text(after, encoding="utf-8")
    return 0


def read(file: Path) -> list[Run]:
    """Read a line of JSON for each run; none where there is no file."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def with_figures(text: str, figures: str) -> str:
    """Put the figures between their marks."""
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    return f"{head}{BEGIN}\n\n{figures}\n\n{END}{tail}"


def page(verified: list[Run], simulated: list[Run], owned: list[Run]) -> str:
    """Return all tables."""
    return "\n\n".join([*_verified(verified), *_simulated(simulated), *_owned(owned)])


def _owned(runs: list[Run]) -> list[str]:
    if not runs:
        return []
    rows = [
        [run["host"], run["load"], fault, len(pauses), *_seconds(pauses)]
        for run in runs
        for fault, pauses in run["without output, ms"].items()
    ]
    return [
        "Take-overs by a standby (`python -m tests.faults.owners --cluster`), after each of which "
        "every event had left once; seconds from the fault to the next output, if some was to "
        "come. The load is that before the campaign's own:",
        _table(["host", "load", "leader", "times", "least, s", "median, s", "most, s"], rows),
    ]


def _seconds(pauses: list[int | None]) -> list[float | str]:
    known = sorted(each / 1e3 for each in pauses if each is not None)
    if not known:
        return ["-"] * 3
    return [round(each, 1) for each in (known[0], median(known), known[-1])]


def _verified(runs: list[Run]) -> list[str]:
    if not runs:
        return []
    hosts = sorted({run["host"] for run in runs})
    of_host = {host: [run for run in runs if run["host"] == host] for host in hosts}
    of_process = {host: _added(of_host[host], "processes") for host in hosts}
    rows = [
        [
            host,
            len(of_host[host]),
            *(of_process[host][kind] for kind in KINDS),
            sum(of_process[host].values()),
        ]
        for host in hosts
    ]
    totals = ["all", *(sum(row[at] for row in rows) for at in range(1, len(rows[0])))]
    deeds = {host: _added(of_host[host], "deeds") for host in hosts}
    changes = {host: _added(of_host[host], "changes") for host in hosts}
    others = [
        [
            host,
            *(deeds[host][deed] for deed in OF_DISKS),
            *(sum(changes[host][name] for name in names) for names in OF_CLUSTERS.values()),
        ]
        for host in hosts
    ]
    receivers = sorted({run["receiver"] for run in runs})
    found = [
        _row_of(receiver, [run for run in runs if run["receiver"] == receiver])
        for receiver in receivers
    ]
    return [
        "Processes killed, held with SIGSTOP for seconds, or asked to stop, by role:",
        _table(["host", "runs", *KINDS, "sum"], [*rows, totals]),
        "Other faults (writes that fail or are torn, clocks that jump, bits flipped between two "
        "starts, networks that are cut, clusters that change):",
        _table(["host", *OF_DISKS, *OF_CLUSTERS], others),
        "The results of all of these, by the receiver of TCP output. A plain receiver may get "
        "outputs again where a connection broke; none may be lost:",
        _table(
            [
                "receiver",
                "runs",
                "faults",
                "starts",
                "events",
                "outputs",
                "repeated",
                "lost",
                "doubled",
                "reordered",
                "wrong",
                "ends unexplained",
            ],
            found,
        ),
    ]


def _row_of(receiver: str, runs: list[Run]) -> list[Any]:
    figures = ("disturbances", "starts", "events", "outputs", "repeated", *WRONG)
    return [receiver, len(runs), *(sum(run[name] for run in runs) for name in figures)]


def _simulated(runs: list[Run]) -> list[str]:
    if not runs:
        return []
    groups = {
        "by seed": [run for run in runs if not run["points"]],
        "a fault at every system call": [run for run in runs if run["points"]],
    }
    faults = _added(runs, "faults").most_common()
    named = ", ".join(f"{name} {count:,}" for name, count in faults)
    return [
        "Simulated histories (`make simulate`):",
        _table(
            ["", "histories", "starts", "batches", "system calls", "faults", "problems"],
            [_simulated_row(what, chosen) for what, chosen in groups.items() if chosen],
        ),
        f"Their faults: {named}.",
    ]


def _simulated_row(what: str, runs: list[Run]) -> list[Any]:
    figures = (sum(run[name] for run in runs) for name in ("runs", "starts", "batches", "calls"))
    faults = sum(_added(runs, "faults").values())
    return [what, *figures, faults, sum(run["problems"] for run in runs)]


def _added(runs: Iterable[Run], name: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for run in runs:
        counts.update(run.get(name, {}))  # earlier lines have no changes
    return counts


def _table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
    lines += [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
