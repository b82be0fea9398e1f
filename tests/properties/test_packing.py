"""A block's values, however they are mixed, arrive as if each had been pickled by itself when it
was emitted.
"""

from __future__ import annotations

import copy
import pickle
import sys
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from wallaroo.engine.blocks import pickling
from wallaroo.engine.blocks.packing import PICKLED, pack


@dataclass
class Box:
    content: Any = None
    also: list[Any] = field(default_factory=list)


class Pair(NamedTuple):
    left: Any
    right: Any


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("not this one")


class Slotted:
    __slots__ = ("content",)

    def __init__(self, content: Any):
        self.content = content

    def __eq__(self, other: object) -> bool:
        return type(other) is Slotted and other.content == self.content

    __hash__ = None  # type: ignore[assignment]  # it can change


atoms = st.one_of(
    st.text(max_size=5),
    st.binary(max_size=5),
    st.integers(),
    st.booleans(),
    st.floats(allow_nan=False),
)
# larger than pickle's frames
large = st.tuples(st.integers(0, 255), st.integers(70_000, 70_001)).map(
    lambda drawn: bytes([drawn[0]]) * drawn[1]
)
values = st.recursive(
    st.one_of(atoms, st.none(), st.just(Box), large),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Box, inner),
        st.builds(Pair, inner, inner),
        st.builds(Slotted, inner),
    ),
    max_leaves=6,
)
streams = st.lists(
    st.one_of(
        values, st.tuples(atoms, atoms), atoms, st.just(Unpicklable()), st.just([Unpicklable()])
    ),
    max_size=30,
)


def add(column: Any, value: Any) -> bool:
    """As exits do."""
    if type(value) in PICKLED.atomic:
        column.atoms.append(value)
        return True
    try:
        column.put(value)
    except TypeError:
        return False
    return True


def same(arrived: list[Any], expected: list[Any]) -> None:
    assert arrived == expected
    assert [type(value) for value in arrived] == [type(value) for value in expected]


@given(st.lists(streams, min_size=1, max_size=3))
def test_values_arrive_as_they_were_when_they_were_emitted(blocks: list[list[Any]]) -> None:
    column = PICKLED.column()
    for block in blocks:
        expected = []
        for value in block:
            if add(column, value):
                expected.append(pickle.loads(pickle.dumps(value)))
            if isinstance(value, list):
                value.append("changed later")
        keys = list(range(len(expected)))

        arrived_keys, arrived = PICKLED.unpack(pack(keys, column))

        assert arrived_keys == keys
        same(arrived, expected)


@given(st.lists(st.lists(st.integers(0, 3), max_size=3), max_size=12))
def test_shared_objects_are_shared_within_an_event_only(shares: list[list[int]]) -> None:
    shared = [Box(number) for number in range(4)]
    column = PICKLED.column()
    for share in shares:
        column.put([shared[number] for number in share])

    arrived = PICKLED.unpack(pack([0] * len(shares), column))[1]

    same(arrived, [[shared[number] for number in share] for share in shares])
    before = copy.deepcopy(arrived)
    for place, event in enumerate(arrived):
        for box in event:
            box.content = "changed"
        same(arrived[place + 1 :], before[place + 1 :])
        for one, number in zip(event, shares[place], strict=True):
            assert one is event[shares[place].index(number)]


def test_a_pickler_that_a_large_value_has_grown_is_not_used_again() -> None:
    """Its memo would be cleared, whole, after each of the values that follow."""
    pickling.pickled([[number] for number in range(100_000)])
    pickling.pickled([1])

    grown = [sys.getsizeof(each._dump.__self__) for each in pickling._idle_picklers]
    assert max(grown) < 1 << 18
