"""The figures of docs/faults.md: sums of what runs wrote, put between the page's marks."""

from __future__ import annotations

from typing import Any

from benchmarks.pages.faults_page import (
    BEGIN,
    END,
    OWNED,
    PAGE,
    SIMULATED,
    VERIFIED,
    page,
    read,
    with_figures,
)

RUN: dict[str, Any] = {
    "host": "in-process",
    "receiver": "resuming",
    "processes": {"driver": 2, "egress": 1000},
    "deeds": {"kill": 1002, "eio": 3},
    "disturbances": 1005,
    "starts": 3,
    "events": 10,
    "outputs": 10,
    "repeated": 0,
    "lost": 0,
    "duplicated": 0,
    "out_of_order": 0,
    "wrong": 0,
    "ended_by_itself": 0,
}
HISTORIES: dict[str, Any] = {
    "points": False,
    "runs": 7,
    "starts": 9,
    "batches": 11,
    "calls": 13,
    "faults": {"disk full": 2},
    "problems": 0,
}
TAKE_OVERS: dict[str, Any] = {
    "host": "resident, cluster",
    "load": 2.1,
    "without output, ms": {"killed": [2500, None, 1500], "hangs": [None]},
}


def test_runs_of_a_host_are_added_up() -> None:
    text = page([RUN, RUN], [HISTORIES, {**HISTORIES, "points": True}], [TAKE_OVERS])
    assert "| in-process | 2 | 4 | 0 | 0 | 0 | 0 | 0 | 2,000 | 2,004 |" in text
    assert "| in-process | 0 | 6 | 0 | 0 | 0 | 0 |" in text
    assert "| resuming | 2 | 2,010 | 6 | 20 | 20 | 0 | 0 | 0 | 0 | 0 | 0 |" in text
    assert "| by seed | 7 | 9 | 11 | 13 | 2 | 0 |" in text
    assert "Their faults: disk full 4." in text
    assert "| resident, cluster | 2.1 | killed | 3 | 1.5 | 2.0 | 2.5 |" in text
    assert "| resident, cluster | 2.1 | hangs | 1 | - | - | - |" in text


def test_only_what_is_between_the_marks_changes() -> None:
    assert with_figures(f"a {BEGIN} old {END} b", "new") == f"a {BEGIN}\n\nnew\n\n{END} b"


def test_the_page_says_what_the_results_say() -> None:
    """Written by ``python -m benchmarks.pages.faults_page``."""
    text = PAGE.read_text()
    assert text == with_figures(text, page(read(VERIFIED), read(SIMULATED), read(OWNED)))
