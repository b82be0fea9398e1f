"""What a pickle holds, seen without importing what it names."""

from __future__ import annotations

import datetime
import json
import os
import pickle
import sys
import uuid
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest

from wallaroo.checkpoints.inspection.values import load_safely, plain, show
from wallaroo.steps.windows.sums import MixedSum


class Slotted:
    __slots__ = ("__hidden", "bid", "symbol")

    def __init__(self) -> None:
        self.bid, self.symbol, self.__hidden = 1.5, b"A\x00", 3


class Mixed(Slotted):
    def __init__(self) -> None:
        super().__init__()
        self.words = ["a", "é"]


@dataclass(slots=True)
class Point:
    x: int
    tags: frozenset[str] = frozenset({"b", "a"})

    def __hash__(self) -> int:
        return self.x


@dataclass(frozen=True, slots=True)
class Nameless:
    x: int
    y: str


@dataclass
class Track:
    points: list[Point] = field(default_factory=lambda: [Point(1), Point(2)])
    by_id: dict[int, Point] = field(default_factory=lambda: {7: Point(7)})


class Side(Enum):
    BUY = 1


class Names(dict):  # type: ignore[type-arg]
    pass


class Row(list):  # type: ignore[type-arg]
    pass


Pair = namedtuple("Pair", "left right")
POINT = {"$class": f"{__name__}.Point", "x": 1, "tags": {"$set": ["a", "b"]}}

BY_VALUE, BY_NAME = {"$class": f"{__name__}.Side", "$args": [1]}, {"$ref": f"{__name__}.Side.BUY"}
# how that Python pickles a member of an enum
BUY = BY_NAME if sys.version_info < (3, 11, 4) else BY_VALUE


def both_ways(value: Any) -> Any:
    """The form of a value seen through its pickle, after checking that the real object has the same
    one.
    """
    form = plain(load_safely(pickle.dumps(value, 5)))
    assert form == plain(value)
    assert json.loads(json.dumps(form, allow_nan=False)) == form
    return form


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (None, None),
        ([True, 2**70, "é\udc80", (1, [])], [True, 2**70, "é\udc80", [1, []]]),
        (b"\x00\xff", {"$bytes": "00ff"}),
        (bytearray(b"a"), {"$bytes": "61"}),
        ([0.5, float("inf")], [0.5, {"$float": "inf"}]),
        ([10**4000, -(16**9000)], [10**4000, {"$int": "-0x1" + "0" * 9000}]),
        ({"a": 1}, {"a": 1}),
        ({1: "a", b"b": 2}, {"$dict": [[1, "a"], [{"$bytes": "62"}, 2]]}),
        ({"$a": 1}, {"$dict": [["$a", 1]]}),
        ({3, 1}, {"$set": [1, 3]}),
        (deque([1, 2], maxlen=4), [1, 2]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (Decimal("1.50"), {"$class": "decimal.Decimal", "value": "1.50"}),
        (
            uuid.UUID(int=5),
            {"$class": "uuid.UUID", "value": "00000000-0000-0000-0000-000000000005"},
        ),
        (
            datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC),
            {"$class": "datetime.datetime", "value": "2024-01-02 00:00:00+00:00"},
        ),
        (Point(1), POINT),
        (Pair(1, 2), {"$class": f"{__name__}.Pair", "$args": [1, 2]}),
        (Side.BUY, BUY),
        (Names(a=1), {"$class": f"{__name__}.Names", "$pairs": [["a", 1]]}),
        (Row([1]), {"$class": f"{__name__}.Row", "$items": [1]}),
        (Point, {"$ref": f"{__name__}.Point"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_has_one_form_with_and_without_its_class(value: Any, form: Any) -> None:
    assert both_ways(value) == form


def test_slots_of_a_class_and_attributes_of_its_child_are_shown_together() -> None:
    assert both_ways(Mixed()) == {
        "$class": f"{__name__}.Mixed",
        "words": ["a", "é"],
        "_Slotted__hidden": 3,
        "bid": 1.5,
        "symbol": {"$bytes": "4100"},
    }


def test_objects_inside_of_objects_carry_their_class() -> None:
    shown = show(load_safely(pickle.dumps(Track(), 5)))
    assert shown.class_name == f"{__name__}.Track"
    assert shown.value["points"][0] == POINT
    assert shown.value["by_id"]["$dict"][0][0] == 7


def test_a_frozen_dataclass_with_slots_is_pickled_without_names_so_only_its_class_knows_them() -> (
    None
):
    raw = pickle.dumps(Nameless(1, "a"), 5)
    assert show(load_safely(raw)).value == {"$state": [1, "a"]}
    assert show(pickle.loads(raw)).value == {"x": 1, "y": "a"}


def test_what_contains_itself_is_shown_once() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    assert both_ways(ring) == [1, {"$cycle": "builtins.list"}]


def test_what_nests_without_end_is_cut() -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    assert "$deep" in json.dumps(plain(deep))


class Bomb:
    """Pickles as a call of os.system."""

    def __reduce__(self) -> Any:
        return os.system, (f"touch {os.environ['BOMB_FILE']}",)


def test_nothing_that_a_pickle_names_is_called(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOMB_FILE", str(tmp_path / "exploded"))
    raw = pickle.dumps({"a": Bomb()}, 5)
    form = plain(load_safely(raw))
    assert form["a"]["$class"].endswith(".system")
    assert form["a"]["$args"] == [f"touch {tmp_path / 'exploded'}"]
    assert not (tmp_path / "exploded").exists()
    pickle.loads(raw)
    assert (tmp_path / "exploded").exists()  # the bomb is a real one


@pytest.mark.parametrize(
    "raw",
    [b"", b"\x00\x01", b"plain text", b"\x80\x05garbage.", pickle.dumps(1) + b".", b"\x80\x05N"],
)
def test_bytes_that_are_no_pickle_are_shown_in_hex(raw: bytes) -> None:
    shown = show(load_safely(raw))
    assert shown.is_packed
    assert shown.value == {"$packed": raw.hex()}


@pytest.mark.parametrize("loads", [load_safely, pickle.loads])
def test_a_sum_of_whole_numbers_beside_others_is_one_number(loads: Any) -> None:
    assert show(loads(pickle.dumps(MixedSum(2, 0.25)))).value == 2.25
    of_decimals = loads(pickle.dumps([MixedSum(2, Decimal("0.1"))]))
    assert plain(of_decimals) == plain([Decimal("2.1")])
