"""The table of faults between systems is what trials recorded."""

from __future__ import annotations

from dataclasses import replace

from tests.endpoints.report import PAGE, Result, page, readings, results, table

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
    apart = replace(RESULT, host="in-process")
    lines = table([RESULT, RESULT, apart, other]).splitlines()
    assert lines[2:] == [
        "| kafka, file | 6 | worker held 2, worker killed 4 | 2,000 | 0 | 0 | 0 | 0 |",
        "| kafka, file (in-process) | 3 | worker held 1, worker killed 2 | 1,000 | 0 | 0 | 0 | 0 |",
        "| tcp, tcp | 7 | worker killed 7 | 1,000 | 0 | 0 | 0 | 0 |",
        "| all | 16 | worker held 3, worker killed 13 | 4,000 | 0 | 0 | 0 | 0 |",
    ]


def test_readings_of_tables_are_summed_up_with_the_kills_meanwhile() -> None:
    watched = replace(RESULT, readings=1500, faults={"worker killed": 2, "S3 server held": 3})
    assert readings([RESULT, watched, replace(watched, lost=1)]) == (
        "In 2 of these trials tables and folders were read while they were written: 3,000 "
        "readings, during 10 faults, 4 of them kills, and one at the end of each, found 1 rows "
        "that were missing, doubled, out of order or wrong."
    )


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
