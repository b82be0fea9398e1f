"""State objects are read back by any unpickler as ``pickle.dumps`` would have written them."""

from __future__ import annotations

import array
import copyreg
import enum
import pickle
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallaroo.engine.blocks.pickling import pickled


class Plain:
    pass


class Child(Plain):
    kind = "of the class"


@dataclass
class Mutable:
    left: Any
    right: Any


@dataclass(frozen=True, slots=True)
class Frozen:
    left: Any
    right: Any


@dataclass(slots=True)
class MutableSlots:
    left: Any
    right: Any


class Pair(NamedTuple):
    left: Any
    right: Any


class Struct(msgspec.Struct):
    left: Any
    right: Any = None


class StructByName(msgspec.Struct, kw_only=True):
    left: Any
    right: Any


class StructWithDict(msgspec.Struct, dict=True):
    left: Any
    right: Any


class StructOfItsOwn(Struct):
    def __reduce__(self) -> Any:
        return Struct, (self.right, self.left)


class NewPair(Pair):
    """A named tuple with attributes of its own."""


class SlotsAndDict(MutableSlots):
    pass


class Reduced(Plain):
    def __reduce__(self) -> Any:
        return Child, ()


class Named(Plain):
    def __getstate__(self) -> Any:
        return {"renamed": 1, **vars(self)}


class Restored(Plain):
    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({f"_{name}": value for name, value in state.items()})


class Registered(Plain):
    pass


class WithArguments(Plain):
    def __new__(cls, left: Any = 0) -> Any:
        created = super().__new__(cls)
        created.first = left
        return created

    def __getnewargs__(self) -> Any:
        return (7,)


class Numbers(list[int]):
    pass


class Failure(Exception):
    pass


class Level(enum.Enum):
    LOW = 1


class Outer:
    class Inner:
        pass


def registered() -> Plain:
    return Plain()


copyreg.pickle(Registered, lambda value: (registered, ()))

plain = st.one_of(
    st.none(), st.text(max_size=4), st.binary(max_size=4), st.integers(), st.booleans(),
    st.floats(allow_nan=False), st.integers(32_000, 70_000).map(lambda size: b"x" * size),
)  # fmt: skip
shared = [1, 2]
ATOMS = (str, bytes, int, bool, float)
parts = st.one_of(
    plain, st.just(shared), st.just(Level.LOW), st.lists(plain, max_size=2), st.just(Pair(1, 2))
)
attributes = st.dictionaries(st.sampled_from(("left", "right", "other")), parts, max_size=3)


def of_class(cls: type[Any]) -> st.SearchStrategy[Any]:
    def created(drawn: dict[str, Any]) -> Any:
        value = cls()
        vars(value).update(drawn)
        return value

    return st.builds(created, attributes)


def of_pair(cls: Any) -> st.SearchStrategy[Any]:
    return st.builds(cls, parts, parts)


objects = st.one_of(
    *map(of_class, (Plain, Child, Reduced, Named, Restored, Registered, WithArguments)),
    *map(of_class, (Numbers, Failure, Outer.Inner)),
    *map(of_pair, (Mutable, Frozen, MutableSlots, Pair, NewPair, SlotsAndDict)),
    *map(of_pair, (Struct, StructWithDict, StructOfItsOwn)),
    st.builds(StructByName, left=parts, right=parts),
    parts,
)


def content(value: Any) -> Any:
    """Return all that an object consists of, as plain values."""
    items = [content(each) for each in value] if isinstance(value, (list, tuple)) else []
    if isinstance(value, enum.Enum):
        return value
    names = [name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())]
    names += getattr(value, "__struct_fields__", ())
    slots = {name: content(getattr(value, name)) for name in names if hasattr(value, name)}
    own = {name: content(each) for name, each in getattr(value, "__dict__", {}).items()}
    is_atom = not (items or slots or own)
    return type(value), items, slots, own, value if is_atom and type(value) in ATOMS else None


@given(objects)
def test_an_object_is_read_as_pickle_would_have_written_it(value: Any) -> None:
    written = pickled(value)

    assert repr(content(pickle.loads(written))) == repr(content(pickle.loads(pickle.dumps(value))))
    assert pickle._loads(written) is not None or value is None  # type: ignore[attr-defined]  # the one in Python checks frames


@given(objects, objects)
def test_what_is_shared_within_an_object_stays_shared(left: Any, right: Any) -> None:
    arrived = pickle.loads(pickled([left, right, left]))

    assert arrived[0] is arrived[2]


def test_an_object_that_refers_to_itself_is_read_back() -> None:
    value: Any = Plain()
    value.itself = value
    arrived = pickle.loads(pickled(value))
    assert arrived.itself is arrived


def test_a_slot_without_a_value_stays_without() -> None:
    value = MutableSlots(1, 2)
    del value.right
    assert not hasattr(pickle.loads(pickled(value)), "right")


def test_a_class_of_c_with_parts_that_are_not_attributes_is_pickled_by_its_own_way() -> None:
    class_of_c = array.array("i", [1, 2])
    assert pickle.loads(pickled(class_of_c)) == class_of_c


def test_a_class_that_cannot_be_imported_is_refused_as_pickle_refuses_it() -> None:
    class Local:
        pass

    value = Local()
    vars(value)["field"] = 1
    for _ in range(2):
        with pytest.raises((AttributeError, pickle.PicklingError)):
            pickled(value)
