"""State that expires: when its keys are due, and how it is stored."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wallaroo
from wallaroo.checkpoints.inspection.values import load_safely
from wallaroo.engine.blocks.ordered_keys import TIME_MAX, TIME_MIN, decode_time
from wallaroo.engine.blocks.packing import PICKLED, packing_of
from wallaroo.engine.stores.keyed_state import KeyedState
from wallaroo.engine.stores.last_use import last_use_of, with_last_use, without_last_use
from wallaroo.engine.stores.sorted_state import Groups
from wallaroo.engine.stores.ttl_index import TTLIndex
from wallaroo.engine.stores.ttl_state import TTLState
from wallaroo.testing.local_runner.entries import MemoryEntries

GROUPS = Groups(0, 4, 4)
ALL = 1_000_000


def taken_of(rows: TTLIndex, up_to_ns: int, most: int = ALL) -> list[tuple[int, Any]]:
    return [
        (decode_time(row.stored), key)
        for row, keys in rows.take(up_to_ns, most)
        for key in keys.values()
    ]


some_keys = st.sampled_from(["a", "b", b"a", 7, "k" * 1000])
times = st.integers(TIME_MIN, TIME_MAX)


@wallaroo.state_computation(name="kept", state=list, ttl=wallaroo.nanoseconds(5))
def kept(event: Any, state: list[Any]) -> None:
    state.append(event)


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), some_keys)), max_size=4), st.integers(1, 3))
def test_keys_expire_in_the_order_of_time_however_few_are_taken_per_batch(
    batches: list[list[tuple[int, Any]]], taken_at_once: int
) -> None:
    committed = MemoryEntries()
    for added in batches:
        rows = TTLIndex(committed, GROUPS)
        for time_ns, key in added:
            rows.add(time_ns, key)
        committed.apply(rows.changes())
    found: list[tuple[int, Any]] = []
    while (rows := TTLIndex(committed, GROUPS)).earliest_ns() is not None:
        taken = taken_of(rows, 9, taken_at_once)
        left = {pair for batch in batches for pair in batch} - {*found, *taken}
        assert rows.earliest_ns() == min((time for time, _ in left), default=None)
        committed.apply(rows.changes())
        found += taken

    assert [time for time, _ in found] == sorted(time for time, _ in found)
    assert len(found) == len(set(found))
    assert set(found) == {pair for batch in batches for pair in batch}
    assert not len(committed)


def test_keys_of_one_time_and_group_are_one_row() -> None:
    committed = MemoryEntries()
    rows = TTLIndex(committed, Groups(0, 1, 1))
    for number in range(1000):
        rows.add(5, number)
    committed.apply(rows.changes())

    assert len(committed) == 1
    again = TTLIndex(committed, Groups(0, 1, 1))
    assert len(taken_of(again, 5, 400)) == 400
    committed.apply(again.changes())
    assert len(taken_of(TTLIndex(committed, Groups(0, 1, 1)), 5)) == 600


def test_what_is_added_while_keys_are_taken_is_left() -> None:
    rows = TTLIndex(MemoryEntries(), GROUPS)
    rows.add(1, "a")
    for _, keys in rows.take(3, ALL):
        for key in keys.values():
            rows.add(6, key)

    assert rows.earliest_ns() == 6
    assert taken_of(rows, 6) == [(6, "a")]
    assert rows.earliest_ns() is None


@given(times, st.one_of(st.text(), st.lists(st.integers())))
def test_a_stored_state_is_a_pickle_of_the_state(used_ns: int, state: Any) -> None:
    stored = with_last_use(pickle.dumps(state, 5), used_ns)

    assert last_use_of(stored) == (None if used_ns == TIME_MIN else used_ns)
    assert pickle.loads(stored) == load_safely(stored) == state


def packed(state: Any) -> bytes:
    return b"own:" + repr(state).encode()


def unpacked(stored: bytes) -> Any:
    assert stored.startswith(b"own:")
    return eval(stored[4:])


@pytest.mark.parametrize("packing", [PICKLED, packing_of((packed, unpacked))])
def test_the_last_use_is_stored_with_the_state(packing: Any) -> None:
    stored: dict[Any, bytes | None] = {}
    first = TTLState(kept, stored.get, packing)
    first.load("a").append(1)
    first.last_use["a"] = 100
    first.load("timer only")
    stored.update(first.changes())

    second = TTLState(kept, stored.get, packing)

    assert (second.used_ns("a"), second.used_ns("timer only"), second.used_ns("b")) == (
        (100, None, None)
    )
    assert list(second.changes()) == []
    assert second.load("a") == [1]
    assert list(second.changes()) == []
    second.last_use["a"] = 101
    assert second.used_ns("a") == 101
    (change,) = second.changes()
    assert last_use_of(change[1] or b"") == 101
    second.drop("a")
    assert second.used_ns("a") is None
    assert list(second.changes()) == [("a", None)]


@pytest.mark.parametrize("packing", [PICKLED, packing_of((packed, unpacked))])
@pytest.mark.parametrize("state", [[], ["a"], [2**62], ["long" * 1000]])
def test_a_step_may_gain_a_ttl_and_lose_it(packing: Any, state: list[Any]) -> None:
    """A state without a last use has not been used, whatever its bytes are."""
    stored: dict[Any, bytes | None] = {"a": packing.dumps(state)}

    gained = TTLState(kept, stored.get, packing)
    assert gained.used_ns("a") is None
    assert gained.load("a") == state
    gained.last_use["a"] = 100
    stored.update(gained.changes())
    assert last_use_of(stored["a"] or b"") == 100

    lost = KeyedState(kept, stored.get, packing)
    assert lost.load("a") == state
    stored.update(lost.changes())
    assert stored == {"a": packing.dumps(state)}


@pytest.mark.parametrize("own", [b"own:[]", b"", pickle.dumps([], 5), b"\x80\x05\x00\x00"])
def test_what_the_application_packs_is_found_again(own: bytes) -> None:
    assert without_last_use(with_last_use(own, 7, is_pickled=False)) == own
    assert without_last_use(own) == own


def test_bytes_of_an_own_serializer_that_begin_as_a_pickle_does_are_kept() -> None:
    number = struct.Struct("<q")  # 1408 begins with the bytes 80 05
    packing = packing_of((lambda state: number.pack(*state), lambda raw: [*number.unpack(raw)]))
    stored: dict[Any, bytes | None] = {}
    first = TTLState(kept, stored.get, packing)
    first.load("a").append(1408)
    first.last_use["a"] = 100
    stored.update(first.changes())

    assert TTLState(kept, stored.get, packing).load("a") == [1408]
