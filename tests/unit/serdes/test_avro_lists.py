"""Structs and named tuples that msgspec has as lists, inside of records."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import msgspec
import pytest

from wallaroo.serdes import Avro, ShapeError


class Place(msgspec.Struct, array_like=True):
    x: int
    y: int = 5
    names: list[str] = []


class Road(NamedTuple):
    length: int
    end: Place


class Car(msgspec.Struct, array_like=True, tag=True):
    wheels: int


class Boat(msgspec.Struct, array_like=True, tag=True):
    port: Place


class Trip(msgspec.Struct):
    start: Place
    road: Road
    stops: list[Place]
    by: list[Car | Boat | None]
    named: dict[str, Place]
    span: tuple[int, int]  # a list in payloads, too
    home: Place | None = None


class Around(NamedTuple):
    start: Place


class Pair(msgspec.Struct, array_like=True):
    x: int
    y: int


class Line(msgspec.Struct):
    start: Pair


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


LONGS = {"type": "array", "items": "long"}
PLACE = record("Place", x="long", y="long", names={"type": "array", "items": "string"})
TRIP = record(
    "Trip",
    start=PLACE,
    road=record("Road", length="long", end="Place"),
    stops={"type": "array", "items": "Place"},
    by={
        "type": "array",
        "items": [
            "null",
            record("Car", type="string", wheels="long"),
            record("Boat", type="string", port="Place"),
        ],
    },
    named={"type": "map", "values": "Place"},
    span=LONGS,
    home=["null", "Place"],
)


@pytest.mark.parametrize("home", [None, Place(7)])
def test_lists_at_any_depth_are_records(home: Place | None) -> None:
    trip = Trip(
        Place(1, 2, ["a"]),
        Road(3, Place(4)),
        [Place(5), Place(6, 7)],
        [Car(4), None, Boat(Place(8))],
        {"here": Place(9)},
        (1, 2),
        home,
    )
    decoder, encoder = pickle.loads(pickle.dumps((made := Avro(TRIP, Trip)).decoder)), made.encoder
    payload = encoder.function(trip)
    assert decoder.decode(payload) == trip
    assert Avro(TRIP).decoder.decode(payload)["by"][2] == {
        "type": "Boat",
        "port": {"x": 8, "y": 5, "names": []},
    }


def test_a_field_that_a_record_lacks_has_its_default_or_is_named() -> None:
    schema = record("Around", start=record("Place", x="long"))
    payload = Avro(schema).encoder.function({"start": {"x": 1}})
    assert Avro(schema, Around).decoder.decode(payload) == Around(Place(1))
    lacking = record("Around", start=record("Place", y="long"))
    payload = Avro(lacking).encoder.function({"start": {"y": 1}})
    with pytest.raises(ShapeError, match="object missing required field 'x'"):
        Avro(lacking, Around).decoder.decode(payload)


def test_a_list_that_the_schema_has_as_a_list_stays_one() -> None:
    lines = Avro(record("Line", start=LONGS), Line)
    assert lines.decoder.decode(lines.encoder.function(Line(Pair(1, 2)))) == Line(Pair(1, 2))
