"""Ordered entries: what a step keeps per key and sub, and what is due when, batch after batch."""

from __future__ import annotations

import pickle
from functools import partial
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallaroo.checkpoints.maintenance import editing
from wallaroo.dataflow.plan.model import PANES
from wallaroo.engine.blocks.keys import encode_key
from wallaroo.engine.blocks.ordered_keys import (
    TIME_MAX,
    TIME_MIN,
    after_prefix,
    decode_sub,
    due_key,
    encode_sub,
    join_key,
    key_prefix,
    split_due,
)
from wallaroo.engine.failures.error_context import blame_entries
from wallaroo.engine.stores.due_index import is_chunk
from wallaroo.engine.stores.operator_state import OperatorState
from wallaroo.engine.stores.sorted_state import (
    DUE,
    DUE_PROCESSING,
    ENTRIES,
    EXPIRY,
    Groups,
)
from wallaroo.errors import UserCodeError
from wallaroo.steps.kinds import Computation
from wallaroo.steps.windows.entries import Slot, pack_slot
from wallaroo.testing.local_runner.runner import MemoryEntries

PANE = pack_slot(Slot(1, 0))
GONE = b"cbuiltins\ngone\n."  # a pickle with a class that is not there
GROUPS = Groups(0, 8, 8)
LONG = "k" * 1000  # a key that is represented by its digest
times = st.integers(TIME_MIN, TIME_MAX)
names = st.text(max_size=3)
keys = st.sampled_from(["a", "b", b"a", 7, LONG])
subs = st.one_of(
    st.tuples(times, names),
    st.tuples(st.binary(max_size=3)),
)


class Committed:
    """Namespaces that survive batches."""

    def __init__(self, *, has_chunks: bool = False) -> None:
        self._has_chunks = has_chunks
        self.kinds = {kind: MemoryEntries() for kind in (ENTRIES, DUE, DUE_PROCESSING, EXPIRY)}

    def store(self) -> OperatorState:
        opened = self.kinds.__getitem__
        return OperatorState(
            opened, GROUPS, pickle.dumps, pickle.loads, has_chunks=self._has_chunks
        )

    def commit(self, store: OperatorState) -> int:
        """Write what changed; return how many entries that were."""
        written = 0
        for kind, changes in store.changes():
            listed = list(changes)
            self.kinds[kind].apply(listed)
            written += len(listed)
        return written


@given(st.lists(st.tuples(times, names), max_size=8))
def test_stored_subs_sort_as_the_subs_do(listed: list[Any]) -> None:
    assert [decode_sub(raw) for raw in sorted(map(encode_sub, listed))] == sorted(listed)


@given(st.one_of(times, names, st.binary(), subs, st.tuples(subs, names)))
def test_a_sub_is_found_again(sub: Any) -> None:
    assert decode_sub(encode_sub(sub)) == sub


@given(times, st.binary(min_size=1, max_size=600), subs)
def test_what_is_due_is_found_again(time_ns: int, key: bytes, sub: Any) -> None:
    stored = due_key(time_ns, key, sub)

    assert split_due(stored, join_key(key, b"x")) == (time_ns, key, sub, b"x")
    assert len(stored) <= 480


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_entries_of_a_key_are_those_between_its_prefix_and_the_next(one: bytes, two: bytes) -> None:
    stored = key_prefix(two) + encode_sub(1)

    assert (key_prefix(one) <= stored < after_prefix(key_prefix(one))) == (one == two)


@pytest.mark.parametrize("sub", [1.5, None, [1], ("a", None), True])
def test_a_sub_is_made_of_what_sorts(sub: Any) -> None:
    with pytest.raises(TypeError, match="int, str, bytes or a tuple"):
        encode_sub(sub)


def test_a_large_sub_is_refused() -> None:
    with pytest.raises(ValueError, match="may have 224 bytes"):
        encode_sub("x" * 300)


@pytest.mark.parametrize("key", ["a", LONG])
def test_only_touched_entries_are_written(key: str) -> None:
    committed = Committed()
    first = committed.store()
    for sub in range(1000):
        first.entries.put(key, sub, [sub])
    assert committed.commit(first) == 1000

    second = committed.store()
    second.entries.get(key, 5).append("changed")
    second.entries.get(key, 6)
    second.entries.delete(key, 7)

    assert committed.commit(second) == 2
    third = committed.store()
    assert third.entries.get(key, 5) == [5, "changed"]
    assert [sub for sub, _ in third.entries.scan(key)] == [s for s in range(1000) if s != 7]


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.entries.get("a", 1),
        lambda store: store.entries.peek("a", 1),
        lambda store: list(store.entries.scan("a")),
        lambda store: list(store.entries.between("a", 0, 9)),
        lambda store: store.loads(GONE),
        lambda store: store.panes.get(PANE, "a"),
        lambda store: list(store.panes.before(PANE + b"z")),
    ],
)
def test_the_step_whose_entries_cannot_be_read_is_named(read: Any) -> None:
    """The class of events that wait is gone, say."""
    kinds = {kind: MemoryEntries() for kind in (ENTRIES, DUE, DUE_PROCESSING, EXPIRY, PANES)}
    store = partial(
        *(OperatorState, kinds.__getitem__, GROUPS, lambda value: GONE, pickle.loads),
        has_panes=True,
    )
    before = store()
    assert before.panes is not None
    before.entries.put("a", 1, "x")
    before.panes.write(PANE, {"a": "x"})
    for kind, changes in before.changes():
        kinds[kind].apply(list(changes))

    step = Computation(str, "joined")
    with pytest.raises(UserCodeError) as caught:
        read(store(unreadable=partial(blame_entries, step)))
    error = caught.value
    assert (error.step, error.event) == ("joined", "events or accumulators in the checkpoint")
    assert error.cause.startswith("cannot be read back: AttributeError: Can't get attribute 'gone'")
    assert "--try-upgrade" in error.fix


def test_an_entry_that_came_and_went_within_a_batch_is_not_written() -> None:
    committed = Committed()
    store = committed.store()
    store.entries.put("a", 1, "x")
    store.due.add(5, "a", 1)
    store.entries.delete("a", 1)
    store.due.discard(5, "a", 1)

    assert committed.commit(store) == 0


def test_what_is_due_comes_in_the_order_of_time_and_what_is_added_meanwhile_too() -> None:
    committed = Committed()
    before = committed.store()
    before.due.add(30, "a", "x", 3)
    before.due.add(10, LONG, "x", 1)
    before.due.add(50, "a", "later")
    committed.commit(before)

    store = committed.store()
    store.due.add(20, "b", "new")
    seen = []
    for due in store.due.take(30):
        seen.append((due.time_ns, due.key, due.sub))
        if due.time_ns == 20:
            store.due.add(25, "c", "meanwhile")
            store.due.discard(30, "a", "x")

    assert seen == [(10, LONG, "x"), (20, "b", "new"), (25, "c", "meanwhile")]
    assert store.due.earliest_ns() == 50
    committed.commit(store)
    assert [due[:3] for due in committed.store().due.take(TIME_MAX)] == [(50, "a", "later")]


def test_rows_that_are_due_at_about_the_same_time_are_written_and_removed_together() -> None:
    committed = Committed(has_chunks=True)
    store = committed.store()
    assert list(store.due.take(0)) == []
    for number in range(8000):
        store.due.add(1_000_000 + number % 10, f"key {number}", 0)
        store.due.add(2_000_000 + number % 10, f"key {number}", 0)
    assert committed.commit(store) < 16_000 / 100

    for up_to, count in ((999_999, 0), (1_000_004, 4000), (1_500_000, 4000), (3_000_000, 8000)):
        store = committed.store()
        taken = list(store.due.take(up_to))
        assert len(taken) == count
        assert [row.time_ns for row in taken] == sorted(row.time_ns for row in taken)
        assert committed.commit(store) < 16_000 / 50
    assert len(committed.kinds[DUE]) == 0


def test_rows_that_are_due_one_after_the_other_are_written_again_a_few_times_only() -> None:
    committed = Committed(has_chunks=True)
    store = committed.store()
    list(store.due.take(0))
    for number in range(2000):
        store.due.add(1000 + 1000 * number, f"key {number}", 0)
    committed.commit(store)
    rows = 0
    for number in range(2000):
        store = committed.store()
        assert [due.time_ns for due in store.due.take(1500 + 1000 * number)] == [
            1000 + 1000 * number
        ]
        before = set(committed.kinds[DUE].scan(0, b"", b"\xff" * 9))
        committed.commit(store)
        after = set(committed.kinds[DUE].scan(0, b"", b"\xff" * 9)) - before
        rows += sum(len(pickle.loads(value)) if is_chunk(name) else 1 for name, value in after)
    # those of one group of eight
    assert rows < 4 * 2000 / 8


def test_the_rows_of_other_keys_stay_when_a_key_is_removed_by_hand() -> None:
    committed = Committed(has_chunks=True)
    store = committed.store()
    for number in range(100):
        store.due.add(10, f"key {number}", 0)
    committed.commit(store)
    for group in range(8):
        for name, value in committed.kinds[DUE].scan(group, b"", b"\xff" * 9):
            assert editing._without({encode_key("key 1")}, DUE, name, value) == value


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, subs, st.integers()),
        st.tuples(st.just("delete"), keys, subs),
        st.tuples(st.just("add"), st.integers(0, 50), keys, subs),
        st.tuples(st.just("discard"), st.integers(0, 50), keys, subs),
        st.tuples(st.just("take"), st.integers(0, 50)),
        st.tuples(st.just("take some"), st.integers(0, 50), st.integers(0, 3)),
        st.tuples(st.just("scan"), keys),
        st.tuples(st.just("commit")),
        st.tuples(st.just("crash")),
    ),
    max_size=40,
)


@given(steps, st.booleans())
def test_a_store_does_what_dictionaries_would(
    actions: list[tuple[Any, ...]], has_chunks: bool
) -> None:
    committed = Committed(has_chunks=has_chunks)
    store = committed.store()
    entries: dict[Any, Any] = {}
    due: set[Any] = set()
    kept = dict(entries), set(due)
    for kind, *rest in actions:
        if kind == "put":
            key, sub, value = rest
            store.entries.put(key, sub, value)
            entries[key, sub] = value
        elif kind == "delete":
            store.entries.delete(*rest)
            entries.pop(tuple(rest), None)
        elif kind == "add":
            store.due.add(*rest)
            due.add(tuple(rest))
        elif kind == "discard" and has_chunks:
            continue
        elif kind == "discard":
            store.due.discard(*rest)
            due.discard(tuple(rest))
        elif kind == "take":
            taken = [row[:3] for row in store.due.take(rest[0])]
            wanted = {row for row in due if row[0] <= rest[0]}
            assert set(taken) == wanted
            assert len(taken) == len(wanted)
            assert [row[0] for row in taken] == sorted(row[0] for row in wanted)
            due -= wanted
        elif kind == "take some":
            some = {row[:3] for row in islice(store.due.take(rest[0]), rest[1])}
            wanted = {row for row in due if row[0] <= rest[0]}
            assert some <= wanted
            assert len(some) == min(rest[1], len(wanted))
            left = wanted - some
            assert max((row[0] for row in some), default=0) <= min(
                (row[0] for row in left), default=50
            )
            due -= some
        elif kind == "scan":
            found = {sub: value for (key, sub), value in entries.items() if key == rest[0]}
            assert dict(store.entries.scan(rest[0])) == found
        else:
            if kind == "commit":
                committed.commit(store)
                kept = dict(entries), set(due)
            entries, due = dict(kept[0]), set(kept[1])
            store = committed.store()
        assert store.due.earliest_ns() == min((row[0] for row in due), default=None)
        for key in ("a", LONG):
            mine = {sub: value for (own, sub), value in entries.items() if own == key}
            assert dict(store.entries.scan(key)) == mine
