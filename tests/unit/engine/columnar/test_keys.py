"""Keys of columns are the keys that the per-event path would see, and live where it would put
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallaroo.engine.blocks.blocks import in_order
from wallaroo.engine.blocks.keys import (
    encode_key,
    group_of,
    normalize_key,
    tasks_by_group,
)
from wallaroo.engine.blocks.packing import PICKLED
from wallaroo.engine.columnar.columns.word_table import words_of
from wallaroo.engine.columnar.exchange import ColumnExchange
from wallaroo.engine.columnar.keys import Coder, PlainKeys, keys_of_column
from wallaroo.engine.columnar.packing import unpacker
from wallaroo.vectorized.row_error import RowError

GROUPS = 128
TASKS = 5

PAIR = pa.struct([("a", pa.string()), ("b", pa.int64())])
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)
columns = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1)).map(lambda keys: np.array(keys, "i8")),
    st.lists(st.integers(0, 2**64 - 1)).map(lambda keys: np.array(keys, "u8")),
    st.lists(st.integers(-(2**15), 2**15 - 1)).map(lambda keys: np.array(keys, ">i2")),
    st.lists(st.booleans()).map(lambda keys: np.array(keys, bool)),
    *(
        st.lists(st.binary(max_size=size)).map(lambda keys, size=size: np.array(keys, f"S{size}"))
        for size in (1, 3, 4, 7, 8, 13, 24)
    ),
    st.lists(st.binary(min_size=6, max_size=6)).map(lambda keys: np.array(keys, "V6")),
    st.lists(texts).map(lambda keys: np.array(keys, "U9")),
    st.lists(texts).map(lambda keys: np.array(keys, object)),
    st.lists(texts).map(lambda keys: pa.array(keys, pa.string())),
    st.lists(st.binary(max_size=5)).map(lambda keys: pa.array(keys, pa.binary())),
    st.lists(st.integers(-9, 9)).map(lambda keys: pa.array(keys, pa.int64())),
    st.lists(texts).map(lambda keys: pa.array(keys, pa.string()).dictionary_encode()),
    st.lists(st.tuples(texts, st.integers(-9, 9))).map(list),
    st.lists(st.tuples(st.binary(max_size=3), st.integers(-9, 9))).map(
        lambda keys: np.array(keys, "S3,i4")
    ),
    st.lists(st.tuples(texts, st.integers(-9, 9))).map(
        lambda keys: pa.array([{"a": a, "b": b} for a, b in keys], PAIR)
    ),
)


def listed(column: Any) -> list[Any]:
    """The keys, as the per-event path has them."""
    keys = column if isinstance(column, list) else column.tolist()
    return [normalize_key(tuple(key.values()) if type(key) is dict else key) for key in keys]


def owner(key: Any) -> int:
    return tasks_by_group(TASKS, GROUPS)[group_of(encode_key(key), GROUPS)]


def put(blocks: Sequence[Any]) -> dict[int, list[tuple[Any, int]]]:
    """What each task gets: keys, with the number of their row."""
    exchange = ColumnExchange(1, 0, 0, tasks_by_group(TASKS, GROUPS), PICKLED)
    at = 0
    for column in blocks:
        exchange.put(
            keys_of_column(column, len(column)), np.arange(at, at + len(column), dtype="i8")
        )
        at += len(column)
    unpack = unpacker(PICKLED)
    found: dict[int, list[tuple[Any, int]]] = {}
    for task, block in exchange.drain(0, 1):
        keys, rows = unpack(block.packed)
        found.setdefault(task, []).extend(zip(keys.tolist(), rows.tolist(), strict=True))
    return found


@given(st.lists(columns, max_size=4))
@settings(max_examples=60, deadline=None)
def test_each_key_goes_where_the_scalar_function_sends_it_in_its_order(blocks: list[Any]) -> None:
    keys = [key for column in blocks for key in listed(column)]

    found = put(blocks)

    for task, rows in found.items():
        assert rows == [(keys[row], row) for _, row in rows]
        assert [row for _, row in rows] == sorted(row for _, row in rows)
        assert {owner(key) for key, _ in rows} == {task}
    assert sum(map(len, found.values())) == len(keys)


@given(st.lists(columns, max_size=5))
@settings(max_examples=60, deadline=None)
def test_equal_keys_have_one_number_whatever_the_columns(blocks: list[Any]) -> None:
    coder = Coder()
    numbers: dict[Any, int] = {}
    for column in blocks:
        codes = coder.codes(keys_of_column(column, len(column)))
        for key, code in zip(listed(column), codes.tolist(), strict=True):
            assert numbers.setdefault(key, code) == code
            assert coder.keys[code] == key
            assert type(coder.keys[code]) is type(key)
    assert len(set(numbers.values())) == len(numbers) == len(coder.keys)


def test_many_keys_are_found_again_though_the_table_grows() -> None:
    keys = np.random.default_rng(1).permutation(50_000).astype("i8") * 4096
    coder = Coder()

    first = [coder.codes(PlainKeys(part)) for part in np.array_split(keys, 13)]
    again = coder.codes(PlainKeys(keys))

    assert np.array_equal(np.concatenate(first), again)
    assert np.array_equal(np.array(coder.keys)[again], keys)


def test_words_hold_all_bytes_of_a_strided_column() -> None:
    rows = np.array([(1, b"ABCDEFGHIJKLM"), (2, b"x")], [("n", "u1"), ("key", "S13")])

    low, high = words_of(rows["key"])

    content = np.stack([low, high], axis=1).tobytes()
    assert content == b"ABCDEFGHIJKLM".ljust(16, b"\0") + b"x".ljust(16, b"\0")


@pytest.mark.parametrize(
    "column",
    [
        np.array([1.5]),
        [1.5],
        np.array([[1]]),
        np.array([(1.5,)], [("a", "f4")]),
        [(1, 1.5)],
        pa.array([{"a": 1.5}]),
        "a",
        pa.array([None]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_key_is_refused(column: Any) -> None:
    with pytest.raises((TypeError, RowError, ValueError)):
        keys_of_column(column, 1)


def test_a_row_without_a_key_is_named() -> None:
    with pytest.raises(RowError) as caught:
        keys_of_column(pa.array(["a", None, "b"]), 3)

    assert np.flatnonzero(caught.value.rows).tolist() == [1]


def test_what_was_put_into_an_exchange_does_not_change() -> None:
    exchange = ColumnExchange(1, 0, 0, (0,), PICKLED)
    rows = np.array([1, 2, 3])

    exchange.put(keys_of_column(np.array([b"a"] * 3), 3), rows)
    rows[:] = 0

    [(_, block)] = exchange.drain(0, 1)
    assert unpacker(PICKLED)(block.packed)[1].tolist() == [1, 2, 3]


def test_rows_of_several_dtypes_become_several_blocks_in_order() -> None:
    exchange = ColumnExchange(1, 0, 0, (0,), PICKLED)
    some: list[Any] = [np.array([1]), np.array([2]), pa.RecordBatch.from_pydict({"a": [3]}), [4]]
    for rows in some:
        exchange.put(keys_of_column([7], 1), rows)

    blocks = list(in_order([block for _, block in exchange.drain(0, 1)]))

    assert [block.events for block in blocks] == [2, 1, 1]
    unpacked = [unpacker(PICKLED)(block.packed)[1] for block in blocks]
    assert unpacked[0].tolist() == [1, 2]
    assert unpacked[1].to_pylist() == [{"a": 3}]
    assert unpacked[2] == [4]


def test_bytes_between_fields_do_not_travel() -> None:
    layout = np.dtype(
        {"names": ["a", "b"], "formats": ["i4", "S2"], "offsets": [0, 40], "itemsize": 50}
    )
    rows = np.zeros(1000, layout)
    rows["b"] = b"xy"
    exchange = ColumnExchange(1, 0, 0, (0,), PICKLED)

    exchange.put(keys_of_column(rows["a"], 1000), rows)

    [(_, block)] = exchange.drain(0, 1)
    assert len(block.packed) < 1000 * 6 + 1000  # keys are a field, and do not travel twice
    keys, unpacked = unpacker(PICKLED)(block.packed)
    assert keys.tolist() == rows["a"].tolist()
    assert unpacked.tolist() == rows.tolist()
