"""Tables and charts of benchmarks/ and of a page of docs/, from the reports in ``results/``.

    python -m benchmarks.pages.report [--check]

README.md has the headlines and the charts, figures.md all figures.  None is typed by hand.
``results/full`` counts, benchmark by benchmark; if it has none, ``results/short`` does, and the
table says so.

Where it runs: a process of its own, or at the end of ``benchmarks.run_all``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.lib.machine import Figure, Machine, number, table
from benchmarks.pages import charts, headlines, nexmark_page, scaling_page

PEER = re.compile(r"(--(?:bytewax|quix)) \S+")  # and the Python in which it is installed
BENCHMARKS = Path(__file__).parents[1]
RESULTS = BENCHMARKS / "results"
HEADLINES = BENCHMARKS / "README.md"
FIGURES = BENCHMARKS / "figures.md"
CHARTS = BENCHMARKS / "charts"
# Figures of clusters are on the page that explains clusters.
SCALING = BENCHMARKS.parent / "docs" / "scaling-figures.md"
NEXMARK = BENCHMARKS / "nexmark.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def main() -> int:
    """Write the pages, or only report whether they are current."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit with 1 if a page or chart is not current",
    )
    if parser.parse_args().check:
        return 0 if all(_is_current(page, text) for page, text in pages().items()) else 1
    write_table()
    return 0


def write_table() -> None:
    """Replace the tables in their pages, and the charts."""
    CHARTS.mkdir(exist_ok=True)
    for page, text in pages().items():
        page.write_text(text)


def pages() -> dict[Path, str]:
    """Return the pages and charts as the reports have them."""
    reports = load()
    content = {name: report for name, (_, report) in reports.items()}
    every = list(reports.values())
    elsewhere = (*scaling_page.BENCHMARKS, *nexmark_page.BENCHMARKS)
    others = [report for report in every if report[1]["benchmark"] not in elsewhere]
    table = headlines.markdown(content, lambda report: _without_paths(report["command"]))
    return {
        HEADLINES: with_table(HEADLINES.read_text(), table),
        FIGURES: with_table(FIGURES.read_text(), markdown(others)),
        NEXMARK: with_table(NEXMARK.read_text(), nexmark_page.markdown(every)),
        SCALING: with_table(SCALING.read_text(), scaling_page.markdown(every)),
    } | {CHARTS / name: charts.drawn(chart, content) for name, chart in charts.CHARTS.items()}


def _is_current(page: Path, text: str) -> bool:
    return page.exists() and page.read_text() == text


def load() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the newest form of each benchmark's report, as ``(form, report)``, by name."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for form in ("short", "full"):
        for file in sorted((RESULTS / form).glob("*.json")):
            found[file.stem] = (form, json.loads(file.read_text()))
    return dict(sorted(found.items()))


def markdown(reports: list[tuple[str, dict[str, Any]]]) -> str:
    """One table per benchmark, with its machine and its command."""
    if not reports:
        return "No results yet: run `make bench`."
    return "\n\n".join(_section(form, report) for form, report in reports)


def _section(form: str, report: dict[str, Any]) -> str:
    lines = [
        f"### {report['benchmark']}",
        "",
        f"`{_without_paths(report['command'])}`, {report['began']}, {form} form.",
        "",
    ]
    lines += [
        f"{Machine(**report['machine'])}.",
        "",
        "| figure | value | unit | target | |",
        "|---|---:|---|---|---|",
    ]
    for figure in (Figure(**fields) for fields in report["figures"]):
        lines.append(
            f"| {figure.name} | {number(figure.value)} | {figure.unit} | {figure.target} | "
            f"{figure.verdict} |"
        )
    notes = [f"* {note}" for note in report["notes"]]
    return "\n".join([*lines, "", *notes]).rstrip()


def _without_paths(command: str) -> str:
    """A command as it is on any machine."""
    return PEER.sub(r"\1 PYTHON", command.partition(" --json ")[0])


def with_table(text: str, tables: str) -> str:
    """Put the tables between the two marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def summary(folder: Path) -> str:
    """All figures that have a target, of the reports in one folder."""
    rows = []
    for file in sorted(folder.glob("*.json")):
        report = json.loads(file.read_text())
        for figure in (Figure(**fields) for fields in report["figures"]):
            if figure.target:
                name = f"{report['benchmark']}: {figure.name}"
                rows.append(
                    (name, number(figure.value), figure.unit, figure.target, figure.verdict)
                )
    return table(("", "value", "unit", "target", ""), rows)


if __name__ == "__main__":
    sys.exit(main())
