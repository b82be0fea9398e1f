"""Models of pydantic in all formats: read by their validators, written as pydantic writes them."""

from __future__ import annotations

import datetime
import pickle
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import attrs
import msgspec
import pydantic.dataclasses
import pytest
from pydantic import (
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    field_serializer,
    field_validator,
)

import wallaroo
from wallaroo.errors import WallarooParameterError
from wallaroo.serdes import Avro, Csv, Json, MessagePack
from wallaroo.serdes.rows import row_decoder
from wallaroo.testing import run_local


class Item(BaseModel):
    sku: str
    count: int = Field(gt=0)


class Order(BaseModel):
    number: int = Field(alias="orderNumber")
    at: datetime.datetime
    price: Decimal
    items: list[Item] = []
    site: HttpUrl | None = None

    @field_validator("price")
    @classmethod
    def is_positive(cls, price: Decimal) -> Decimal:
        if price <= 0:
            raise ValueError("must be positive")
        return price

    @field_serializer("price", when_used="json")
    def cents(self, price: Decimal) -> int:
        return int(price * 100)


ORDER = Order(
    orderNumber=7,
    at=datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    price=Decimal("2.50"),
    items=[Item(sku="a", count=2)],
    site=HttpUrl("http://example.com/"),
)


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Quote(BaseModel):
    symbol: str


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    x: int


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: datetime.date
    pair: tuple[int, int]


class Reading(BaseModel):
    value: float
    note: str = ""


class Tags(BaseModel):
    tags: set[str]
    raw: bytes


@pydantic.dataclasses.dataclass
class Point:
    x: int

    @field_validator("x")
    @classmethod
    def is_positive(cls, x: int) -> int:
        if x <= 0:
            raise ValueError("x is left of the origin")
        return x


@dataclass
class Box:
    order: Item
    n: int


class Unknown:
    """Neither msgspec nor pydantic knows it."""


@attrs.define
class Crate:
    item: Item


class Both(NamedTuple):
    item: Item
    n: int


def error_of(serde: Any, payload: bytes) -> str:
    with pytest.raises(ValueError) as info:
        serde.decoder.decode(payload)
    return str(info.value)


def test_json_is_what_pydantic_writes_by_alias() -> None:
    expected = ORDER.model_dump_json(by_alias=True).encode()

    assert b'"price":250' in expected
    assert Json(Order).encoder.encode(ORDER) == expected
    assert Json().encoder.encode(ORDER) == expected
    assert Json().encoder.encode({"orders": [ORDER]}) == b'{"orders":[%b]}' % expected


@pytest.mark.parametrize("serde", [Json(Order), pickle.loads(pickle.dumps(Json(Order).codec))])
def test_json_is_read_with_aliases_validators_and_nested_models(serde: Any) -> None:
    decode = serde.decode if hasattr(serde, "decode") else serde.decoder.decode
    payload = (
        b'{"orderNumber": "7", "at": "2026-01-02T00:00:00Z", "price": "2.50",'
        b' "items": [{"sku": "a", "count": 2}], "site": "http://example.com", "more": 1}'
    )

    assert decode(payload) == ORDER
    assert decode(payload.decode()) == ORDER
    assert decode(memoryview(payload)) == ORDER


ERRORS = {
    "of a validator": (
        b'{"orderNumber": 7, "at": 0, "price": "-1"}',
        "price: must be positive, got '-1' (str)",
    ),
    "nested": (
        b'{"orderNumber": 7, "at": 0, "price": 1, "items": [{"sku": "a", "count": 1},'
        b' {"sku": "b", "count": 0}]}',
        "items[1].count: input should be greater than 0, got 0 (int)",
    ),
    "missing": (
        b'{"orderNumber": 7, "price": 1}',
        "object missing required field 'at', got 'orderNumber', 'price'",
    ),
    "missing in a part": (
        b'{"orderNumber": 7, "at": 0, "price": 1, "items": [{"count": 1}]}',
        "items[0]: object missing required field 'sku', got 'count'",
    ),
    "no object": (b"[1]", "input should be an object, got [1] (list)"),
    "several": (
        b'{"orderNumber": "x", "at": 0, "price": 0}',
        "orderNumber: input should be a valid integer, unable to parse string as an integer, "
        "got 'x' (str) (the first of 2 errors)",
    ),
    "cut off": (b'{"orderNumber":', "invalid JSON: EOF while parsing a value at line 1 column 15"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_names_the_place_and_the_value(case: str) -> None:
    payload, text = ERRORS[case]

    assert error_of(Json(Order), payload) == text


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_json_is_refused_in_both_directions(number: str) -> None:
    assert "malformed" in error_of(Json(Reading), b'{"value": %b}' % number.encode())
    with pytest.raises(ValueError, match="JSON compliant"):
        Json(Reading).encoder.encode(Reading(value=float(number.lower())))
    assert Json(Reading).decoder.decode(b'{"value": 1, "note": "NaN"}').note == "NaN"
    assert MessagePack(Reading).decoder.decode(
        MessagePack(Reading).encoder.encode(Reading(value=float("inf")))
    ) == Reading(value=float("inf"))


def test_a_strict_model_reads_what_json_has_no_types_for() -> None:
    payload = b'{"day":"2026-01-02","pair":[1,2]}'
    strict = Strict(day=datetime.date(2026, 1, 2), pair=(1, 2))

    assert Json(Strict).decoder.decode(payload) == strict
    assert Json(Strict).encoder.encode(strict) == payload
    assert "day: input should be a valid date" in error_of(Json(Strict), b'{"day":5,"pair":[1,2]}')


def test_a_dataclass_of_pydantic_is_validated() -> None:
    assert Json(Point).decoder.decode(b'{"x": 1}') == Point(1)
    assert error_of(Json(Point), b'{"x": -1}') == "x: x is left of the origin, got -1 (int)"
    assert Json(Point).encoder.encode(Point(1)) == b'{"x":1}'


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (list[Item], [Item(sku="a", count=1)]),
        (dict[str, Item], {"k": Item(sku="a", count=1)}),
        (Item | None, None),
        (Box, Box(Item(sku="a", count=1), 2)),
        (Cat | Dog, Dog(name="rex")),
        (Annotated[Cat | Dog, Field(discriminator="kind")], Cat(lives=9)),
    ],
)
@pytest.mark.parametrize("form", [Json, MessagePack])
def test_types_around_models_are_read_and_written(form: Any, kind: Any, value: Any) -> None:
    serde = form(kind)

    assert serde.decoder.decode(serde.encoder.encode(value)) == value


def test_a_named_tuple_around_a_model_is_read_from_an_object_and_a_list() -> None:
    both = Both(Item(sku="a", count=1), 2)

    assert Json(Both).decoder.decode(b'{"item": {"sku": "a", "count": 1}, "n": 2}') == both
    assert Json(Both).decoder.decode(Json(Both).encoder.encode(both)) == both


def test_a_union_by_tag() -> None:
    animals = Json(Cat | Dog | Quote | None, tag="kind")

    for animal in (Cat(lives=9), Dog(name="rex"), Quote(symbol="A")):
        assert animals.decoder.decode(animals.encoder.encode(animal)) == animal
    assert animals.encoder.encode(Quote(symbol="A")) == b'{"kind":"quote","symbol":"A"}'
    assert animals.decoder.decode(b'{"kind": "cow"}') is None
    assert "lives: input should be a valid integer" in error_of(
        animals, b'{"kind": "cat", "lives": "x"}'
    )


def test_a_closed_model_needs_a_field_for_its_tag() -> None:
    with pytest.raises(WallarooParameterError, match="cannot have the field 'kind'"):
        Json(Cat | Closed, tag="kind")


def test_messagepack_keeps_what_it_has_types_for() -> None:
    serde = MessagePack(Tags)
    tags = Tags(tags={"b", "a"}, raw=b"\xff")

    assert msgspec.msgpack.decode(serde.encoder.encode(tags))["raw"] == b"\xff"
    assert serde.decoder.decode(serde.encoder.encode(tags)) == tags


def test_rows_of_csv() -> None:
    class Sale(BaseModel):
        number: int = Field(alias="no")
        price: Decimal
        note: str | None = None

    serde = Csv(Sale)
    sale = Sale(no=1, price=Decimal("2.5"))

    assert serde.decoder.decode(b"1,2.5,") == sale
    assert serde.encoder.encode(sale) == b"1,2.5,"
    assert error_of(serde, b"x,1,").startswith("no: input should be a valid integer")
    with pytest.raises(WallarooParameterError, match="'items' is of several values"):
        _ = Csv(Order).encoder


@pytest.mark.parametrize("raw", [b"\xff\0a", b"abcd", b""])
def test_bytes_in_rows_of_csv_are_base64(raw: bytes) -> None:
    class Packet(BaseModel):
        number: int
        raw: bytes = Field(alias="content")
        more: bytes | None = None
        text: Base64Bytes = b"YWJj"

    serde = Csv(Packet)
    for packet in (Packet(number=1, content=raw), Packet(number=1, content=raw, more=b"\xfe")):
        assert serde.decoder.decode(serde.encoder.encode(packet)) == packet
    assert error_of(serde, b"1,no,,") == "content: invalid base64 encoded string, got 'no' (str)"


def test_records_of_avro() -> None:
    fields = [
        {"name": "orderNumber", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
    ]

    class Sale(BaseModel):
        number: int = Field(alias="orderNumber")
        at: datetime.datetime
        price: Decimal

    serde = Avro({"type": "record", "name": "Sale", "fields": fields}, Sale)
    sale = Sale(orderNumber=7, at=ORDER.at, price=ORDER.price)

    assert serde.decoder.decode(serde.encoder.encode(sale)) == sale


def test_rows_of_a_database() -> None:
    decode = row_decoder(Item).decode

    assert decode({"sku": "a", "count": 1}) == Item(sku="a", count=1)
    with pytest.raises(ValueError, match="count: input should be greater than 0, got 0"):
        decode({"sku": "a", "count": 0})


def test_a_type_that_pydantic_cannot_check_is_refused_when_the_serde_is_created() -> None:
    with pytest.raises(WallarooParameterError, match="Use pydantic's types around a model"):
        Json(Crate)


@pytest.mark.parametrize("create", [Csv, row_decoder, lambda kind: Avro({"type": "int"}, kind)])
def test_a_type_that_values_cannot_be_checked_against_is_refused_by_all_formats(
    create: Any,
) -> None:
    with pytest.raises(WallarooParameterError, match="is not a type that values can be checked"):
        create(Unknown)


def test_a_model_whose_parts_are_not_defined_yet_is_refused() -> None:
    class Later(BaseModel):
        part: Undefined  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(
        WallarooParameterError, match="cannot be checked by pydantic: name 'Undefined'"
    ):
        Json(Later)


class Totals(BaseModel):
    count: int = 0


@wallaroo.state_computation(name="count", state=Totals)
def count(item: Item, totals: Totals) -> Item:
    totals.count += item.count
    return Item(sku=item.sku, count=totals.count)


def test_models_are_events_states_and_outputs_of_an_application() -> None:
    items = Json(Item, on_error="dead-letter")
    source = wallaroo.TCPSourceConfig("items", "127.0.0.1", 0, items.decoder, framing="lines")
    sink = wallaroo.TCPSinkConfig("127.0.0.1", 1, items.line_encoder)
    by_sku = wallaroo.key_extractor(lambda item: item.sku)
    pipeline = wallaroo.source("items", source).key_by(by_sku).to(count).to_sink(sink)
    application = wallaroo.build_application(
        "items", pipeline, dead_letters=wallaroo.FileSinkConfig("bad.jsonl")
    )
    lines = [b'{"sku":"a","count":2}', b'{"sku":"a","count":0}', b'{"sku":"a","count":3}']

    run = run_local(application, {"items": lines})

    assert run.outputs == [b'{"sku":"a","count":2}\n', b'{"sku":"a","count":5}\n']
    assert run.dead_letters[0]["error"].endswith("input should be greater than 0, got 0 (int)")
