"""The tables of docs/scaling-figures.md, from its benchmarks' reports: figures named "row: column"
become rows and columns.

Where it runs: pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.lib.machine import Figure, Machine, number

BENCHMARKS = (  # in the order of the page
    *("placement", "moving", "moving_low"),
    *("scale_out", "scale_out_micro_batch", "cluster_beside"),
)


def markdown(reports: Iterable[tuple[str, dict[str, Any]]]) -> str:
    """Return what is between the page's marks; ``reports`` are (form, report)."""
    by_name = {report["benchmark"]: (form, report) for form, report in reports}
    sections = [_section(*by_name[name]) for name in BENCHMARKS if name in by_name]
    missing = [name for name in BENCHMARKS if name not in by_name]
    if missing:
        sections.append(
            f"Not measured yet: {', '.join(missing)}. Run `python -m benchmarks "
            f"{' '.join(missing)}`."
        )
    return "\n\n".join(sections)


def _section(form: str, report: dict[str, Any]) -> str:
    lines = [
        f"### {report['benchmark']}",
        "",
        f"`{report['command'].partition(' --json ')[0]}`, {report['began']}, {form} form.",
        "",
    ]
    lines += [f"{Machine(**report['machine'])}.", ""]
    lines += [f"{table}\n" for table in pivoted([Figure(**fields) for fields in report["figures"]])]
    lines += [f"* {note}" for note in report["notes"]]
    return "\n".join(lines).rstrip()


def pivoted(figures: Sequence[Figure]) -> list[str]:
    """Return one table for all rows that have the same columns, in order of their first figure.

    >>> rows = [Figure("two: time", 2.0, "s"), Figure("two: size", 5.0, "MB")]
    >>> rows += [Figure("six: time", 6.0, "s"), Figure("six: size", 9.0, "MB")]
    >>> print(*pivoted(rows))
    | | time, s | size, MB |
    |---|---:|---:|
    | two | 2 | 5 |
    | six | 6 | 9 |
    """
    rows: dict[str, dict[str, str]] = {}
    for figure in figures:
        row, _, column = figure.name.rpartition(": ")
        missed = f" (wanted {figure.target})" if figure.verdict == "missed" else ""
        rows.setdefault(row, {})[f"{column}, {figure.unit}" if figure.unit else column] = (
            number(figure.value) + missed
        )
    tables: dict[tuple[str, ...], list[str]] = {}
    for row, cells in rows.items():
        tables.setdefault(tuple(cells), []).append(f"| {' | '.join([row, *cells.values()])} |")
    return [
        "\n".join(
            [
                f"| {' | '.join(['', *columns])} |".replace("|  |", "| |"),
                _rule(len(columns)),
                *lines,
            ]
        )
        for columns, lines in tables.items()
    ]


def _rule(columns: int) -> str:
    return "|---|" + "---:|" * columns
