"""Streams that part: time is the same in a branch as without it; errors stay in theirs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import wallaroo
from tests.conformance.apps.sessions import SECOND, Click, key_of, parse
from tests.conformance.apps.windowed import Numbers, _clicks, numbers_of
from wallaroo.api.application import Application
from wallaroo.testing import run_local

HERE = Path("/nowhere")
# two keys, out of order by up to four seconds
LINES = [f"{'ab'[n % 2]} {n - 3 * (n % 5 == 4)} {n}".encode() for n in range(40)]


@wallaroo.encoder("text")
def encode(event: Any) -> str:
    return str(event)


SINK = wallaroo.StdoutSinkConfig(encode)


def is_even(click: Click) -> bool:
    return click.number % 2 == 0


def windows() -> Any:
    return wallaroo.range_windows(6 * SECOND).over(Numbers)


def is_left(click: Click) -> bool:
    return click.number % 3 == 0


def has_pair(text: str) -> bool:
    return "-" not in text


class Pairs(wallaroo.Aggregation[str, list[str], str]):
    def initial_accumulator(self) -> list[str]:
        return []

    def update(self, event: str, pairs: list[str], /) -> None:
        pairs.append(event)

    def combine(self, left: list[str], right: list[str], /) -> list[str]:
        return sorted(left + right)

    def output(self, key: str, pairs: list[str], window: wallaroo.Window) -> str:
        return f"{key} {window.start // SECOND} {sorted(pairs)}"


def windowed_pairs(pairs: Any) -> Any:
    return pairs.to(wallaroo.range_windows(4 * SECOND).over(Pairs)).to_sink(SINK)


def joined() -> Any:
    left, right = _clicks(HERE).branch(is_left)
    return left.join(right, numbers_of, within=2 * SECOND, how="left")


def delayed() -> Any:
    delayed = wallaroo.range_windows(2 * SECOND).with_delay(3 * SECOND)
    return _clicks(HERE).to(delayed.over(Numbers))


def outputs(application: Application, batches: int, tasks: int) -> list[Counter[bytes]]:
    given = {source.config.name: LINES for source in application.plan.sources}
    found = run_local(application, given, batches=batches, tasks=tasks)
    return [Counter(some) for some in found.by_sink.values()]


@pytest.mark.parametrize(("batches", "tasks"), [(1, 1), (7, 3)])
def test_windows_in_branches_are_those_of_filtered_streams(batches: int, tasks: int) -> None:
    even, odd = _clicks(HERE).branch(is_even)
    parted = wallaroo.build_application(
        "parted",
        even.to(windows()).to_sink(SINK),
        odd.to(wallaroo.range_windows(6 * SECOND).over(Numbers, name="odd")).to_sink(SINK),
    )
    kept = [
        wallaroo.build_application("kept", _clicks(HERE).filter(wanted).to(windows()).to_sink(SINK))
        for wanted in (is_even, lambda click: not is_even(click))
    ]

    found = outputs(parted, batches, tasks)

    assert found == [outputs(application, 1, 1)[0] for application in kept]
    assert all(found)


@pytest.mark.parametrize("results", [joined, delayed])
@pytest.mark.parametrize(("batches", "tasks"), [(1, 1), (7, 3)])
def test_windows_in_a_branch_wait_for_late_results(
    results: Callable[[], Any], batches: int, tasks: int
) -> None:
    """Given results that come later than their times, then a window of them is as without a
    branch.
    """
    some, others = results().branch(has_pair)
    parted = wallaroo.build_application("parted", windowed_pairs(some), others.to_sink(SINK))
    kept = wallaroo.build_application("kept", windowed_pairs(results().filter(has_pair)))

    found = outputs(parted, batches, tasks)

    assert found[0] == outputs(kept, 1, 1)[0]
    assert sum(found[0].values()) > 1


def test_the_watermark_of_a_branch_is_that_of_its_stage_less_the_delays_before_it() -> None:
    some, others = delayed().branch(has_pair)
    plan = wallaroo.build_application("app", windowed_pairs(some), others.to_sink(SINK)).plan
    (windowed,) = [stage for stage in plan.stages if "Pairs" in str(stage.state_steps)]
    head = plan.head_of(windowed)

    assert head.id != windowed.id
    held_ns = sum(step.watermark_lag_ns for step in head.steps)
    assert held_ns >= 3 * SECOND
    assert plan.watermark_lags_ns[windowed.id] == plan.watermark_lags_ns[head.id] + held_ns


@pytest.mark.parametrize("is_keyed_first", [True, False])
@pytest.mark.parametrize(("batches", "tasks"), [(1, 1), (7, 3)])
def test_events_of_branches_that_meet_again_keep_their_order(
    is_keyed_first: bool, batches: int, tasks: int
) -> None:
    """Given branches that meet before a state step, then it sees the events as they came."""
    lines = wallaroo.source("Lines", wallaroo.FileSourceConfig("in", "/nowhere/in.txt")).to(parse)
    even, odd = (lines.key_by(key_of) if is_keyed_first else lines).branch(is_even)
    met = even.merge(odd.map(lambda click: click, name="same"))
    keyed: Any = met if is_keyed_first else met.key_by(key_of)
    application = wallaroo.build_application("app", keyed.to(remember).to_sink(SINK))
    clicks = [f"{'ab'[n % 3 == 0]} 0 {n}".encode() for n in range(30)]

    run_local(application, {"in": clicks}, batches=batches, tasks=1)
    found = run_local(application, {"in": clicks}, batches=batches, tasks=tasks)

    for key in "ab":
        expected = [n for n in range(30) if "ab"[n % 3 == 0] == key]
        assert found.state("remember")[key].numbers == expected


class Seen:
    def __init__(self) -> None:
        self.numbers: list[int] = []


@wallaroo.state_computation("remember", state=Seen)
def remember(click: Click, seen: Seen) -> None:
    seen.numbers.append(click.number)


def fails_for_a(click: Click) -> bool:
    if click.key == "a":
        raise ValueError("not an a")
    return True


def test_a_predicate_that_raises_is_named_with_its_line_and_its_policy_holds() -> None:
    def build(on_error: str) -> Application:
        some, others = _clicks(HERE).branch(fails_for_a, name="picky", on_error=on_error)
        return wallaroo.build_application("app", some.to_sink(SINK), others.to_sink(SINK))

    skipping = run_local(build("skip"), {"in": LINES})
    with pytest.raises(wallaroo.UserCodeError, match=r"'picky'.*test_branches\.py:\d+") as raised:
        run_local(build("stop"), {"in": LINES})

    assert skipping.errors == {"picky": 20}
    assert len(skipping.outputs) == 20
    assert "not an a" in str(raised.value)


def with_lock(click: Click) -> Any:
    return {"click": click, "lock": threading.Lock()}


def test_an_event_that_cannot_be_copied_for_two_branches_names_the_step_that_made_it() -> None:
    locked = _clicks(HERE).map(with_lock)
    application = wallaroo.build_application(
        "app", locked.map(str, name="one").to_sink(SINK), locked.map(str, name="two").to_sink(SINK)
    )

    with pytest.raises(wallaroo.UserCodeError, match=r"'with_lock'.*lock"):
        run_local(application, {"in": LINES})


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: float | None = None


@dataclass(frozen=True, slots=True)
class Route:
    points: list[int]


@dataclass
class Place:
    x: int


class Pair(NamedTuple):
    x: int
    others: Any


@pytest.mark.parametrize(
    ("event", "is_shared"),
    [
        (Point(1), True),
        (Pair(1, "text"), True),
        (Pair(1, [2]), False),
        (Route([1]), False),
        (Place(1), False),
        (Point([1]), False),  # type: ignore[arg-type]  # not what its field says
    ],
    ids=repr,
)
def test_only_events_that_can_change_are_copied_for_branches(event: Any, is_shared: bool) -> None:
    """Given two steps behind one stage, then each has an object of its own if it could change."""
    seen: list[Any] = []
    made = _clicks(HERE).map(lambda click: event, name="made")
    application = wallaroo.build_application(
        "app",
        made.map(lambda own: seen.append(own) or "one", name="one").to_sink(SINK),
        made.map(lambda own: seen.append(own) or "two", name="two").to_sink(SINK),
    )

    run_local(application, {"in": LINES[:1]})

    one, two = seen
    assert one == two == event
    assert (one is two) is is_shared


def test_events_of_blocks_go_both_ways() -> None:
    @wallaroo.batch_computation("double")
    def double(rows: list[int]) -> list[int]:
        return [2 * row for row in rows]

    numbers = _clicks(HERE).map(lambda click: click.number, name="number").to(double)
    small, large = numbers.branch(lambda number: number < 20, name="is small")
    application = wallaroo.build_application(
        "app",
        small.to(double.__class__(double.function, "again")).to_sink(SINK),
        large.to_sink(SINK),
    )

    found = [
        sorted(map(int, some)) for some in run_local(application, {"in": LINES}).by_sink.values()
    ]

    assert found == [[4 * n for n in range(10)], [2 * n for n in range(10, 40)]]


def test_an_application_of_several_pipelines_has_one_sink_for_its_dead_letters() -> None:
    lines = _clicks(HERE)
    application = wallaroo.build_application(
        "app",
        lines.map(only_a, name="one", on_error="dead-letter").to_sink(SINK),
        lines.map(only_a, name="two", on_error="dead-letter").to_sink(SINK),
        dead_letters=wallaroo.FileSinkConfig("dead.jsonl"),
    )

    found = run_local(application, {"in": LINES})

    assert [len(some) for some in found.by_sink.values()] == [20, 20, 40]
    assert Counter(letter["step"] for letter in found.dead_letters) == {"one": 20, "two": 20}


def only_a(click: Click) -> Click:
    if click.key != "a":
        raise ValueError("not an a")
    return click
