"""The tables of benchmarks/nexmark.md, from the reports: a row per query, two columns per host, and
the share of the rate that is kept beside busy processes, if that was measured.

Where it runs: pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.lib.machine import Figure, Machine, number
from benchmarks.nexmark import flink

BENCHMARKS = ("nexmark", "nexmark_kafka")  # in the order of the page
BUSY = " beside busy processes"
CODE, CPU, RATE = "lines of code", "CPU per event", "events/s"


def markdown(reports: Iterable[tuple[str, dict[str, Any]]]) -> str:
    """Return what is between the page's marks; ``reports`` are (form, report)."""
    ours = [report for _, report in reports if report["benchmark"] in BENCHMARKS]
    ours.sort(key=lambda report: BENCHMARKS.index(report["benchmark"]))
    return "\n\n".join(map(_section, ours))


def _section(report: dict[str, Any]) -> str:
    settings = report["settings"]
    place = "Kafka" if settings["from_kafka"] else "a file"
    figures = {each["name"]: Figure(**each) for each in report["figures"]}
    hosts = [*settings["hosts"], *(who for who in flink.APIS if _has(figures, who))]
    columns = [f"{host}: {what}" for host in hosts for what in ("us of CPU per event", RATE)]
    busy = settings.get("busy", 0)
    kept = [host for host in settings["hosts"] if busy]
    columns += [f"{host}: rate kept beside {busy} busy processes" for host in kept]
    lines = [
        f"### {len(settings['queries'])} queries from {place}, {settings['events']:,} events",
        "",
        f"{report['began']}. {Machine(**report['machine'])}.",
        "",
        f"| query | {CODE} | {' | '.join(columns)} |",
        "|---" + "|---:" * (1 + len(columns)) + "|",
    ]
    for query in settings["queries"]:
        names = [f"{query}, {host}: {what}" for host in hosts for what in (CPU, RATE)]
        names += [f"{query}, {host}: rate kept{BUSY}" for host in kept]
        cells = [_cell(figures.get(name)) for name in (f"{query}: {CODE}", *names)]
        lines.append(f"| {query} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"* {note}" for note in report["notes"])])


def _has(figures: dict[str, Figure], host: str) -> bool:
    return any(f", {host}: " in name for name in figures)


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    return number(figure.value) + (" (missed)" if figure.verdict == "missed" else "")
