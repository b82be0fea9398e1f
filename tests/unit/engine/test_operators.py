"""The rules of each operator, by itself."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from itertools import permutations
from typing import Any, NamedTuple

import pytest

import wallaroo
from wallaroo.engine.blocks.keys import tasks_by_group
from wallaroo.engine.blocks.packing import PICKLED, pack, packing_of
from wallaroo.engine.exchange.exchange import Exchange
from wallaroo.engine.exchange.outputs import (
    emit_by_key,
    emit_encoded,
    emit_to_all,
    emit_with_key,
)
from wallaroo.engine.failures.policies import stop_on_error
from wallaroo.engine.operators.interface import Site
from wallaroo.engine.operators.outputs import as_bytes, as_list
from wallaroo.engine.operators.table import build_operator
from wallaroo.engine.stores.keyed_state import KeyedState
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.errors import UserCodeError


class Seen:
    made = 0

    def __init__(self) -> None:
        Seen.made += 1
        self.events: list[Any] = []


class Unmakeable:
    def __init__(self) -> None:
        raise OSError("no licence")


@wallaroo.computation("answer")
def answer(event: Any) -> Any:
    return event


@wallaroo.computation_multi("answers")
def answers(event: Any) -> Any:
    return event


@wallaroo.state_computation("see", state=Seen)
def see(event: Any, own: Seen) -> Any:
    own.events.append(event)
    return own if event == "state" else len(own.events)


@wallaroo.state_computation("unmakeable", state=Unmakeable)
def unmakeable(event: Any, own: Unmakeable) -> Any:
    return event


@wallaroo.key_extractor("as it is")
def as_it_is(event: Any) -> Any:
    return event


@wallaroo.encoder("encoded")
def encoded(event: Any) -> Any:
    return event


def built(step: Any, emit: Any, own: KeyedState | None = None) -> Any:
    """The step's operator: what takes its events."""
    site = Site(emit, stop_on_error(step), lambda _: own or state(step), StageTime())
    return build_operator(step, site).process


def run(step: Any, *events: Any) -> list[tuple[Any, Any]]:
    """Give events with key k; return what is emitted."""
    emitted: list[tuple[Any, Any]] = []
    process = built(step, lambda key, output: emitted.append((key, output)))
    for event in events:
        process("k", event)
    return emitted


def state(step: Any = see, stored: dict[Any, bytes] | None = None) -> KeyedState:
    return KeyedState(step, (stored or {}).get, PICKLED)


def test_none_filters_and_other_false_values_do_not() -> None:
    assert run(answer, None, 0, "", [], False) == [
        ("k", 0),
        ("k", ""),
        ("k", []),
        ("k", False),
    ]


def test_each_item_of_a_multi_is_an_output_with_the_events_key() -> None:
    assert run(answers, [1, None, [2]], (), None, (3,), deque([4]), iter([5]), range(6, 7)) == [
        ("k", output) for output in (1, [2], 3, 4, 5, 6)
    ]


@pytest.mark.parametrize("output", ["text", b"bytes", bytearray(b"x"), {"a": 1}, 7, object])
def test_one_value_is_not_a_list_of_outputs(output: Any) -> None:
    with pytest.raises(TypeError, match=f"must return a list, not {type(output).__name__}"):
        as_list(output)


@pytest.mark.parametrize(
    "output", ["é", "é".encode(), bytearray("é", "utf-8"), memoryview("é".encode())]
)
def test_an_encoder_gives_bytes_or_text(output: Any) -> None:
    assert as_bytes(output) == b"\xc3\xa9"


def test_an_encoder_may_write_nothing_or_nothing_much() -> None:
    written: list[bytes] = []
    operator = emit_encoded(encoded, written, stop_on_error(encoded))

    for event in (None, "", b"x"):
        operator(None, event)

    assert written == [b"", b"x"]


def test_an_output_goes_to_all_sinks_in_their_order() -> None:
    taken: list[tuple[str, Any]] = []
    ways = [lambda _, event, name=name: taken.append((name, event)) for name in "ab"]

    operator = emit_to_all(list(ways))
    operator("k", 1)
    operator("k", 2)

    assert taken == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_state_is_made_when_its_keys_first_event_comes_and_once() -> None:
    own, before = state(), Seen.made
    operator = built(see, lambda key, output: None, own)
    assert Seen.made == before

    for key in ("a", "b", "a"):
        operator(key, 1)

    assert Seen.made == before + 2
    assert sorted(own.live) == ["a", "b"]


def test_untouched_and_unchanged_state_is_not_written() -> None:
    first = state()
    for key in ("a", "b"):
        first.load(key).events.append(1)
    stored = dict(first.changes())
    second = state(stored=stored)
    second.load("a")
    second.load("b").events.append(2)

    assert [key for key, _ in second.changes()] == ["b"]


def test_a_state_class_that_cannot_be_made_is_the_users_error_and_names_the_key() -> None:
    with pytest.raises(UserCodeError, match="OSError: no licence") as caught:
        run(unmakeable, 1)
    assert (caught.value.step, caught.value.event) == ("unmakeable", "state of key 'k'")


def test_stored_state_that_cannot_be_read_is_reported_with_its_key() -> None:
    with pytest.raises(UserCodeError) as caught:
        state(stored={"k": b"no pickle"}).load("k")
    assert (caught.value.step, caught.value.event) == ("see", "state of key 'k'")


def exchange_for(tasks: int = 1, step: Any = answer) -> tuple[Exchange, Any]:
    """An exchange, and what sends events to it with the event's text as key."""
    exchange = Exchange(1, 0, 0, tasks_by_group(tasks, 16), PICKLED)
    by_text = wallaroo.key_extractor("by text")(lambda event: "k")
    return exchange, emit_by_key(by_text, exchange, stop_on_error(as_it_is), stop_on_error(step))


def values_of(exchange: Exchange) -> list[Any]:
    """What arrives in the only task."""
    ((_, block),) = exchange.drain(0, 1)
    return PICKLED.unpack(block.packed)[1]


def test_an_event_leaves_as_it_was_when_it_was_emitted() -> None:
    exchange, emit = exchange_for()
    event = Seen()
    for number in range(3):
        event.events.append(number)
        emit(None, event)

    assert [value.events for value in values_of(exchange)] == [[0], [0, 1], [0, 1, 2]]


def test_events_of_a_block_share_nothing_that_can_change() -> None:
    exchange, emit = exchange_for()
    shared: list[int] = []
    for event in ((shared, 1), {"shared": shared}, [shared, shared], (shared, 2)):
        emit(None, event)

    first, second, third, fourth = values_of(exchange)

    lists = [first[0], second["shared"], third[0], fourth[0]]
    assert len({id(each) for each in lists}) == 4
    assert third[0] is third[1]


class Named(NamedTuple):
    number: int


class Outer:
    class Inner:
        number = 3


class Loud:
    def __init__(self) -> None:
        self.number = 5


class OwnReduce:
    def __reduce__(self) -> Any:
        return complex, (1, 2)


def test_values_of_every_kind_arrive_in_their_order() -> None:
    exchange, emit = exchange_for()
    events = ["a", Loud(), 1, Named(7), b"b", Outer.Inner(), ("a", 1), ["x"], 2.5, Loud, True]
    events += [
        type(f"C{n}", (Loud,), {"__reduce__": lambda self: (int, ("4",))})() for n in range(40)
    ]
    events += [OwnReduce(), None, "z" * 100_000, b"z" * 100_000, ["z" * 100_000], Loud(), ...]
    for event in events:
        emit(None, event)

    arrived = values_of(exchange)

    assert arrived[0] == "a"
    assert (arrived[1].number, arrived[2], arrived[3]) == (5, 1, Named(7))
    assert (arrived[4], arrived[5].number, arrived[6:9]) == (b"b", 3, [("a", 1), ["x"], 2.5])
    assert arrived[9] is Loud
    assert arrived[10] is True
    assert arrived[11:51] == [4] * 40
    assert arrived[51] == complex(1, 2)
    assert arrived[53:56] == ["z" * 100_000, b"z" * 100_000, ["z" * 100_000]]
    assert arrived[56].number == 5
    assert arrived[57] is ...


def test_equal_keys_share_a_bucket_and_the_first_of_them_travels() -> None:
    exchange = Exchange(1, 0, 0, tasks_by_group(3, 16), PICKLED)
    operator = emit_by_key(as_it_is, exchange, stop_on_error(as_it_is), stop_on_error(answer))
    first, second = "".join(["k", "ey"]), "".join(["ke", "y"])

    operator(None, first)
    operator(None, second)

    ((_, block),) = exchange.drain(0, 1)
    keys, values = PICKLED.unpack(block.packed)
    assert keys == values == ["key", "key"]
    assert keys[0] is keys[1]


@dataclass(frozen=True, slots=True)
class Bid:
    price: int


@dataclass
class Offer:
    price: int


@pytest.mark.parametrize(
    ("events", "is_packed"),
    [
        ([Bid(1), Bid(2)], False),
        ([Bid(1), "text", None, (0, Bid(2)), (1, (Bid(3), None))], True),  # None is pickled
        ([Bid(1), "text", (0, Bid(2)), (1, (Bid(3), None))], False),
        ([Bid(1), Offer(2)], True),
        ([["a list"]], True),
    ],
)
def test_what_cannot_change_is_not_packed_for_its_own_task(
    events: list[Any], is_packed: bool
) -> None:
    exchange = Exchange(1, 0, 0, tasks_by_group(1, 16), PICKLED, own_task=0)
    emit = emit_by_key(
        wallaroo.key_extractor("constant")(lambda event: "k"),
        exchange,
        stop_on_error(as_it_is),
        stop_on_error(answer),
    )
    for _ in range(2):  # a bucket is used again
        for event in events:
            emit(None, event)
            if isinstance(event, Offer):
                event.price = 9

        ((_, block),) = exchange.drain(0, 1)

        keys, values = block.unpacked or PICKLED.unpack(block.packed)
        assert (block.unpacked is None) == is_packed
        assert keys == ["k"] * len(events)
        assert values == [Offer(2) if isinstance(event, Offer) else event for event in events]
        events = [Offer(2) if isinstance(event, Offer) else event for event in events]


def test_blocks_for_other_tasks_are_packed() -> None:
    exchange = Exchange(1, 0, 0, tasks_by_group(2, 16), PICKLED, own_task=1)
    emit = emit_by_key(as_it_is, exchange, stop_on_error(as_it_is), stop_on_error(answer))
    for number in range(20):
        emit(None, f"key {number}")

    assert {task: block.unpacked is None for task, block in exchange.drain(0, 1)} == {
        0: True,
        1: False,
    }


class Word(str):
    __slots__ = ()


class Size(IntEnum):
    LARGE = 1


@pytest.mark.parametrize("seen_before", [[], [1], [True], [1, True]])
@pytest.mark.parametrize("key", [1.0, Fraction(1), Decimal(1), 1 + 0j])
def test_what_equals_a_number_is_no_key_whatever_came_before(
    seen_before: list[Any], key: Any
) -> None:
    exchange = Exchange(1, 0, 0, tasks_by_group(1, 16), PICKLED)
    emit = emit_by_key(as_it_is, exchange, stop_on_error(as_it_is), stop_on_error(answer))
    for event in seen_before:
        emit(None, event)

    with pytest.raises(
        UserCodeError, match="a key must be str, bytes, int, or a tuple of these, not"
    ):
        emit(None, key)


@pytest.mark.parametrize("keys", list(permutations([1, True, Size.LARGE])))
def test_a_bool_is_the_int_that_it_equals_whatever_came_before(keys: tuple[Any, ...]) -> None:
    exchange = Exchange(1, 0, 0, tasks_by_group(1, 16), PICKLED)
    emit = emit_by_key(as_it_is, exchange, stop_on_error(as_it_is), stop_on_error(answer))
    for key in (*keys, Word("w"), "w"):
        emit(None, key)

    ((_, block),) = exchange.drain(0, 1)

    travelled = PICKLED.unpack(block.packed)[0]
    assert travelled == [1, 1, 1, "w", "w"]
    assert [type(key) for key in travelled] == [int, int, int, str, str]


def test_an_event_that_cannot_be_packed_is_its_producers_mistake_and_the_others_arrive() -> None:
    exchange = Exchange(1, 0, 0, tasks_by_group(1, 4), PICKLED)
    failed: list[Any] = []
    emit = emit_by_key(
        wallaroo.key_extractor("constant")(lambda event: "k"),
        exchange,
        stop_on_error(as_it_is),
        lambda event, error, key: failed.append(event),
    )
    holds_lambda = Loud()
    holds_lambda.number = lambda: None  # type: ignore[assignment]  # that is the point
    big = ["y" * 100_000, lambda: None]
    for event in (Loud(), holds_lambda, "text", Loud(), big, Loud()):
        emit(None, event)

    assert failed == [holds_lambda, big]
    numbers = [getattr(value, "number", value) for value in values_of(exchange)]
    assert numbers == [5, "text", 5, 5]


def test_own_packing_is_applied_to_each_value_but_not_to_keys() -> None:
    packing = packing_of((lambda value: b"<%s>" % value, lambda packed: packed[1:-1]))
    column = packing.column()
    for value in (b"a", b"b"):
        column.put(value)

    packed = pack(["k", 1], column)

    assert b"<a>" in packed
    assert packing.unpack(packed) == (["k", 1], [b"a", b"b"])
    assert not packing.atomic


def test_a_dropped_state_is_removed_and_its_key_begins_again() -> None:
    first = state()
    for key in ("a", "b", "c"):
        first.load(key).events.append(1)
    stored: Any = dict(first.changes())
    second = state(stored=stored)
    for key in ("a", "b", "new"):
        second.load(key)
        second.drop(key)
    second.load("b").events.append(2)

    changes = dict(second.changes())

    assert changes["a"] is None
    assert "new" not in changes
    assert PICKLED.loads(changes["b"] or b"").events == [2]


def test_a_state_that_is_as_stored_again_after_it_was_dropped_is_not_written() -> None:
    first = state()
    first.load("a").events.append(1)
    second = state(stored=dict(first.changes()))  # type: ignore[arg-type]  # nothing was dropped
    second.load("a")
    second.drop("a")
    second.load("a").events.append(1)

    assert list(second.changes()) == []


@pytest.mark.parametrize(
    "events",
    [["a", "b", "a"], [b"a", "a"], ["1", 1], [1, True, 0, False], ["a", True], [7, 7]],
)
def test_events_that_are_their_own_keys_arrive_as_what_they_were(events: list[Any]) -> None:
    exchange = Exchange(1, 0, 0, tasks_by_group(1, 8), PICKLED)
    operator = emit_by_key(as_it_is, exchange, stop_on_error(as_it_is), stop_on_error(answer))

    for event in events:
        operator(None, event)

    ((_, block),) = exchange.drain(0, 1)
    keys, values = PICKLED.unpack(block.packed)
    assert [(type(value), value) for value in values] == [(type(each), each) for each in events]
    assert keys == events


def test_text_that_is_its_own_key_travels_once() -> None:
    exchange = Exchange(1, 0, 0, tasks_by_group(1, 8), PICKLED)
    by_key = emit_by_key(as_it_is, exchange, stop_on_error(as_it_is), stop_on_error(answer))
    for place in range(100):
        by_key(None, f"a word {place}")
    ((_, once),) = exchange.drain(0, 1)
    with_key = emit_with_key(exchange, stop_on_error(answer))
    for place in range(100):
        with_key(f"a word {place}", f"another {place}")
    ((_, twice),) = exchange.drain(0, 1)

    assert len(once.packed) < 0.6 * len(twice.packed)
