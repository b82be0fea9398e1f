"""``batch``: lists that are full, that waited long enough, that are left at the end."""

from __future__ import annotations

import pickle
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wallaroo
from tests.properties.test_pipelines import CRASH, Disturbances, disturbances
from wallaroo.api.application import Application
from wallaroo.testing import LocalApplication, VirtualClock, run_local

SECOND = 1_000_000_000


@wallaroo.decoder
def decode(payload: bytes) -> str:
    return payload.decode()


@wallaroo.key_extractor
def first(event: str) -> str:
    return event[0]


@wallaroo.encoder
def encode(events: list[str]) -> str:
    return " ".join(events)


def application(n: int = 3, within: int | None = 5 * SECOND) -> Application:
    lines = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode))
    batches = lines.key_by(first).batch(n, within=within)
    return wallaroo.build_application("app", batches.to_sink(wallaroo.StdoutSinkConfig(encode)))


def test_a_list_is_given_when_it_is_full_and_the_rest_when_input_ends() -> None:
    lines = [f"{'ab'[n % 2]}{n}".encode() for n in range(9)]

    found = run_local(application(within=None), {"in": lines}, batches=4)

    assert sorted(found.outputs) == [b"a0 a2 a4", b"a6 a8", b"b1 b3 b5", b"b7"]
    assert found.state("batch") == {}


def test_a_list_is_given_when_its_first_event_has_waited_long_enough() -> None:
    clock = VirtualClock(100 * SECOND)
    running = LocalApplication(application(), clock=clock)
    running.send("in", b"a1")
    running.batch()
    clock.advance(3)
    running.send("in", b"a2", b"b1")
    running.batch()
    assert running.result().outputs == []

    clock.advance(2)
    running.batch()
    assert running.result().outputs == [b"a1 a2"]

    clock.advance(3)
    running.batch()
    assert running.result().outputs == [b"a1 a2", b"b1"]


def test_a_list_that_was_full_starts_the_wait_again() -> None:
    """Given a full list, then the timer of its first event gives nothing of the next list."""
    clock = VirtualClock(100 * SECOND)
    running = LocalApplication(application(), clock=clock)
    running.send("in", b"a1")
    running.batch()
    clock.advance(4)
    running.send("in", b"a2", b"a3", b"a4")
    running.batch()
    clock.advance(4)
    running.batch()
    assert running.result().outputs == [b"a1 a2 a3"]

    clock.advance(1)
    running.batch()
    assert running.result().outputs == [b"a1 a2 a3", b"a4"]


@given(st.lists(st.sampled_from("abc"), max_size=25), disturbances)
def test_every_event_is_in_one_list_and_in_order(keys: list[str], history: Disturbances) -> None:
    running = LocalApplication(application(within=None))
    running.send("in", *(f"{key}{n}".encode() for n, key in enumerate(keys)))
    for size, tasks, end in history:
        (running.attempt if end == CRASH else running.batch)(size, tasks)
    running.end()

    found: dict[str, list[str]] = defaultdict(list)
    sizes: dict[str, list[int]] = defaultdict(list)
    for output in running.result().outputs:
        events = output.decode().split()
        found[events[0][0]] += events
        sizes[events[0][0]].append(len(events))
    expected: dict[str, list[str]] = defaultdict(list)
    for n, key in enumerate(keys):
        expected[key].append(f"{key}{n}")
    assert found == expected
    assert all(set(each[:-1]) <= {3} for each in sizes.values())


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"n": 0}, "n=0 is not a number of events"),
        ({"n": 2.5}, "n=2.5 is not a number of events"),
        ({"n": 3, "within": 0.5}, "within=0.5 is not a span of time"),
        ({"n": 3, "within": -1}, "within=-1 is not a span of time"),
    ],
)
def test_what_is_no_size_or_span_is_refused_with_its_line(
    options: dict[str, Any], what: str
) -> None:
    lines = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode))

    with pytest.raises(wallaroo.PipelineError, match=rf"test_batch\.py:\d+\): {what}.*seconds"):
        lines.key_by(first).batch(**options)


def test_the_step_travels_to_workers_with_its_place() -> None:
    (step,) = application().plan.stages[1].steps
    there = pickle.loads(pickle.dumps(step))
    assert there.place == step.place
    assert "test_batch.py:" in step.place
