"""``latest_per_key``: each key's last event of a batch."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import wallaroo
from tests.timed_events import Event, decode, encode, key_of, time_of
from wallaroo.aggregations import Collect
from wallaroo.engine.operators.filter import build_latest
from wallaroo.engine.operators.table import OPERATORS
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.testing import LocalApplication, run_local


def source(name: str = "in") -> wallaroo.Pipeline[Event]:
    return wallaroo.source(name, wallaroo.TCPSourceConfig(name, "127.0.0.1", 0, decode))


def built(pipeline: Any) -> LocalApplication:
    sink = pipeline.to_sink(wallaroo.StdoutSinkConfig(encode))
    return LocalApplication(wallaroo.build_application("latest", sink))


def results(running: LocalApplication) -> list[Any]:
    return [eval(output) for output in running.result().outputs]


@pytest.mark.parametrize("is_timed", [False, True])
@pytest.mark.parametrize("tasks", [1, 3])
def test_the_last_event_of_a_key_leaves_once_per_batch(is_timed: bool, tasks: int) -> None:
    events = source()
    if is_timed:
        events = events.with_event_time(time_of, allow_before_1980=True)
    running = built(events.key_by(key_of).latest_per_key())
    for batch in (["a 1 5", "b 2 5", "a 3 4"], ["b 4 6"], [], ["a 5 7", "a 6 7"]):
        running.send("in", *(line.encode() for line in batch))
        running.batch(tasks=tasks)

    last_first = sorted(results(running), key=lambda event: event[1])
    assert [event[:2] for event in last_first] == [("b", 2), ("a", 3), ("b", 4), ("a", 6)]
    assert running.result().dropped == {"latest per key": {"replaced": 2}}


def test_windows_behind_it_see_the_events_in_time_and_in_the_same_batch() -> None:
    windows = wallaroo.range_windows(wallaroo.nanoseconds(10)).over(Collect(lambda event: event[1]))
    keyed = source().with_event_time(time_of, allow_before_1980=True).key_by(key_of)
    running = built(keyed.latest_per_key().to(windows))
    running.send("in", b"a 1 5", b"a 2 7", b"b 3 3", b"b 4 25")
    running.advance_watermark(60)

    assert sorted(results(running)) == [[2], [4]]


def test_the_place_of_the_step_is_the_users_line() -> None:
    step: Any = source().key_by(key_of).latest_per_key(name="newest").node.step  # type: ignore[union-attr]
    copy = pickle.loads(pickle.dumps(step))
    assert (copy.step_name, copy.place) == ("newest", step.place)
    assert step.place.startswith(f"{__file__}:")


def test_the_key_by_before_it_is_not_idle() -> None:
    """One task owns a key, though no state comes after it."""
    app = wallaroo.build_application(
        "app", source().key_by(key_of).latest_per_key().to_sink(wallaroo.StdoutSinkConfig(encode))
    )
    assert app.plan.levels == 2
    lines = [f"a {number} 5".encode() for number in range(20)]
    assert run_local(app, {"in": lines}, tasks=4).outputs == [b"('a', 19, 5)"]


def test_the_time_of_an_event_goes_with_it() -> None:
    time = StageTime(0, 0, 0, 0)
    seen = []
    site: Any = type("Site", (), {})()
    site.time = time
    site.lost = lambda loss: [0]
    site.emit = lambda key, event: seen.append((key, event, time.event_ns, time.watermark_ns))
    operator = build_latest(source().key_by(key_of).latest_per_key().node.step, site)  # type: ignore[union-attr]

    for key, event, at in (("a", 1, 5), ("b", 2, 6), ("a", 3, 4)):
        time.event_ns, time.watermark_ns = at, at - 1
        operator.process(key, event)
    time.event_ns, time.watermark_ns = 9, 8
    assert operator.flush is not None
    operator.flush()
    operator.flush()

    assert seen == [("b", 2, 6, 5), ("a", 3, 4, 3)]
    assert (time.event_ns, time.watermark_ns) == (9, 8)
    assert build_latest in OPERATORS.values()
