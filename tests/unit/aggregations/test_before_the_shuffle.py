"""Windows whose events are aggregated before the shuffle: what could make a difference there.

The same windows over events that cross one by one are the oracle, beside results by hand.
"""

from __future__ import annotations

import json
import operator
import threading
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest

import wallaroo
from wallaroo.aggregations import (
    Aggregation,
    Collect,
    Count,
    Distinct,
    First,
    Last,
    Max,
    MaxBy,
    Mean,
    MinBy,
    Sum,
    TopN,
    combine_of,
)
from wallaroo.dataflow.plan.model import ToExchange
from wallaroo.errors import UserCodeError
from wallaroo.testing import LocalApplication

SECONDS = 10


class Order:
    """An event that its owner may change."""

    def __init__(self, key: str, value: Any, at: int):
        self.key = key
        self.value = value
        self.at = at

    def __repr__(self) -> str:
        return f"{self.key} {self.value}"


@wallaroo.decoder
def decode(payload: bytes) -> Order:
    return Order(*json.loads(payload))


@wallaroo.key_extractor
def key_of(order: Order) -> str:
    return order.key


def value_of(order: Any) -> Any:
    return order.value


def time_of(order: Order) -> float:
    return 1e9 + order.at  # seconds


@wallaroo.computation("times a hundred")
def in_place(order: Any) -> Any:
    order.value *= 100
    return order


@wallaroo.encoder
def encode(result: Any) -> str:
    return repr(result)


def orders() -> wallaroo.Pipeline[Order]:
    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode)
    return wallaroo.source("in", config).with_event_time(time_of)


def windowed(
    aggregation: Any, events: Any = None, windows: Any = None, **options: Any
) -> wallaroo.Pipeline[Any]:
    windows = windows or wallaroo.range_windows(wallaroo.seconds(SECONDS))
    step = windows.over(aggregation, name="window", **options)
    return (events or orders()).key_by(key_of).to(step)


def built(pipeline: Any, **settings: Any) -> wallaroo.Application:
    sink = wallaroo.StdoutSinkConfig(encode)
    return wallaroo.build_application("orders", pipeline.to_sink(sink), **settings)


def is_pre_aggregated(application: wallaroo.Application) -> bool:
    return any(
        isinstance(stage.exit, ToExchange) and stage.exit.pre_aggregated is not None
        for stage in application.plan.stages
    )


def sent(
    application: wallaroo.Application,
    values: list[Any],
    batch: int = 0,
    tasks: int = 1,
    partitions: str = "",
) -> LocalApplication:
    """Run values of one key through, each a second after the one before it."""
    running = LocalApplication(application, tasks=tasks)
    for place, value in enumerate(values):
        key, at = "k", place / 100
        if isinstance(value, tuple):
            value, at = value
        partition = partitions[place] if partitions else "p"
        running.send("in", json.dumps([key, value, at]).encode(), partition=partition)
    for _ in range(len(values) // batch if batch else 0):
        running.batch(batch)
    running.end()
    return running


def outputs(running: LocalApplication) -> list[str]:
    return [each.decode() for each in running.result().outputs]


class Latest(Aggregation[Order, list[Order], Order]):
    """Keeps the event itself, and returns it."""

    adds_up_exactly = True

    def initial_accumulator(self) -> list[Order]:
        return []

    def update(self, event: Order, accumulator: list[Order], /) -> None:
        accumulator[:] = [event]

    def combine(self, left: list[Order], right: list[Order], /) -> list[Order]:
        return right or left

    def output(self, key: Any, accumulator: list[Order], /) -> Order:
        return accumulator[0]


KEEPERS: dict[str, tuple[Callable[[], Any], str]] = {
    "first": (lambda: First(lambda order: order), "k 1"),
    "last": (lambda: Last(lambda order: order), "k 2"),
    "greatest": (lambda: MaxBy(value_of), "k 4"),
    "least": (lambda: MinBy(value_of, ties=True), "[k 1]"),
    "top": (lambda: TopN(2, by=value_of), "[k 4, k 2]"),
    "own": (Latest, "k 2"),
}


@pytest.mark.parametrize("name", KEEPERS)
def test_another_branch_may_change_an_event_that_an_accumulator_keeps(name: str) -> None:
    make, expected = KEEPERS[name]
    source = orders()
    one = windowed(make(), source).to_sink(wallaroo.StdoutSinkConfig(encode, name="one"))
    two = source.to(in_place).to_sink(wallaroo.StdoutSinkConfig(encode, name="two"))
    application = wallaroo.build_application("orders", one, two)
    assert is_pre_aggregated(application)

    run = sent(application, [1, 4, 2]).result()

    assert run.by_sink["one"] == [expected.encode()]
    assert run.by_sink["two"] == [b"k 100", b"k 400", b"k 200"]


@wallaroo.computation("a hundred times all")
def hundredfold(result: Any) -> Any:
    for order in result if isinstance(result, list) else [result]:
        order.value *= 100
    return result


def values_of(result: Any) -> list[Any]:
    return [order.value for order in (result if isinstance(result, list) else [result])]


@pytest.mark.parametrize("name", [*KEEPERS, "all"])
@pytest.mark.parametrize("kind", ["early", "sliding"])
def test_a_step_may_change_the_result_of_a_window_that_goes_on(name: str, kind: str) -> None:
    make, _ = KEEPERS.get(name, (lambda: Collect(lambda order: order), ""))
    windows = wallaroo.range_windows(wallaroo.seconds(SECONDS))
    if kind == "early":
        windows = windows.with_early_results(wallaroo.seconds(1))
    else:
        windows = windows.with_slide(wallaroo.seconds(SECONDS // 5))
    values = [(3, 0), (1, 2), (2, 4), (2, 9)]
    plain = built(windowed(make(), windows=windows).map(values_of))
    changing = built(windowed(make(), windows=windows).to(hundredfold).map(values_of))

    expected = [json.loads(each) for each in outputs(sent(plain, values, batch=1))]
    assert len(expected) > 2
    assert [json.loads(each) for each in outputs(sent(changing, values, batch=1))] == [
        [100 * value for value in each] for each in expected
    ]


@pytest.mark.parametrize("batch", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("make", "expected", "errors"),
    [
        (lambda: Max(value_of), "9", {"window": 1}),
        (lambda: Sum(value_of), "30", {"window": 1}),
        (lambda: Distinct(value_of), "6", {}),
        (lambda: combine_of(n=Count(), most=Max(value_of)), "{'n': 5, 'most': 9}", {"window": 1}),
    ],
)
def test_an_event_that_fails_is_the_only_one_that_is_left_out(
    make: Callable[[], Any], expected: str, errors: dict[str, int], batch: int
) -> None:
    values = [7, 1, None, 9, 8, 5]
    run = sent(built(windowed(make(), on_error="skip")), values, batch)

    assert outputs(run) == [expected]
    assert run.result().errors == errors


IN_ORDER = [0.7, 1e16, 0.3, -1e16, 5.0, 0.3, 4.0]  # another order has another sum


@pytest.mark.parametrize("batch", [0, 1, 2, 3, 4])
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Sum(value_of), repr(reduce(operator.add, IN_ORDER))),
        (lambda: Last(value_of), "4.0"),
        (lambda: First(value_of).where(lambda order: order.value < 1), "0.7"),
        (lambda: MaxBy(lambda order: order.value > 1), "k 1e+16"),
    ],
)
def test_events_of_several_connections_count_in_their_order(
    make: Callable[[], Any], expected: str, batch: int
) -> None:
    application = built(windowed(make()))
    assert is_pre_aggregated(application)
    assert outputs(sent(application, IN_ORDER, batch, partitions="ababbab")) == [expected]


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize(("tasks", "batch"), [(1, 0), (2, 0), (1, 1), (1, 2)])
def test_a_late_event_that_would_fail_is_late(on_error: str, tasks: int, batch: int) -> None:
    values = [(1, 5), (2, 100), (None, 3), (4, 101)]
    run = sent(built(windowed(Sum(value_of), on_error=on_error)), values, batch, tasks)

    assert outputs(run) == ["1", "6"]
    assert run.result().dropped == {"window": {"late": 1}}
    assert not run.result().errors


def test_the_error_of_an_event_names_it() -> None:
    with pytest.raises(UserCodeError, match="k None") as failed:
        sent(built(windowed(Sum(value_of))), [1, None, 2])
    assert failed.value.step == "window"


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize(
    "windows",
    [
        wallaroo.range_windows(wallaroo.seconds(SECONDS)),
        wallaroo.session_windows(wallaroo.seconds(SECONDS)),
    ],
    ids=["range", "session"],
)
def test_sums_survive_an_applications_own_serialize(windows: Any, batch: int) -> None:
    both = combine_of(sum=Sum(_value), mean=Mean(_value))
    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode_plain)
    events = wallaroo.source("in", config).with_event_time(lambda event: 1e9)
    pipeline = events.key_by(lambda event: str(event[0])).to(windows.over(both))
    hooks = {"serialize": lambda value: json.dumps(value).encode(), "deserialize": json.loads}

    run = sent(built(pipeline).with_hooks_of(hooks), [1, 2.5, 1, 2], batch)

    assert outputs(run) == ["{'sum': 6.5, 'mean': 1.625}"]


@wallaroo.decoder
def decode_plain(payload: bytes) -> list[Any]:
    event: list[Any] = json.loads(payload)
    return event


def _value(event: list[Any]) -> Any:
    return event[1]


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_a_total_that_no_float_can_hold_fails_at_its_event(batch: int) -> None:
    application = built(windowed(Sum(value_of)))
    with pytest.raises(UserCodeError, match="too large") as failed:
        sent(application, [0.5, 10**400, 1], batch)
    assert failed.value.event is not None
    assert "1000000" in failed.value.event  # the event, or the sum of its batch


class Locked(Order):
    """An event that cannot be pickled."""

    def __init__(self, key: str, value: Any, at: int):
        super().__init__(key, value, at)
        self.lock = threading.Lock()


@wallaroo.decoder
def decode_locked(payload: bytes) -> Locked:
    return Locked(*json.loads(payload))


@pytest.mark.parametrize("make", [Count, lambda: MaxBy(value_of)])
def test_events_that_cannot_be_pickled_are_refused_as_if_they_crossed(make: Any) -> None:
    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode_locked)
    events = wallaroo.source("in", config).with_event_time(time_of)
    with pytest.raises(UserCodeError, match="cannot be sent to another worker"):
        sent(built(windowed(make(), events)), [1, 2])


class Weight(Count):
    """A sum of floats, which depends on how it is grouped."""

    def update(self, event: Any, count: Any, /) -> Any:
        return count + event.value


class Histogram(Aggregation[Order, dict[Any, int], list[Any]]):
    """Has methods whose names mean something in this package."""

    adds_up_exactly = True

    def initial_accumulator(self) -> dict[Any, int]:
        return {}

    def update(self, event: Order, accumulator: dict[Any, int], /) -> None:
        self._partial(accumulator, event)

    def _partial(self, accumulator: dict[Any, int], event: Order) -> None:
        accumulator[event.value] = accumulator.get(event.value, 0) + 1

    def _absorb(self, into: dict[Any, int], other: dict[Any, int]) -> None:
        for value, number in other.items():
            into[value] = into.get(value, 0) + number

    def combine(self, left: dict[Any, int], right: dict[Any, int], /) -> dict[Any, int]:
        both = dict(left)
        self._absorb(both, right)
        return both

    def output(self, key: Any, accumulator: dict[Any, int], /) -> list[Any]:
        return sorted(accumulator.items())


NAN = float("nan")


@pytest.mark.parametrize("batch", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("make", "values", "expected"),
    [
        (Weight, [0.1, 0.2, 0.3, 1e16, -1e16, 0.7], "0.7"),
        (Histogram, [1, 2, 1], "[(1, 2), (2, 1)]"),
        (lambda: Distinct(value_of), [NAN, NAN, 1, NAN, NAN], "2"),
        (lambda: TopN(2, by=value_of), [NAN, 1, 2, NAN, 2, 3, 1], "[k 3, k 2]"),
        (lambda: TopN(2, by=value_of), [NAN, 1], "[k 1, k nan]"),
    ],
)
def test_results_do_not_depend_on_batches(
    make: Any, values: list[Any], expected: str, batch: int
) -> None:
    assert outputs(sent(built(windowed(make())), values, batch)) == [expected]
    session = windowed(make(), windows=wallaroo.session_windows(wallaroo.seconds(SECONDS)))
    assert outputs(sent(built(session), values, batch)) == [expected]


@pytest.mark.parametrize("batch", [0, 2])
def test_an_event_without_the_value_of_the_greatest_is_left_out_alone(batch: int) -> None:
    values = [*range(30), None, 5]
    top = TopN(2, by=lambda order: order.value + 0)

    run = sent(built(windowed(top, on_error="skip")), values, batch)

    assert outputs(run) == ["[k 29, k 28]"]
    assert run.result().errors == {"window": 1}
