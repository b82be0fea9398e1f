"""Write the tables of figures in README.md and docs/scaling.md from the JSON reports in
``results/``: ``python -m benchmarks.report [--check]``.

Figures are never typed by hand. ``results/full`` counts, benchmark by benchmark; where it has none,
``results/short`` does, and the table says so.

Where it runs: a process of its own, or at the end of ``benchmarks.run_all``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks import scaling_page
from benchmarks.machine import Figure, Machine, number, table

PEER = re.compile(r"(--(?:bytewax|quix)) \S+")  # and the Python in which it is installed
RESULTS = Path(__file__).with_name("results")
README = Path(__file__).with_name("README.md")
# what is measured of clusters is where it is used
SCALING = Path(__file__).parents[1] / "docs" / "scaling.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def main() -> int:
    """Write the tables, or only say whether they are as the reports say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit with 1 where a table is not up to date",
    )
    if parser.parse_args().check:
        return 0 if all(page.read_text() == text for page, text in pages().items()) else 1
    write_table()
    return 0


def write_table() -> None:
    """Replace the tables in their pages."""
    for page, text in pages().items():
        page.write_text(text)


def pages() -> dict[Path, str]:
    """The pages as they should be."""
    reports = load()
    others = [report for report in reports if report[1]["benchmark"] not in scaling_page.BENCHMARKS]
    return {
        README: with_table(README.read_text(), markdown(others)),
        SCALING: with_table(SCALING.read_text(), scaling_page.markdown(reports)),
    }


def load() -> list[tuple[str, dict[str, Any]]]:
    """The newest form of each benchmark's report, as ``(form, report)``, by name."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for form in ("short", "full"):
        for file in sorted((RESULTS / form).glob("*.json")):
            found[file.stem] = (form, json.loads(file.read_text()))
    return [found[name] for name in sorted(found)]


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
