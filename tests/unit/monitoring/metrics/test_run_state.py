"""The states of a run: what may follow on what."""

from __future__ import annotations

import json

import pytest

from wallaroo.errors import InternalError
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.status import TRANSITIONS, RunState

ENDS = (RunState.STOPPED, RunState.FINISHED, RunState.FAILED)


@pytest.mark.parametrize("end", ENDS)
def test_a_run_passes_through_its_states_in_order(end: RunState) -> None:
    """A run that has started stops before it ends, however it ends."""
    meter = RunMeter("app", 0.0)
    seen = [meter.status(0.0).state]

    for state in (RunState.RUNNING, RunState.STOPPING, end):
        meter.enter(state)
        seen.append(meter.status(0.0).state)

    assert seen == ["starting", "running", "stopping", end.value]


@pytest.mark.parametrize(
    ("state", "next_state"),
    [
        (state, next_state)
        for state in RunState
        for next_state in RunState
        if next_state not in TRANSITIONS[state]
    ],
)
def test_any_other_change_of_state_is_an_error_of_ours(
    state: RunState, next_state: RunState
) -> None:
    """The error names both states, and an ended run has no next one."""
    with pytest.raises(InternalError, match=f"that is {state} cannot become {next_state}"):
        state.to(next_state)


def test_a_refused_change_leaves_the_state() -> None:
    """A run that has not started to run cannot stop."""
    meter = RunMeter("app", 0.0)
    with pytest.raises(InternalError, match="that is starting cannot become stopping"):
        meter.enter(RunState.STOPPING)
    assert meter.status(0.0).state is RunState.STARTING


def test_nothing_follows_on_an_end() -> None:
    """A run ends once."""
    assert [state for state in RunState if not TRANSITIONS[state]] == list(ENDS)


def test_states_are_words_outside() -> None:
    """JSON and text show the word, not the member's name."""
    assert json.dumps([*RunState]) == (
        '["starting", "standby", "running", "stopping", "stopped", "finished", "failed"]'
    )
    assert f"{RunState.RUNNING}" == "running"
