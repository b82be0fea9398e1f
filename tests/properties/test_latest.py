"""``latest_per_key`` emits each key's last event of a batch, however input is cut into batches and
tasks, though earlier events of a key are dropped before the shuffle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wallaroo
from wallaroo.dataflow.plan.model import ToExchange
from wallaroo.engine.blocks.blocks import BLOCK_EVENTS_MIN
from wallaroo.testing import LocalApplication


@dataclass(frozen=True)
class Frozen:
    key: int
    number: int


@dataclass
class Changing:
    key: int
    number: int


class Named(NamedTuple):
    key: int
    number: int


FORMS: list[Callable[[int, int], Any]] = [
    lambda key, number: (key, number),
    Frozen,
    Changing,
    Named,
    lambda key, number: {"key": key, "number": number},  # is pickled when it is emitted
]


@wallaroo.decoder
def decode(payload: bytes) -> bytes:
    return payload


def parts(event: Any) -> tuple[int, int]:
    if isinstance(event, dict):
        return event["key"], event["number"]
    return tuple(event) if isinstance(event, tuple) else (event.key, event.number)  # type: ignore[return-value]  # of two


@wallaroo.key_extractor
def key_of(event: Any) -> Any:
    key = parts(event)[0]
    return key if key % 2 else (f"key {key}", bool(key % 4))


@wallaroo.encoder
def encode(event: Any) -> bytes:
    return b"%d %d\n" % parts(event)


def application(forms: list[int]) -> Any:
    def formed(line: bytes) -> Any:
        key, number = map(int, line.split())
        return FORMS[forms[number % len(forms)]](key, number)

    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, decode)
    latest = wallaroo.source("in", config).map(formed).key_by(key_of).latest_per_key()
    return wallaroo.build_application("latest", latest.to_sink(wallaroo.StdoutSinkConfig(encode)))


def drops_early(built: Any) -> bool:
    leaving = [stage.exit for stage in built.plan.stages]
    return any(isinstance(leave, ToExchange) and leave.latest is not None for leave in leaving)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 6), max_size=15), max_size=4),
    st.lists(st.integers(0, len(FORMS) - 1), min_size=1, max_size=3),
    st.integers(1, 3),
)
def test_the_last_event_of_each_key_leaves_in_its_form(
    batches: list[list[int]], forms: list[int], tasks: int
) -> None:
    built = application(forms)
    assert drops_early(built)
    running = LocalApplication(built, tasks=tasks)
    expected: list[bytes] = []
    events = 0
    for keys in batches:
        newest: dict[int, bytes] = {}
        for key in keys:
            newest[key] = b"%d %d\n" % (key, events)
            running.send("in", b"%d %d" % (key, events))
            events += 1
        running.attempt(len(keys))  # a crash before the commit
        running.batch(len(keys))
        expected += newest.values()

    result = running.result()
    assert sorted(result.outputs) == sorted(expected)
    replaced = events - len(expected)
    assert result.dropped == ({"latest per key": {"replaced": replaced}} if replaced else {})


@pytest.mark.parametrize("form", range(len(FORMS) - 1))
def test_one_task_emits_keys_in_the_order_of_their_last_events(form: int) -> None:
    running = LocalApplication(application([form]), tasks=1)
    for number, key in enumerate((1, 3, 5, 3, 1)):
        running.send("in", b"%d %d" % (key, number))
    running.batch()

    assert running.result().outputs == [b"5 2\n", b"3 3\n", b"1 4\n"]


def test_events_of_two_streams_travel_all() -> None:
    """Their order depends on their blocks, and a block's size on what is dropped."""
    one, other = (
        wallaroo.source(name, wallaroo.TCPSourceConfig(name, "127.0.0.1", 0, decode)).map(
            lambda line: tuple(map(int, line.split()))
        )
        for name in ("one", "other")
    )
    latest = one.merge(other).key_by(key_of).latest_per_key()
    sink = latest.to_sink(wallaroo.StdoutSinkConfig(encode))
    assert not drops_early(wallaroo.build_application("both", sink))


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_more_events_than_a_block_has_leave_the_last_ones(form: int) -> None:
    running = LocalApplication(application([form]), tasks=2)
    events = 3 * BLOCK_EVENTS_MIN
    for number in range(events):
        running.send("in", b"%d %d" % (number % 7, number))
    running.batch()

    last = [b"%d %d\n" % (number % 7, number) for number in range(events - 7, events)]
    assert sorted(running.result().outputs) == sorted(last)
    assert running.result().dropped == {"latest per key": {"replaced": events - 7}}
