"""The rules of each operator, by itself."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

import wallaroo
from wallaroo.engine.blocks import PICKLED, Frozen, freeze, packing_of
from wallaroo.engine.exchange import Exchange
from wallaroo.engine.failures import stop_on_error
from wallaroo.engine.keyed_state import KeyedState
from wallaroo.engine.keys import tasks_by_group
from wallaroo.engine.operators import (
    as_bytes,
    as_list,
    compute,
    compute_multi,
    compute_state,
    leave_by_key,
    leave_encoded,
    leave_to_all,
)
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


def run(build: Any, step: Any, *events: Any) -> list[tuple[Any, Any]]:
    """Give events with key k; return what is emitted."""
    emitted: list[tuple[Any, Any]] = []
    operator = build(step, lambda key, output: emitted.append((key, output)), stop_on_error(step))
    for event in events:
        operator("k", event)
    return emitted


def state(step: Any = see, stored: dict[Any, bytes] | None = None) -> KeyedState:
    return KeyedState(step, (stored or {}).get, PICKLED)


def test_none_filters_and_other_false_values_do_not() -> None:
    assert run(compute, answer, None, 0, "", [], False) == [
        ("k", 0),
        ("k", ""),
        ("k", []),
        ("k", False),
    ]


def test_each_item_of_a_multi_is_an_output_with_the_events_key() -> None:
    assert run(
        compute_multi, answers, [1, None, [2]], (), None, (3,), deque([4]), iter([5]), range(6, 7)
    ) == [("k", output) for output in (1, [2], 3, 4, 5, 6)]


@pytest.mark.parametrize("output", ["text", b"bytes", bytearray(b"x"), {"a": 1}, 7, object])
def test_one_value_is_not_a_list_of_outputs(output: Any) -> None:
    with pytest.raises(
        TypeError, match=f"must return a list, this one returned {type(output).__name__}"
    ):
        as_list(output)


@pytest.mark.parametrize(
    "output", ["é", "é".encode(), bytearray("é", "utf-8"), memoryview("é".encode())]
)
def test_an_encoder_gives_bytes_or_text(output: Any) -> None:
    assert as_bytes(output) == b"\xc3\xa9"


def test_an_encoder_may_write_nothing_or_nothing_much() -> None:
    written: list[bytes] = []
    operator = leave_encoded(encoded, written.append, stop_on_error(encoded))

    for event in (None, "", b"x"):
        operator(None, event)

    assert written == [b"", b"x"]


def test_an_output_goes_to_all_sinks_in_their_order() -> None:
    taken: list[tuple[str, Any]] = []
    ways = [lambda _, event, name=name: taken.append((name, event)) for name in "ab"]

    operator = leave_to_all(list(ways))
    operator("k", 1)
    operator("k", 2)

    assert taken == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_state_is_made_when_its_keys_first_event_comes_and_once() -> None:
    own, before = state(), Seen.made
    operator = compute_state(see, own, lambda key, output: None, stop_on_error(see))
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
        run(
            lambda step, emit, failed: compute_state(step, state(step), emit, failed), unmakeable, 1
        )
    assert (caught.value.step, caught.value.event) == ("unmakeable", "state of key 'k'")


def test_stored_state_that_cannot_be_read_is_told_with_its_key() -> None:
    with pytest.raises(UserCodeError) as caught:
        state(stored={"k": b"no pickle"}).load("k")
    assert (caught.value.step, caught.value.event) == ("see", "state of key 'k'")


def test_behind_state_an_event_leaves_as_it_was_when_it_was_emitted() -> None:
    exchange = Exchange(1, 0, 0, tasks_by_group(1, 4), PICKLED)
    operator = leave_by_key(
        wallaroo.key_extractor("constant")(lambda event: "k"),
        exchange,
        stop_on_error(as_it_is),
        (freeze, stop_on_error(see)),
    )
    event = Seen()
    for number in range(3):
        event.events.append(number)
        operator(None, event)

    ((_, block),) = exchange.drain(0, 1)

    _, values = PICKLED.unpack(block.packed)
    assert [value.events for value in values] == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize("value", ["a", b"a", 1, 1.5, True, None])
def test_what_nobody_can_change_is_not_copied(value: Any) -> None:
    assert freeze(value) is value


def test_what_somebody_can_change_is_copied() -> None:
    assert isinstance(freeze([1]), Frozen)
    assert isinstance(freeze((1,)), Frozen)


def test_equal_keys_share_a_bucket_and_the_first_of_them_travels() -> None:
    exchange = Exchange(1, 0, 0, tasks_by_group(3, 16), PICKLED)
    operator = leave_by_key(as_it_is, exchange, stop_on_error(as_it_is), None)
    first, second = "".join(["k", "ey"]), "".join(["ke", "y"])

    operator(None, first)
    operator(None, second)

    ((_, block),) = exchange.drain(0, 1)
    keys, values = PICKLED.unpack(block.packed)
    assert keys == values == ["key", "key"]
    assert keys[0] is keys[1]


def test_an_event_that_cannot_be_packed_is_found_among_the_others() -> None:
    exchange = Exchange(1, 0, 0, tasks_by_group(1, 4), PICKLED, stop_on_error(answer))
    operator = leave_by_key(
        wallaroo.key_extractor("constant")(lambda event: "k"),
        exchange,
        stop_on_error(as_it_is),
        None,
    )
    for event in (1, 2, (lambda: None), 3):
        operator(None, event)

    with pytest.raises(UserCodeError) as caught:
        list(exchange.drain(0, 1))

    assert caught.value.step == "answer"
    assert "<lambda>" in caught.value.event


def test_own_packing_is_applied_to_each_value_but_not_to_keys() -> None:
    packing = packing_of((lambda value: b"<%s>" % value, lambda packed: packed[1:-1]))

    packed = packing.pack(["k", 1], [b"a", b"b"])

    assert b"<a>" in packed
    assert packing.unpack(packed) == (["k", 1], [b"a", b"b"])
    assert packing.freeze(bytearray(b"x")) == b"x"
    assert packing.freeze("x") == "x"
