"""The tables of docs/scaling-figures.md."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.lib.machine import Figure, Machine
from benchmarks.pages import scaling_page
from benchmarks.pages.scaling_page import pivoted


def report_of(name: str, *figures: Figure) -> tuple[str, dict[str, Any]]:
    machine = Machine("a processor", 2, 4.0, "a system", "3.11", "17", "4.3", 0.1)
    fields = [asdict(figure) for figure in figures]
    command = f"python -m benchmarks.{name} --json out.json"
    report = {
        "benchmark": name,
        "command": command,
        "began": "today",
        "machine": asdict(machine),
        "figures": fields,
        "notes": ["so"],
    }
    return "short", report


def test_rows_with_the_same_columns_share_a_table() -> None:
    figures = [
        Figure("one: time", 1.5, "s"),
        Figure("all: size", 7.0, "MB"),
        Figure("two: time", 2.5, "s"),
    ]
    assert pivoted(figures) == [
        "| | time, s |\n|---|---:|\n| one | 1.5 |\n| two | 2.5 |",
        "| | size, MB |\n|---|---:|\n| all | 7 |",
    ]


def test_a_missed_target_is_said_beside_its_figure() -> None:
    figures = [
        Figure("one: time", 3.0, "s", at_most=2.0),
        Figure("two: time", 1.0, "s", at_most=2.0),
    ]
    assert pivoted(figures)[0].endswith("| one | 3 (wanted <= 2) |\n| two | 1 |")


def test_the_page_has_its_benchmarks_in_its_own_order_and_says_what_is_missing() -> None:
    text = scaling_page.markdown(
        [
            report_of("moving", Figure("one: time", 1.0, "s")),
            report_of("latency"),
            report_of("placement"),
        ]
    )
    assert [line for line in text.splitlines() if line.startswith("###")] == [
        "### placement",
        "### moving",
    ]
    assert "`python -m benchmarks.moving`, today, short form." in text
    missing = scaling_page.BENCHMARKS[2:]
    assert text.endswith(
        f"Not measured yet: {', '.join(missing)}. Run `python -m benchmarks {' '.join(missing)}`."
    )
