"""A run under faults is compared with one without."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from wallaroo.errors import WallarooParameterError
from wallaroo.testing.verify.baseline import Observed, compare
from wallaroo.testing.verify.trial.result import Faults


class Counter:
    """A state object that compares by identity."""

    def __init__(self, count: int):
        self.count = count


class Mine(Observed):
    module = "my_app"
    sources = ("In",)
    lines = {"In": [b"one", b"two", b"three"]}  # as the command line makes it
    key = r"^\w+"


def observed(lines: Iterable[bytes], states: dict[object, object] | None = None) -> Mine:
    made = Mine(1)
    made.judge(lines, Faults())
    made.judge_state((states or {}).items(), Faults())
    return made


def faults_of(found: Mine, undisturbed: Mine) -> Faults:
    faults = Faults()
    compare(found, undisturbed, faults)
    return faults


def test_input_is_a_file_again_and_again() -> None:
    """However it is cut into portions."""
    made = Mine(1)
    payloads = made.payloads("In", 2) + made.payloads("In", 3)
    assert payloads == [b"one", b"two", b"three", b"one", b"two"]


def test_keys_may_interleave_otherwise_and_states_are_compared_by_what_they_hold() -> None:
    """Two runs shuffle keys into each other as it happens."""
    one = observed([b"a 1", b"b 1", b"a 2"], {"a": Counter(2)})
    other = observed([b"b 1", b"a 1", b"a 2"], {"a": Counter(2)})
    assert faults_of(one, other).total == 0


def test_every_difference_is_named() -> None:
    """By what it is."""
    undisturbed = observed([b"a 1", b"a 2", b"b 1"], {"a": Counter(2), "b": Counter(1)})
    found = observed([b"a 1", b"a 1", b"b 1", b"c 7"], {"a": Counter(3)})
    faults = faults_of(found, undisturbed)
    assert (faults.lost, faults.duplicated, faults.wrong) == (1, 1, 1)
    assert faults.wrong_state == 2
    assert any("Counter(count=3), must be Counter(count=2)" in line for line in faults.examples)
    swapped = faults_of(observed([b"a 2", b"a 1", b"b 1"]), observed([b"a 1", b"a 2", b"b 1"]))
    assert (swapped.out_of_order, swapped.total) == (1, 1)


def test_lines_without_a_key_have_no_order() -> None:
    one = observed([b"a 1", b"-", b"--"])
    other = observed([b"--", b"-", b"a 1"])
    assert faults_of(one, other).total == 0


def test_a_pattern_that_finds_no_key_is_reported() -> None:
    with pytest.raises(WallarooParameterError, match="finds no key in 2 output lines"):
        faults_of(observed([b"-", b"--"]), observed([b"-", b"--"]))
