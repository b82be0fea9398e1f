"""Events of the tests of serdes, in a module of their own: workers import them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

from google.protobuf.struct_pb2 import Struct

from wallaroo.serdes import Avro, Json, MessagePack, Protobuf, Serde


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


@dataclass(frozen=True)
class Item:
    name: str
    count: int = 1


@dataclass(frozen=True)
class Order:
    id: int
    side: Side
    price: float
    items: list[Item] = field(default_factory=list)
    note: str | None = None


@dataclass(frozen=True)
class Node:
    value: int
    next: Node | None = None


class Point(NamedTuple):
    x: int
    y: int = 0


class Options(TypedDict):
    size: int
    color: NotRequired[Literal["red", "blue"]]


@dataclass(frozen=True)
class Everything:
    at: datetime
    price: Decimal
    raw: bytes
    point: Point
    options: Options
    tags: set[str]
    pair: tuple[int, str]
    by_name: dict[str, list[int]]


SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": ["buy", "sell"]}},
        {"name": "price", "type": "double"},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [
                        {"name": "name", "type": "string"},
                        {"name": "count", "type": "int"},
                    ],
                },
            },
        },
        {"name": "note", "type": ["null", "string"]},
    ],
}
ORDER = Order(7, Side.SELL, 1.5, [Item("tea", 2), Item("milk")])
SERDES: dict[str, Serde[Any]] = {
    "json": Json(Order),
    "avro": Avro(SCHEMA, Order),
    "msgpack": MessagePack(Order),
}


def struct() -> Struct:
    """A Protobuf message of a class that comes with the library."""
    made = Struct()
    made.update({"id": 7, "side": "sell"})
    return made


STRUCTS: Serde[Any] = Protobuf(Struct)
