"""State that expires: when its keys are due, and how it is stored."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wallaroo
from tests.conformance.apps.shapes import Count, build
from tests.conformance.apps.steps import by_first_word, sink, source
from wallaroo.checkpoints.inspection.values import load_safely
from wallaroo.dataflow.plan.timing import noted_timing, with_uses_marked
from wallaroo.engine.blocks.ordered_keys import TIME_MAX, TIME_MIN, decode_time
from wallaroo.engine.blocks.packing import PICKLED, packing_of
from wallaroo.engine.stores.keyed_state import KeyedState
from wallaroo.engine.stores.last_use import (
    NEVER,
    last_use_of,
    with_last_use,
    without_last_use,
)
from wallaroo.engine.stores.sorted_state import Groups
from wallaroo.engine.stores.ttl_index import TTLIndex
from wallaroo.engine.stores.ttl_state import TTLState
from wallaroo.steps.times import TIME_LIMIT_NS
from wallaroo.testing.local_runner.runner import Input, LocalRunner, MemoryEntries

GROUPS = Groups(0, 4, 4)
NOWHERE = Path("/nowhere")
ALL = 1_000_000


def taken_of(rows: TTLIndex, up_to_ns: int, most: int = ALL) -> list[tuple[int, Any]]:
    return [
        (decode_time(row.stored), key)
        for row, keys in rows.take(up_to_ns, most)
        for key in keys.values()
    ]


some_keys = st.sampled_from(["a", "b", b"a", 7, "k" * 1000])
times = st.integers(TIME_MIN, TIME_MAX)
uses = st.integers(1 - TIME_LIMIT_NS, TIME_LIMIT_NS - 1)


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


@given(st.just(NEVER) | uses, st.one_of(st.text(), st.lists(st.integers())), st.booleans())
def test_a_stored_state_is_a_pickle_of_the_state(used_ns: int, state: Any, marked: bool) -> None:
    """A time of the other kind than the present ones does not count."""
    stored = with_last_use(pickle.dumps(state, 5), used_ns, is_marked=marked)

    assert last_use_of(stored, is_marked=marked) == (None if used_ns == NEVER else used_ns)
    assert last_use_of(stored, is_marked=not marked) is None
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


# -- a step whose ttl_time changed

TODAY = wallaroo.seconds(1_800_000_000)
MINUTE = wallaroo.minutes(1)


def counting(ttl_time: str) -> wallaroo.Application:
    options: dict[str, Any] = {"ttl": MINUTE, "ttl_time": ttl_time} if ttl_time else {}
    step = wallaroo.state_computation("counts", state=Count, **options)(counted)
    timed = source(NOWHERE).with_event_time(second_word, allow_before_1980=True)
    return build("timed", timed.key_by(by_first_word).to(step).to_sink(sink(NOWHERE)))


def second_word(event: str) -> float:
    return float(event.split()[1])


def counted(event: str, own: Count) -> None:
    own.count += 1


class Changing:
    """An application that continues by other times, as from its checkpoint."""

    def __init__(self) -> None:
        self._runner = LocalRunner(counting("").plan)
        self._noted: dict[str, Any] = {}

    def by(self, ttl_time: str) -> None:
        before = self._runner
        plan = with_uses_marked(counting(ttl_time).plan, self._noted)
        self._noted = noted_timing(plan)
        self._runner = LocalRunner(plan)
        self._runner.state = before.state
        self._runner.entries = before.entries
        self._runner.time = before.time
        self._runner.batch = before.batch

    def batch(self, *lines: str, clock: float = 0, event: float = 0) -> dict[Any, int]:
        """Run one batch; return the counts by key.  The clock is seconds after ``TODAY``."""
        frames = b"".join(self._runner.frames(0, line.encode()) for line in lines)
        pieces = [[Input(0, frames, 0)]] if lines else []
        moment = TODAY + wallaroo.seconds(clock)
        found = self._runner.run_batch(pieces, 1, wallaroo.seconds(event), clock_ns=moment)
        self._runner.commit(found)
        return {key: own.count for key, own in self._runner.states("counts").items()}


def test_state_that_expired_by_event_time_counts_by_the_clock_from_the_first_batch_on() -> None:
    """Event times may be of any past year: as times of the clock, all have passed."""
    changing = Changing()
    changing.by("event")
    changing.batch("a 100", "b 100")

    changing.by("processing")

    assert changing.batch("a 101") == {"a": 2, "b": 1}
    assert changing.batch("a 102", clock=59) == {"a": 3, "b": 1}
    assert changing.batch(clock=61) == {"a": 3}
    assert changing.batch(clock=120) == {}


def test_state_that_expired_by_the_clock_counts_by_event_time_from_an_event_on() -> None:
    """Without one it counts from when event time passes the end of its former time."""
    changing = Changing()
    changing.by("processing")
    changing.batch("a 100", "b 100")

    changing.by("event")

    today = TODAY // wallaroo.seconds(1)
    assert changing.batch("a 101") == {"a": 2, "b": 1}
    assert changing.batch(event=162) == {"b": 1}
    assert changing.batch(event=today + 61) == {"b": 1}
    assert changing.batch(event=today + 122) == {}


@pytest.mark.parametrize("between", ["processing", "", "event"])
def test_times_count_again_if_expiry_goes_back_to_them(between: str) -> None:
    changing = Changing()
    changing.by("event")
    changing.batch("a 100", "b 200")
    changing.by(between)
    changing.by("event")

    assert changing.batch(event=170) == {"b": 1}


def test_a_ttl_of_another_kind_after_none_does_not_use_the_times_of_the_first() -> None:
    changing = Changing()
    changing.by("event")
    changing.batch("a 100")
    changing.by("")
    changing.by("processing")

    assert changing.batch(clock=1) == {"a": 1}
    assert changing.batch(clock=62) == {}
