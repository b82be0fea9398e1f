"""Order in event time: steps behind any number of shuffles see the events, timers, expiry and ends
of a key in the order that docs/time.md states, whatever the tasks, batches and attempts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.apps import in_time
from tests.conformance.apps.in_time import KINDS, Shape
from wallaroo.testing import LocalApplication

NOWHERE = Path("/nowhere")

stages = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 2)), min_size=1, max_size=3)
shapes = st.builds(Shape, stages.map(tuple), st.integers(1, 2), st.integers(0, 2))
events = st.lists(
    st.tuples(st.integers(0, 1), st.text("ab", min_size=3, max_size=3), st.integers(0, 30)),
    min_size=1,
    max_size=40,
)


def lines_of(shape: Shape, drawn: list[tuple[int, str, int]], drift: int) -> list[tuple[int, str]]:
    return [
        (source % shape.sources, f"{keys} {at + number * drift} {number}")
        for number, (source, keys, at) in enumerate(drawn)
    ]


def per_key(shape: Shape, texts: list[str]) -> dict[str, list[str]]:
    """Outputs of each key of the last stage, in order."""
    key = shape.stages[-1][1]
    return {own: [text for text in texts if text[key] == own] for own in "ab"}


@settings(max_examples=100, deadline=None)
@given(shape=shapes, drawn=events, drift=st.integers(0, 2), data=st.data())
def test_a_key_sees_one_order_whatever_the_tasks_and_batches(
    shape: Shape, drawn: list[tuple[int, str, int]], drift: int, data: Any
) -> None:
    lines = lines_of(shape, drawn, drift)
    running = LocalApplication(in_time.application(shape, NOWHERE, NOWHERE))
    for source, line in lines:
        running.send(("in", "in2")[source], line.encode())
    while running.waiting:
        count = data.draw(st.integers(1, len(lines)), "events of a batch")
        tasks = data.draw(st.integers(1, 4), "tasks")
        if data.draw(st.booleans(), "dies at first"):
            running.attempt(count, tasks)
        running.batch(count, tasks)
    running.end()

    found = [output.decode().strip() for output in running.result().outputs]

    assert per_key(shape, found) == per_key(shape, in_time.expected(shape, lines))
