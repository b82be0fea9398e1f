"""The table of faults between systems is what trials recorded."""

from __future__ import annotations

from dataclasses import replace

from tests.endpoints.report import PAGE, Result, page, results, table

RESULT = Result(
    ends="kafka-file",
    seed=1,
    seconds=10,
    starts=2,
    events=1000,
    outputs=1000,
    faults={"worker killed": 2, "worker held": 1},
    lost=0,
    duplicated=0,
    out_of_order=0,
    wrong=0,
    unexplained=[],
)


def test_the_page_has_the_table_of_the_results() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.endpoints.report"


def test_what_is_recorded_was_exactly_once() -> None:
    assert all(result.is_clean for result in results())


def test_results_of_a_pair_of_ends_are_one_row() -> None:
    other = replace(RESULT, ends="tcp-tcp", faults={"worker killed": 7})
    lines = table([RESULT, RESULT, other]).splitlines()
    assert lines[2:] == [
        "| kafka, file | 6 | worker held 2, worker killed 4 | 2,000 | 0 | 0 | 0 | 0 |",
        "| tcp, tcp | 7 | worker killed 7 | 1,000 | 0 | 0 | 0 | 0 |",
        "| all | 13 | worker held 2, worker killed 11 | 3,000 | 0 | 0 | 0 | 0 |",
    ]


def test_a_loss_or_an_end_without_a_cause_is_not_clean() -> None:
    assert RESULT.is_clean
    assert not replace(RESULT, lost=1).is_clean
    assert not replace(RESULT, unexplained=["start 1: 1"]).is_clean
    assert not replace(RESULT, faults={}).is_clean


def test_a_trial_without_faults_proved_nothing_and_shows_no_mistake() -> None:
    """Where the machine was so busy that time was over before the first fault."""
    undisturbed = replace(RESULT, faults={})
    assert undisturbed.verdict == "none: nothing was disturbed"
    assert replace(undisturbed, duplicated=1).verdict == "NOT exactly once"
    assert replace(RESULT, unexplained=["start 1: 1"]).verdict == "NOT exactly once"
    assert RESULT.verdict == "exactly once"
