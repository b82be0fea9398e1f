"""Classes whose objects are pickled by position, and which of their changes misread objects."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from wallaroo.dataflow.plan.positions import (
    MODEL,
    Moved,
    moved_classes,
    noted_positions,
    positions_of,
)

HEAD = """
from dataclasses import dataclass
from typing import NamedTuple
import attrs, msgspec, pydantic
"""
FIELDS = "    a: int = 0\n    b: int = 0\n"
OTHERS = "    b: int = 0\n    a: int = 0\n"
MORE = FIELDS + "    c: int = 0\n"
REQUIRED = "    a: int\n    b: int\n    c: int\n"
STRUCT = "class Event(msgspec.Struct):\n"
TUPLE = "class Event(NamedTuple):\n"
FROZEN = "@dataclass(frozen=True, slots=True)\nclass Event:\n"
PLAIN = "@dataclass\nclass Event:\n"
SLOTS = "@dataclass(slots=True)\nclass Event:\n"
ATTRS = "@attrs.frozen\nclass Event:\n"
MODEL_ = "class Event(pydantic.BaseModel):\n"
PATH = "by_position.Event"


@pytest.fixture
def module() -> Iterator[ModuleType]:
    module = ModuleType("by_position")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def define(module: ModuleType, code: str) -> Any:
    exec(HEAD + code, module.__dict__)
    return vars(module)["Event"]


@pytest.mark.parametrize("kind", [STRUCT, TUPLE, FROZEN])
def test_fields_of_objects_pickled_by_position_are_noted(module: ModuleType, kind: str) -> None:
    define(module, kind + FIELDS)
    assert noted_positions()[PATH] == ["a", "b"]


@pytest.mark.parametrize(
    "code",
    [
        PLAIN + FIELDS,
        SLOTS + FIELDS,
        ATTRS + FIELDS,
        STRUCT.replace(")", ", kw_only=True)") + FIELDS,
        STRUCT + FIELDS + "    def __reduce__(self):\n        return Event, ()\n",
        FROZEN + FIELDS + "    def __getstate__(self):\n        return {}\n",
    ],
)
def test_objects_pickled_by_name_or_by_their_own_methods_are_not(
    module: ModuleType, code: str
) -> None:
    assert positions_of(define(module, code)) is None
    assert PATH not in noted_positions()


@pytest.mark.parametrize(
    ("code", "moved"),
    [
        (STRUCT + FIELDS, None),
        (STRUCT + OTHERS, Moved(("a", "b"), ("b", "a"), False)),
        (STRUCT + MORE, None),
        (STRUCT + REQUIRED, Moved(("a", "b"), ("a", "b", "c"), False)),
        (STRUCT + "    a: int = 0\n", Moved(("a", "b"), ("a",), False)),
        (TUPLE + OTHERS, Moved(("a", "b"), ("b", "a"), False)),
        (TUPLE + MORE, None),
        (FROZEN + OTHERS, Moved(("a", "b"), ("b", "a"), False)),
        (FROZEN + MORE, Moved(("a", "b"), ("a", "b", "c"), True)),
        (ATTRS + FIELDS, None),
        (ATTRS + OTHERS, Moved(("a", "b"), ("b", "a"), False)),
    ],
)
def test_fields_may_only_follow(module: ModuleType, code: str, moved: Moved | None) -> None:
    """A class of another kind is called with the values, in their former order."""
    define(module, code)
    assert moved_classes({PATH: ["a", "b"]}).get(PATH) == moved


def test_a_class_may_have_become_one_that_reads_by_position(module: ModuleType) -> None:
    """A dict in the place of a list of values would give each field the name of one."""
    define(module, FROZEN + FIELDS)
    assert moved_classes({})[PATH] == Moved((), ("a", "b"), True)
    assert PATH not in moved_classes({PATH: ["a", "b"]})


READING_BOTH = "    def __setstate__(self, state):\n        self.__dict__.update(state)\n"


@pytest.mark.parametrize(
    ("code", "was", "moved"),
    [
        (MODEL_ + FIELDS, [], Moved((), MODEL, False)),
        (MODEL_ + FIELDS, [*MODEL], None),
        (MODEL_ + OTHERS, ["a", "b"], Moved(("a", "b"), (), False)),
        (PLAIN + FIELDS, [*MODEL], Moved(MODEL, (), False)),
        (PLAIN + FIELDS + READING_BOTH, [*MODEL], None),
        (ATTRS + FIELDS, [*MODEL], Moved(MODEL, (), False)),
        (PLAIN + FIELDS, [], None),
    ],
)
def test_a_class_that_becomes_or_ceases_to_be_a_pydantic_model_may_misread_objects(
    module: ModuleType, code: str, was: list[str], moved: Moved | None
) -> None:
    """Unless it has a ``__setstate__`` of its own."""
    cls = define(module, code)
    assert moved_classes({PATH: was}).get(PATH) == moved
    assert (noted_positions().get(PATH) == [*MODEL]) == hasattr(cls, "model_fields")
