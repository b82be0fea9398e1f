"""Objects that are packed by their fields arrive as if they had been pickled, exactly."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallaroo.engine.blocks.by_fields import form_of
from wallaroo.engine.blocks.packing import PICKLED, pack


@dataclass(frozen=True, slots=True)
class Frozen:
    number: int
    text: str
    price: float | None = None
    kind: ClassVar[str] = "frozen"


@dataclass(frozen=True)
class FrozenWithDict:
    text: str
    raw: bytes = b""


@dataclass
class Changing:
    number: int
    is_new: bool = True


@dataclass(slots=True)
class ChangingSlots:
    number: int
    text: str | None = None


class Tuple(NamedTuple):
    number: int
    content: Any


class Struct(msgspec.Struct, frozen=True, tag="struct", omit_defaults=True):
    number: int
    text: str = "usual"


class ChangingStruct(msgspec.Struct, array_like=True):
    number: int


class Level(IntEnum):
    LOW = 1


class Text(str):
    pass


PACKED = (Frozen, FrozenWithDict, Changing, ChangingSlots, Tuple, Struct, ChangingStruct)


@dataclass(frozen=True, slots=True)
class Doubled:
    number: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", self.number * 2)


@dataclass
class Reduced:
    number: int

    def __reduce__(self) -> Any:
        return Reduced, (7,)


@dataclass
class Restored:
    number: int

    def __setstate__(self, state: Any) -> None:
        self.number = -1


@dataclass(frozen=True, slots=True)
class OwnInit:
    number: int
    text: str

    def __init__(self, number: int) -> None:
        object.__setattr__(self, "number", number)
        object.__setattr__(self, "text", "own")


@dataclass
class Hidden:
    _number: int


@dataclass
class Computed:
    number: int = field(init=False)


@dataclass
class Holding:
    content: list[int]


class OwnNew(tuple[int]):
    _fields = ("number",)

    def __new__(cls, number: int) -> Any:
        return super().__new__(cls, (number,))

    def __getnewargs__(self) -> tuple[int]:
        return (self[0],)


PICKLED_CLASSES = (Doubled, Reduced, Restored, Hidden, Computed, Holding, OwnNew)

anything = st.one_of(
    st.integers(),  # beyond 64 bits, too
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
    st.text(st.characters(), max_size=3),
    st.just("\ud800"),
    st.just(Level.LOW),
    st.just(Text("text")),
    st.binary(max_size=3),
    st.lists(st.integers(), max_size=2),
)
numbers = st.one_of(st.integers(-5, 5), anything)
texts = st.one_of(st.text(max_size=3), anything)
objects = st.one_of(
    st.builds(Frozen, numbers, texts, anything),
    st.builds(FrozenWithDict, texts, anything),
    st.builds(Changing, numbers, anything),
    st.builds(ChangingSlots, numbers, anything),
    st.builds(Tuple, numbers, anything),
    st.builds(Struct, numbers, texts),
    st.builds(ChangingStruct, numbers),
    st.builds(OwnInit, numbers),
    st.builds(Restored, numbers),
    st.tuples(st.integers(), st.builds(Frozen, numbers, texts)),
    st.tuples(
        st.integers(),
        st.tuples(
            st.builds(Frozen, numbers, texts),
            st.one_of(st.none(), st.just(()), st.builds(Frozen, numbers, texts), anything),
        ),
    ),
    st.tuples(
        st.builds(Frozen, st.integers(-5, 5), st.text(max_size=3)),
        st.one_of(
            st.none(),
            st.booleans(),
            st.builds(Struct, numbers, texts),
            st.builds(ChangingSlots, numbers, anything),
            st.builds(Tuple, numbers, anything),
        ),
    ),
    st.integers(),
    st.text(max_size=3),
    st.none(),
)


def exactly(value: Any) -> Any:
    """Return what equals another value only if all of it is of the same types."""
    names = getattr(value, "__dataclass_fields__", None) or getattr(value, "__struct_fields__", ())
    parts = [*value] if isinstance(value, tuple | list) else [getattr(value, n) for n in names]
    return type(value), repr(value), [exactly(part) for part in parts]


@given(st.lists(st.lists(objects, max_size=20), min_size=1, max_size=3))
def test_objects_arrive_exactly_as_pickled_ones_do(blocks: list[list[Any]]) -> None:
    column = PICKLED.column()
    for block in blocks:
        expected = [exactly(pickle.loads(pickle.dumps(value))) for value in block]
        for value in block:
            if type(value) in PICKLED.atomic:
                column.atoms.append(value)
            else:
                column.put(value)
            if isinstance(value, Changing | ChangingStruct):
                value.number = 99

        _, arrived = PICKLED.unpack(pack([*map(str, range(len(block)))], column))

        assert [exactly(value) for value in arrived] == expected


@given(objects)
def test_a_state_is_read_by_any_unpickler(value: Any) -> None:
    for state in (value, [value, value], {"key": value}):
        restored = pickle.loads(PICKLED.dumps(state))

        assert exactly(restored) == exactly(pickle.loads(pickle.dumps(state)))
    first, second = pickle.loads(PICKLED.dumps([value, value]))
    assert (first is second) or type(value) in (int, str, float)


def test_additional_attributes_and_missing_ones_arrive() -> None:
    wide = Changing(1)
    wide.more = 2  # type: ignore[attr-defined]  # not declared
    narrow = ChangingSlots(1)
    del narrow.text
    column = PICKLED.column()
    for value in (wide, narrow):
        column.put(value)

    _, arrived = PICKLED.unpack(pack(["a", "b"], column))

    assert arrived[0].more == 2
    assert not hasattr(arrived[1], "text")


@pytest.mark.parametrize("cls", PACKED)
def test_plain_classes_are_packed_by_their_fields(cls: type[Any]) -> None:
    assert form_of(cls) is not None


@pytest.mark.parametrize(
    "shape",
    [
        (Frozen, Struct),
        (Frozen, type(None)),
        (int, FrozenWithDict),
        (int, (Frozen, Struct)),  # a side of another join
    ],
)
def test_tuples_of_frozen_objects_are_packed_by_their_fields(shape: tuple[type[Any], ...]) -> None:
    """Joins without a function emit them."""
    assert form_of(shape) is not None


@pytest.mark.parametrize("part", [Changing, Tuple, Holding, tuple, list])
def test_tuples_with_anything_else_are_pickled(part: type[Any]) -> None:
    assert form_of((Frozen, part)) is None


@pytest.mark.parametrize("cls", PICKLED_CLASSES)
def test_classes_with_more_than_fields_are_pickled(cls: type[Any]) -> None:
    assert form_of(cls) is None
