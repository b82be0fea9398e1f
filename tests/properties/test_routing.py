"""Where keys live: ranges of key groups, their owners, and the bytes of a key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallaroo.engine.blocks.keys import (
    Key,
    decode_key,
    encode_key,
    group_of,
    groups_of_task,
    normalize_key,
    tasks_by_group,
)
from wallaroo.engine.blocks.packing import PICKLED, packing_of
from wallaroo.engine.exchange.exchange import Exchange

parts = st.one_of(st.text(st.characters(codec=None)), st.binary(), st.integers())
keys = st.one_of(parts, st.lists(parts, min_size=1, max_size=3).map(tuple))
key_groups = st.integers(min_value=1, max_value=600)
tasks = st.integers(min_value=1, max_value=80)


@given(tasks, key_groups)
def test_the_tasks_share_the_key_groups_without_gap_or_overlap(tasks: int, key_groups: int) -> None:
    ranges = [groups_of_task(task, tasks, key_groups) for task in range(tasks)]

    assert [group for first, end in ranges for group in range(first, end)] == list(
        range(key_groups)
    )
    sizes = [end - first for first, end in ranges]
    assert max(sizes) - min(sizes) <= 1


@given(tasks, key_groups)
def test_the_owner_of_a_key_group_is_the_task_whose_range_holds_it(
    tasks: int, key_groups: int
) -> None:
    owners = tasks_by_group(tasks, key_groups)

    assert len(owners) == key_groups
    for group, owner in enumerate(owners):
        first, end = groups_of_task(owner, tasks, key_groups)
        assert first <= group < end


@given(keys)
def test_a_key_is_read_back_from_its_bytes(key: Key) -> None:
    decoded = decode_key(encode_key(key))

    assert decoded == key == normalize_key(key)
    assert type(decoded) is type(key)


@given(st.lists(keys, unique=True, max_size=20))
def test_different_keys_have_different_bytes(some: list[Key]) -> None:
    assert len({encode_key(key) for key in some}) == len(set(some))


@pytest.mark.parametrize(
    ("key", "encoded", "group"),
    [
        ("AAPL", b"sAAPL", 39),
        ("", b"s", 94),
        ("é", "sé".encode(), 115),
        (b"AAPL", b"bAAPL", 20),
        (b"", b"b", 117),
        (0, b"i0", 51),
        (-7, b"i-7", 8),
        (2**70, b"i1180591620717411303424", 69),
        ("\ud800", b"s\xed\xa0\x80", 116),
        (("AAPL", 7), b"t\0\0\0\5sAAPL\0\0\0\2i7", 21),
        ((b"",), b"t\0\0\0\1b", 110),
    ],
)
def test_a_key_stays_in_its_group_for_ever(key: Key, encoded: bytes, group: int) -> None:
    """Checkpoints depend on these very values; ``b2sum -l 64`` gives them too."""
    assert encode_key(key) == encoded
    assert group_of(encoded, 128) == group


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (1.5, "float"),
        (None, "NoneType"),
        (bytearray(b"x"), "bytearray"),
        ((), "an empty tuple"),
        (("a", 1.5), "float"),
        (("a", ("b",)), "a tuple in a tuple"),
        (["a"], "list"),
    ],
)
def test_other_types_are_no_keys(key: Any, shown: str) -> None:
    message = f"a key must be str, bytes, int, or a tuple of these, not {shown}$"
    for function in (encode_key, normalize_key):
        with pytest.raises(TypeError, match=message):
            function(key)


def test_an_equal_tuple_that_is_no_key_is_refused_whatever_came_before() -> None:
    exchange = Exchange(1, 0, 0, (0, 1), packing_of(None))
    exchange.route(("a", 1))

    assert exchange.routes[("a", 1.0)][0] is None, "so each event's own key is checked"
    assert exchange.route(("a", "b"))[0] == ("a", "b")


@given(
    st.lists(st.tuples(keys, st.integers()), max_size=60),
    st.integers(min_value=1, max_value=7),
    st.integers(min_value=1, max_value=5),
)
def test_an_exchange_loses_nothing_keeps_order_and_goes_to_the_owner(
    sent: list[tuple[str | bytes | int, int]], tasks: int, events_min: int
) -> None:
    owners = tasks_by_group(tasks, 16)
    exchange = Exchange(3, 1, 0, owners, PICKLED)
    received: dict[int, list[tuple[str | bytes | int, int]]] = {task: [] for task in range(tasks)}
    sequences = []

    for key, value in sent:
        _, into_keys, into_values, _ = exchange.routes.get(key) or exchange.route(key)
        into_keys.append(key)
        into_values.append(value)
        blocks = list(exchange.drain(0, events_min))
        for task, block in blocks:
            received[task] += list(zip(*packing_of(None).unpack(block.packed), strict=True))
            sequences.append(block.sequence)
    for task, block in exchange.drain(0, 1):
        received[task] += list(zip(*packing_of(None).unpack(block.packed), strict=True))
        sequences.append(block.sequence)

    for task, events in received.items():
        assert events == [
            (key, value) for key, value in sent if owners[group_of(encode_key(key), 16)] == task
        ]
    assert sequences == list(range(len(sequences)))
