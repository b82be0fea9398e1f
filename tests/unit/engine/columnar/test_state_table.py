"""States in a table are stored key by key, as pickles of dicts."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wallaroo
from wallaroo.checkpoints.inspection.values import load_safely
from wallaroo.engine.blocks.packing import PICKLED
from wallaroo.engine.columnar.keys import keys_of_list
from wallaroo.engine.columnar.state_table import StateTable, row_pickle
from wallaroo.errors import UserCodeError

LAYOUT = np.dtype(
    [("n", "i8"), ("m", "<u2"), ("x", ">f4"), ("on", "?"), ("name", "S3"), ("u", "u8")], align=True
)
values = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**16 - 1),
    st.floats(width=32, allow_nan=False),
    st.booleans(),
    st.binary(max_size=3).map(lambda name: name.rstrip(b"\0")),
    st.integers(0, 2**64 - 1),
)


def table(stored: dict[Any, bytes], layout: Any = LAYOUT, initial: Any = None) -> StateTable:
    @wallaroo.batch_state_computation("own", state=layout, initial=initial)
    def own(rows: list[Any], at: Any, states: Any) -> None:
        """Only its state matters here."""

    return StateTable(own, stored.get, PICKLED)


@given(st.lists(values, min_size=1))
@settings(max_examples=40, deadline=None)
def test_states_are_read_back_as_they_were(rows: list[Any]) -> None:
    keys = [f"key {number}" for number in range(len(rows))]
    first = table({})
    at = first.at(keys_of_list(keys))
    first.states[at] = np.array(rows, LAYOUT)

    stored = {key: raw for key, raw in first.changes() if raw is not None}

    assert stored.keys() == set(keys)
    names = LAYOUT.names or ()
    for key, row in zip(keys, np.array(rows, LAYOUT).tolist(), strict=True):
        found = pickle.loads(stored[key])
        found["name"] = found["name"].rstrip(b"\0")
        assert found == dict(zip(names, row, strict=True))
        assert isinstance(load_safely(stored[key]), dict)  # as `wallaroo state` reads it
    again = table(stored)
    again.at(keys_of_list(keys))
    assert again.states.tolist() == np.array(rows, LAYOUT).tolist()
    assert list(again.changes()) == []


def test_a_new_key_begins_as_it_is_said() -> None:
    own = table({}, [("n", "i4"), ("on", "?")], (7, True))

    own.at(keys_of_list(["a", "b"]))

    assert own.states.tolist() == [(7, True), (7, True)]
    assert own.keys.tolist() == ["a", "b"]
    assert [key for key, _ in own.changes()] == ["a", "b"]


def test_fields_may_come_and_go_and_change_their_width() -> None:
    old = table({}, [("n", "i4"), ("gone", "i8")])
    old.at(keys_of_list(["a"]))
    old.states["n"] = 5
    stored = {key: raw for key, raw in old.changes() if raw is not None}

    new = table(stored, [("n", "f8"), ("come", "U4")], (0, "new"))
    new.at(keys_of_list(["a"]))

    assert new.states.tolist() == [(5.0, "new")]


NANOSECONDS = np.datetime64("2020-01-01T00:00:00.123456789")
NARROWED = [
    ("f8", 1.75, "i8"),
    ("f8", 0.1, "f4"),
    ("f8", math.nan, "i8"),
    ("i8", 300, "i1"),
    ("i8", -1, "u8"),
    ("u8", 2**64 - 1, "i8"),
    ("S10", b"longername", "S4"),
    ("U8", "longtext", "U2"),
    ("U8", "7", "i8"),
    ("M8[ns]", NANOSECONDS, "M8[us]"),
    ("M8[ns]", NANOSECONDS, "M8[s]"),
    ("M8[ns]", NANOSECONDS, "i8"),
    ("M8[ns]", NANOSECONDS, "U40"),
    ("M8[ns]", NANOSECONDS, "m8[ns]"),
    ("M8[us]", np.datetime64("2020-01-01T00:00:00.5"), "M8[s]"),
    ("M8[s]", np.datetime64("2020-01-01T00:00:01"), "M8[D]"),
    ("M8[us]", np.datetime64("5000-01-01"), "M8[ns]"),
    ("i8", 7, "M8[us]"),
    ("m8[us]", np.timedelta64(1500, "us"), "m8[ms]"),
    ("m8[ns]", np.timedelta64(1500, "ns"), "m8[us]"),
]


@pytest.mark.parametrize(("before", "value", "after"), NARROWED)
def test_a_value_that_a_new_dtype_does_not_hold_is_not_cut(
    before: str, value: Any, after: str
) -> None:
    old = table({}, [("v", before), ("n", "i8")])
    old.at(keys_of_list(["a"]))
    old.states["v"] = value
    stored = {key: raw for key, raw in old.changes() if raw is not None}

    with pytest.raises(UserCodeError, match=r"field 'v' is stored as .*\n.*state of key 'a'"):
        table(stored, [("v", after), ("n", "i8")]).at(keys_of_list(["a"]))


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("i8", 7, "i1"),
        ("f8", 0.5, "f4"),
        ("f8", math.nan, "f4"),
        ("S10", b"name", "S4"),
        ("S4", b"ab", "S10"),
        ("i1", -3, "f8"),
        ("U8", "text", "U4"),
        ("M8[ns]", NANOSECONDS, "M8[ns]"),
        ("M8[ns]", np.datetime64("2020-01-01T00:00:00.5"), "M8[us]"),
        ("M8[ns]", np.datetime64("NaT"), "M8[s]"),
        ("M8[us]", np.datetime64("20000-01-01"), "M8[us]"),  # Python's times end before
        ("M8[s]", np.datetime64("2020-01-01T00:00:01"), "M8[ns]"),
        ("M8[D]", np.datetime64("2020-01-01"), "M8[us]"),
        ("m8[ns]", np.timedelta64(1500, "ns"), "m8[ns]"),
        ("m8[D]", np.timedelta64(2, "D"), "m8[s]"),
    ],
)
def test_a_value_that_a_new_dtype_holds_is_kept(before: str, value: Any, after: str) -> None:
    old = table({}, [("v", before), ("n", "i8")])
    old.at(keys_of_list(["a"]))
    old.states["v"] = value
    stored = {key: raw for key, raw in old.changes() if raw is not None}

    new = table(stored, [("v", after), ("n", "i8")])
    new.at(keys_of_list(["a"]))

    kept = new.states["v"][0]
    assert kept == value or (kept != kept and value != value)


def test_times_that_an_earlier_version_stored_without_a_unit_are_read() -> None:
    stored = {"a": PICKLED.dumps({"t": 5, "d": [5, None]})}
    own = table(stored, [("t", "M8[ns]"), ("d", "m8[ns]", (2,))])
    own.at(keys_of_list(["a"]))

    assert own.states["t"][0] == np.datetime64(5, "ns")
    assert own.states["d"][0].astype("i8")[0] == 5
    with pytest.raises(UserCodeError, match="field 't' is stored as 5, which <M8"):
        table(stored, [("t", "M8[us]")]).at(keys_of_list(["a"]))


@pytest.mark.parametrize(
    "layout", [[("u", "U3"), ("v", "i4", (2,))], [("when", "M8[s]"), ("c", "c16")]], ids=repr
)
def test_fields_whose_pickles_vary_are_stored_as_well(layout: Any) -> None:
    assert row_pickle(np.dtype(layout)) is None
    first = table({}, layout)
    first.at(keys_of_list(["a"]))
    stored = {key: raw for key, raw in first.changes() if raw is not None}

    again = table(stored, layout)
    again.at(keys_of_list(["a"]))

    assert again.states.tobytes() == first.states.tobytes()
    assert list(again.changes()) == []


def test_a_state_that_cannot_be_read_stops_the_run() -> None:
    with pytest.raises(UserCodeError, match="state of key 'a'"):
        table({"a": b"no pickle"}).at(keys_of_list(["a"]))


def test_states_grow_and_keep_their_places() -> None:
    own = table({}, [("n", "i8")])
    for number in range(5000):
        [at] = own.at(keys_of_list([number]))
        own.states["n"][at] = number * number

    assert own.states["n"].tolist() == [number * number for number in range(5000)]


class Book:
    def __init__(self) -> None:
        self.lines: list[int] = []


def test_states_may_be_objects() -> None:
    @wallaroo.batch_state_computation("book", state=Book)
    def book(rows: list[int], at: Any, states: Any) -> None:
        """Only its state matters here."""

    stored = {"a": PICKLED.dumps(Book())}
    own = StateTable(book, stored.get, PICKLED)
    at = own.at(keys_of_list(["a", "b"]))
    own.states[at[1]].lines.append(3)

    changes = dict(own.changes())

    assert list(changes) == ["b"]
    assert pickle.loads(changes["b"] or b"").lines == [3]
