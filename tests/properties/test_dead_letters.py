"""Dead letters do not depend on how a stream falls into batches and tasks, nor on how often a batch
is tried.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wallaroo
from tests.conformance.apps.tolerant import every_kind
from tests.timed_events import Event, decode, encode, key_of, pack, time_of
from wallaroo.aggregations import Count, Max, combine_of
from wallaroo.testing import LocalApplication, run_local

STEPS = ("decode", "compute", "compute multi", "extract", "state", "state multi", "encode")
EVENTS = st.lists(
    st.sampled_from(
        [*(f"fail {step}.{key}" for step in STEPS for key in "ab"), "fine a", "fine b"]
    ),
    max_size=40,
)
APPLICATION = every_kind("dead-letter", Path("/nowhere"), Path("/nowhere"))


def without_batch(letters: list[dict[str, Any]]) -> list[str]:
    return sorted(
        json.dumps({name: value for name, value in letter.items() if name != "batch"})
        for letter in letters
    )


@given(EVENTS, st.integers(1, 8), st.integers(1, 4))
def test_any_split_into_batches_gives_the_same_dead_letters_but_for_the_batch_number(
    events: list[str], batches: int, tasks: int
) -> None:
    inputs = {"in": [event.encode() for event in events]}
    undisturbed = run_local(APPLICATION, inputs, batches=1, tasks=1)
    split = run_local(APPLICATION, inputs, batches=batches, tasks=tasks)

    assert without_batch(split.dead_letters) == without_batch(undisturbed.dead_letters)
    assert len(split.dead_letters) == sum(event.startswith("fail") for event in events)
    assert sorted(split.outputs) == sorted(undisturbed.outputs)
    assert split.errors == undisturbed.errors


@given(EVENTS, st.integers(1, 4))
def test_a_batch_that_is_tried_again_writes_the_same_bytes(events: list[str], tasks: int) -> None:
    running = LocalApplication(APPLICATION, tasks)
    running.send("in", *(event.encode() for event in events))

    lost = running.attempt()
    committed = running.batch()

    assert lost.outputs == dict(enumerate(committed.values()))


class Numbers(wallaroo.Aggregation[Event, list[int], str]):
    """Refuses an event in three when it comes, and a window in two when it is due."""

    def initial_accumulator(self) -> list[int]:
        return []

    def update(self, event: Event, numbers: list[int], /) -> None:
        if event[1] % 3 == 0:
            raise ValueError(f"no number {event[1]}")
        numbers.append(event[1])

    def combine(self, left: list[int], right: list[int], /) -> list[int]:
        return sorted(left + right)

    def output(self, key: str, numbers: list[int]) -> str:
        if len(numbers) % 2 == 0:
            raise ValueError(f"no windows of {sorted(numbers)}")
        return f"{key} {sorted(numbers)}"


class Kept:
    """The numbers of a key."""

    def __init__(self) -> None:
        self.numbers: list[int] = []


@wallaroo.state_computation(name="remind", state=Kept, on_error="dead-letter")
def remind(event: Event, kept: Kept, context: wallaroo.Context) -> None:
    kept.numbers.append(event[1])
    context.set_timer("due", context.event_time + 4)


@remind.on_timer
def is_due(kept: Kept, context: wallaroo.Context, name: str) -> str:
    if kept.numbers[-1] % 2:
        raise ValueError(f"no timer after {kept.numbers[-1]}")
    return f"{context.key} {kept.numbers[-1]}"


def paired(left: Event, right: Event | None) -> str:
    if left[1] % 2:
        raise ValueError(f"no pair of {left[1]}")
    return f"{left[1]} {right and right[1]}"


PORTS = {"left": "7010", "right": "7012"}


def timed(name: str) -> wallaroo.KeyedPipeline[str, Event]:
    config = wallaroo.TCPSourceConfig(name, "127.0.0.1", PORTS[name], decode)
    return (
        wallaroo.source(name, config)
        .with_event_time(time_of, allow_before_1980=True, delay=wallaroo.nanoseconds(3))
        .key_by(key_of)
    )


WINDOWS = (
    wallaroo.range_windows(wallaroo.nanoseconds(6))
    .with_slide(wallaroo.nanoseconds(3))
    .with_late_data_policy("dead-letter")
)


def mixed(event: Event) -> Any:
    """What cannot be compared: some numbers as text."""
    return event[1] if event[1] % 5 else str(event[1])


def counted(windows: Any) -> Any:
    """How many events a window has, and the greatest of them."""
    both = combine_of(n=Count(), most=Max(mixed))
    return timed("left").to(windows.over(both, with_window=True, on_error="dead-letter"))


EARLY = wallaroo.range_windows(wallaroo.nanoseconds(8)).with_early_results(wallaroo.nanoseconds(2))
TIMED = {
    "windows": lambda: timed("left").to(WINDOWS.over(Numbers(), on_error="dead-letter")),
    "compared windows": lambda: counted(WINDOWS),
    "early results": lambda: counted(EARLY),
    "timers": lambda: timed("left").to(remind),
    "as-of join": lambda: timed("left").join_latest(timed("right"), paired, on_error="dead-letter"),
}
MOMENTS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30)), max_size=30)


@pytest.mark.parametrize("step", TIMED)
@settings(max_examples=15)
@given(moments=MOMENTS, batches=st.integers(2, 8), tasks=st.integers(1, 4))
def test_letters_of_windows_timers_and_joins_do_not_depend_on_batches_and_tasks(
    step: str, moments: list[tuple[str, int]], batches: int, tasks: int
) -> None:
    """Of events that come late, and of what fails when it is due."""
    application = wallaroo.build_application(
        "timed",
        TIMED[step]().to_sink(wallaroo.StdoutSinkConfig(encode)),
        dead_letters=wallaroo.FileSinkConfig("dead.jsonl"),
    )
    events = [pack((key, number, at + number)) for number, (key, at) in enumerate(moments)]
    inputs = {"left": events, "right": events[::2]} if step == "as-of join" else {"left": events}
    undisturbed = run_local(application, inputs, batches=1, tasks=1)
    split = run_local(application, inputs, batches=batches, tasks=tasks)

    assert without_batch(split.dead_letters) == without_batch(undisturbed.dead_letters)
    assert sorted(split.outputs) == sorted(undisturbed.outputs)
    assert split.errors == undisturbed.errors


def results_of(windows: Any, events: list[bytes], size: int) -> Any:
    """By start and reason of windows, their counts; and what the letters are about."""
    rows = counted(windows).map(
        lambda row: (row.window.start, row.window.firing.value, row.value["n"])
    )
    application = wallaroo.build_application(
        "counted",
        rows.to_sink(wallaroo.StdoutSinkConfig(encode)),
        dead_letters=wallaroo.FileSinkConfig("dead.jsonl"),
    )
    running = LocalApplication(application)
    running.send("left", *events)
    while running.waiting:
        running.batch(size)
    running.end()
    done = running.result()
    return list(map(eval, done.outputs)), [letter.get("about") for letter in done.dead_letters]


def about(start: int, end: int) -> str:
    date = "1970-01-01 00:00:00.00000000"
    return f"window from {date[:19] if start == 0 else date + str(start)} to {date}{end} UTC"


@pytest.mark.parametrize("size", [1, 2, 9])
def test_a_window_whose_parts_cannot_be_compared_has_no_result_and_its_letter_says_which(
    size: int,
) -> None:
    """One with a part of its events would say a wrong count."""
    events = [pack(("a", number, time)) for number, time in ((1, 1), (2, 2), (5, 4), (10, 5))]

    found, letters = results_of(WINDOWS, events, size)

    assert found == [(-3, "final", 2), (3, "final", 2)]
    assert letters == [about(0, 6)]


@pytest.mark.parametrize("size", [1, 2, 9])
def test_events_that_cannot_be_compared_with_those_of_an_early_result_end_it(size: int) -> None:
    events = [pack(("a", number, time)) for number, time in ((1, 1), (2, 6), (5, 7), (3, 7))]

    found, letters = results_of(EARLY, events, size)

    assert found == [(0, "early", 2)]
    assert letters == [about(0, 8)] * 3, "two early results and the last"
