"""Any split into batches, any number of tasks and any crash point give the output and the state of
one undisturbed run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import wallaroo
from tests.conformance.apps import detector, properties
from wallaroo.api.application import Application
from wallaroo.testing import LocalApplication

KEYS = ("a", "b", "c", "d", "", "é")
events = st.lists(st.sampled_from(KEYS), max_size=40)
CRASH = "crash"  # an attempt that processes everything and dies before its commit
disturbances = st.lists(
    st.tuples(
        st.integers(min_value=1, max_value=9),  # inputs in the batch
        st.integers(min_value=1, max_value=6),  # tasks
        st.sampled_from(["commit", CRASH, CRASH]),
    ),
    max_size=30,
)
Disturbances = list[tuple[int, int, str]]


def undisturbed(
    application: Application, lines: list[bytes], steps: tuple[str, ...]
) -> tuple[list[bytes], Any]:
    running = LocalApplication(application, tasks=1)
    running.send("in", *lines)
    running.batch()
    return running.result().outputs, {step: contents(running, step) for step in steps}


def disturbed(
    application: Application, lines: list[bytes], steps: tuple[str, ...], history: Disturbances
) -> tuple[list[bytes], Any]:
    """Play the history, then process what is left, one input a batch."""
    running = LocalApplication(application)
    running.send("in", *lines)
    for size, tasks, end in history:
        if end == CRASH:
            running.attempt(size, tasks)
        else:
            running.batch(size, tasks)
    while running.waiting:
        running.batch(7, 3)
    return running.result().outputs, {step: contents(running, step) for step in steps}


def contents(running: LocalApplication, step: str) -> dict[Any, Any]:
    return {key: vars(state) for key, state in running.result().state(step).items()}


def by_key(outputs: list[bytes]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = defaultdict(list)
    for output in outputs:
        key, _, rest = output.partition(b" ")
        found[key].append(rest)
    return dict(found)


def check(
    build: Callable[[], Application],
    lines: list[bytes],
    steps: tuple[str, ...],
    history: Disturbances,
) -> None:
    expected, expected_state = undisturbed(build(), lines, steps)
    outputs, state = disturbed(build(), lines, steps, history)
    assert by_key(outputs) == by_key(expected)
    assert state == expected_state


@given(events, disturbances)
def test_running_totals_do_not_depend_on_batches_tasks_and_crashes(
    keys: list[str], history: Disturbances
) -> None:
    lines = [key.encode() for key in keys]

    check(properties.totals, lines, ("total",), history)

    outputs, _ = disturbed(properties.totals(), lines, ("total",), history)
    assert by_key(outputs) == {
        key.encode(): [b"%d" % number for number in range(1, keys.count(key) + 1)]
        for key in set(keys)
    }


@given(events, disturbances)
def test_sequence_windows_do_not_depend_on_batches_tasks_and_crashes(
    keys: list[str], history: Disturbances
) -> None:
    lines, seen = [], defaultdict[str, int](int)
    for key in keys:
        seen[key] += 1
        lines.append(f"{seen[key]} {key}".encode())

    check(
        lambda: detector.build_for(wallaroo.StdoutSinkConfig(detector.encode), depth=2),
        lines,
        ("window 1", "window 2"),
        history,
    )


@given(events, disturbances)
def test_a_second_stage_sees_mutable_outputs_as_they_were_emitted(
    keys: list[str], history: Disturbances
) -> None:
    """The first state step emits its own state object, again and again; the second one keeps what
    it was given.
    """
    lines = [key.encode() for key in keys]

    check(properties.handed_on, lines, ("tally", "kept"), history)

    outputs, _ = disturbed(properties.handed_on(), lines, ("tally", "kept"), history)
    assert by_key(outputs) == {
        key.encode(): [
            b",".join(b"%d" % n for n in range(1, last + 1))
            for last in range(1, keys.count(key) + 1)
        ]
        for key in set(keys)
    }


@given(events, disturbances)
def test_one_global_order_does_not_depend_on_batches_tasks_and_crashes(
    keys: list[str], history: Disturbances
) -> None:
    lines = [key.encode() for key in keys]

    outputs, _ = disturbed(properties.numbered(), lines, (), history)

    assert outputs == [f"{key} {number}".encode() for number, key in enumerate(keys, 1)]
