"""What a verification that ended says, and whether it counts."""

from __future__ import annotations

from wallaroo.testing.verify.trial.processes import Kind
from wallaroo.testing.verify.trial.result import Result


def test_a_verification_that_killed_nothing_is_a_failure_and_no_verdict() -> None:
    result = Result("word_count", 1, dict.fromkeys(Kind, 0))
    assert not result.is_clean
    assert result.text().splitlines()[-1].startswith("  verdict: none: nothing was killed")


def test_a_verification_with_kills_and_no_faults_is_exactly_once() -> None:
    result = Result("word_count", 1, {Kind.DRIVER: 1}, disturbances=1)
    assert result.is_clean
    assert result.text().splitlines()[-1] == "  verdict: exactly once"


def test_a_fault_outweighs_that_nothing_was_killed() -> None:
    result = Result("word_count", 1)
    result.faults.note("lost", "the word 'be'")
    assert not result.is_clean
    assert result.text().splitlines()[-1] == "  verdict: NOT exactly once"
