"""Serdes: what is written is read, types are checked, and what does not fit says where."""

from __future__ import annotations

import json
import math
import pickle
import sys
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple

import attrs
import msgspec
import numpy as np
import pytest

import wallaroo
from tests.unit.serdes.orders import (
    ORDER,
    SCHEMA,
    SERDES,
    STRUCTS,
    Everything,
    Item,
    Node,
    Order,
    Point,
    Side,
    struct,
)
from wallaroo.errors import UserCodeError, WallarooParameterError
from wallaroo.serdes import Avro, Csv, Json, MessagePack, Protobuf, Serde, ShapeError
from wallaroo.serdes.rows import row_decoder
from wallaroo.steps.kinds import Encoder
from wallaroo.testing import run_local

EVERYTHING = Everything(
    datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    Decimal("1.10"),
    b"\0\xff",
    Point(1, 2),
    {"size": 3, "color": "red"},
    {"a", "b"},
    (1, "one"),
    {"a": [1, 2]},
)


@pytest.fixture(params=sorted(SERDES))
def serde(request: pytest.FixtureRequest) -> Serde[Any]:
    return SERDES[request.param]


def test_what_is_encoded_is_decoded(serde: Serde[Any]) -> None:
    assert serde.decoder.decode(serde.encoder.function(ORDER)) == ORDER


def test_a_decoder_and_an_encoder_travel(serde: Serde[Any]) -> None:
    decoder, encoder = pickle.loads(pickle.dumps((serde.decoder, serde.encoder)))
    assert decoder.decode(encoder.function(ORDER)) == ORDER
    assert decoder.decode(encoder.function(ORDER)).items[0].__class__ is Item


@pytest.mark.parametrize("made", [Json(Everything), MessagePack(Everything)], ids=repr)
def test_all_types_return(made: Serde[Any]) -> None:
    assert made.decoder.decode(made.encoder.function(EVERYTHING)) == EVERYTHING


def test_a_type_may_contain_itself() -> None:
    nodes = Json(Node)
    assert nodes.decoder.decode(b'{"value": 1, "next": {"value": 2}}') == Node(1, Node(2))


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"{", "Input data was truncated"),
        (b"\xff", r"JSON is malformed: invalid character \(byte 0\)"),
        (b'{"id": 7, "side": "\xff"}', "codec can't decode"),
        (b"[]", r"expected object, got \[\] \(list\)"),
        (b'{"id": 7}', "object missing required field 'side', got 'id'"),
        (b'{"id": true, "side": "buy", "price": 1}', r"id: expected int, got True \(bool\)"),
        (b'{"id": 1, "side": "up", "price": 1}', "side: invalid enum value 'up'"),
        (
            b'{"id": 1, "side": "buy", "price": NaN}',
            r"JSON is malformed: invalid character \(byte 34\)",
        ),
        (
            b'{"id": 1, "side": "buy", "price": 1, "items": [{"name": "a"}, {"name": 3}]}',
            r"items\[1\].name: expected str, got 3 \(int\)",
        ),
    ],
)
def test_json_that_does_not_fit_says_where(payload: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SERDES["json"].decoder.decode(payload)


@pytest.mark.parametrize(
    ("made", "text"),
    [(Json(), '["%s"]'), (Json(str), '"%s"'), (Json(dict[str, Any]), '{"%s": 1}')],
    ids=repr,
)
@pytest.mark.parametrize("half", [r"\ud800", r"\uDfff", r"a\udc00\ud800"])
def test_json_with_half_of_a_surrogate_pair_is_refused_by_the_decoder(
    made: Serde[Any], text: str, half: str
) -> None:
    with pytest.raises(ValueError, match=r"truncated|invalid utf-16 surrogate pair"):
        made.decoder.decode((text % half).encode())


def test_json_with_a_whole_surrogate_pair_is_one_character() -> None:
    assert Json(str).decoder.decode(rb'"\ud83d\ude00 \\ud800"') == "\U0001f600 \\ud800"


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "not a record of the schema"),
        (b"\x02", "not a record of the schema"),
        (b"\0\0\0\0\1" + SERDES["avro"].encoder.function(ORDER), "."),
        (SERDES["avro"].encoder.function(ORDER) + b"more", "4 of .* bytes are left"),
    ],
)
def test_avro_that_does_not_fit_is_refused(payload: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SERDES["avro"].decoder.decode(payload)


def test_avro_reads_with_a_newer_schema() -> None:
    fields = [*SCHEMA["fields"], {"name": "shop", "type": "string", "default": "none"}]  # type: ignore[misc]
    newer = Avro(SCHEMA, reader=json.dumps({**SCHEMA, "fields": fields}))
    assert newer.decoder.decode(SERDES["avro"].encoder.function(ORDER))["shop"] == "none"


def test_avro_refuses_to_write_what_the_schema_does_not_have() -> None:
    with pytest.raises(ValueError, match="shop"):
        Avro(SCHEMA).encoder.function(
            {"id": 1, "side": "buy", "price": 1.0, "items": [], "shop": 1}
        )


def test_protobuf_messages_return() -> None:
    payload = STRUCTS.encoder.function(struct())
    decoder = pickle.loads(pickle.dumps(STRUCTS.decoder))
    assert decoder.decode(payload) == struct()
    with pytest.raises(TypeError, match="expected a message Struct, got 7"):
        STRUCTS.encoder.function(7)
    with pytest.raises(Exception, match="Error parsing message"):
        decoder.decode(b"\xff\xff")


def test_json_has_no_form_for_infinity_and_objects() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Json().encoder.function(float("inf"))
    with pytest.raises(TypeError, match="has no form here"):
        Json().encoder.function(object())


def test_frames_and_lines_and_keys() -> None:
    items = Json(Item)
    assert items.line_encoder.function(Item("a")) == b'{"name":"a","count":1}\n'
    assert items.frame_encoder.function(Item("a"))[:4] == b"\0\0\0\x16"
    keyed: Encoder[Item] = pickle.loads(pickle.dumps(items.keyed_encoder(name)))
    assert keyed.function(Item("a")) == (b'{"name":"a","count":1}', "a")


@pytest.mark.parametrize("serde", [MessagePack(), Avro(SCHEMA), STRUCTS], ids=repr)
def test_payloads_that_may_hold_newlines_are_no_lines(serde: Serde[Any]) -> None:
    with pytest.raises(WallarooParameterError, match="may hold newlines"):
        _ = serde.line_encoder


def test_a_key_that_is_not_a_function_is_refused() -> None:
    with pytest.raises(WallarooParameterError, match="The key 'id' is not a function"):
        Json().keyed_encoder("id")  # type: ignore[arg-type]


def test_a_key_may_be_a_lambda_in_a_function() -> None:
    items = Json(Item)
    encoder = items.keyed_encoder(lambda item: item.name)
    sink = wallaroo.KafkaSinkConfig("items", "127.0.0.1:9092", encoder)
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, items.decoder))

    wallaroo.build_application("items", source.to_sink(sink))

    travelled: Encoder[Item] = pickle.loads(pickle.dumps(encoder))
    assert travelled.function(Item("a")) == (b'{"name":"a","count":1}', "a")


class Pair(NamedTuple):
    a: int
    b: int


def name(item: Item) -> str:
    return item.name


class Listed(msgspec.Struct, array_like=True):
    a: int


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Avro(SCHEMA, Listed), "Listed is a list without names .* use Json or MessagePack"),
        (lambda: Csv(Listed), "Listed is a list without names"),
        (lambda: row_decoder(Listed), "Listed is a list without names"),
        (lambda: Json(complex), "complex is not a type that values can be checked against"),
        (lambda: Json(Item | complex, tag="k"), "complex is not a type that values can be checked"),
        (lambda: Json(Order, on_error="ignore"), "on_error='ignore' is unknown"),
        (lambda: Avro({"type": "nothing"}), "The schema cannot be used"),
        (lambda: Avro("{"), "The schema is not valid JSON"),
        (lambda: Protobuf(Order), "is not a message class"),  # type: ignore[type-var]
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(make: Any, words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        make()


def test_a_key_of_the_wrong_type_is_named() -> None:
    with pytest.raises(ShapeError, match=r"^a key: expected int, got str"):
        Json(dict[int, int]).decoder.decode(b'{"a": 1}')


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(WallarooParameterError, match="pip install fastavro"):
        Avro(SCHEMA)


def _application(serde: Serde[Any], out: Path, letters: Path | None = None) -> Any:
    feed = wallaroo.TCPSourceConfig("orders", "127.0.0.1", 0, serde.decoder)
    pipeline = wallaroo.source("orders", feed).to_sink(
        wallaroo.FileSinkConfig(out, serde.encoder, form="lines")
    )
    dead = None if letters is None else wallaroo.FileSinkConfig(letters)
    return wallaroo.build_application("orders", pipeline, dead_letters=dead)


def test_a_payload_that_cannot_be_decoded_becomes_a_dead_letter(tmp_path: Path) -> None:
    orders = Json(Order, on_error="dead-letter")
    application = _application(orders, tmp_path / "out.txt", tmp_path / "letters.jsonl")
    good = orders.encoder.function(ORDER)
    run = run_local(application, {"orders": [good, b'{"id": "x"}', good]})
    assert run.outputs == [good, good]
    (letter,) = run.dead_letters
    assert bytes.fromhex(letter["frame_hex"]) == b'{"id": "x"}'
    assert letter["error"] == "ShapeError: id: expected int, got 'x' (str)"
    assert (letter["step"], letter["source"]) == ("decode json Order", "orders")


def test_without_a_policy_the_run_stops_with_the_step_and_the_reason(tmp_path: Path) -> None:
    application = _application(Json(Order), tmp_path / "out.txt")
    with pytest.raises(UserCodeError, match="decode json Order") as raised:
        run_local(application, {"orders": [b"{}"]})
    assert "object missing required field 'id', got nothing" in str(raised.value)


@dataclass
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise TypeError("an odd number")


def test_an_error_of_a_class_is_not_taken_for_a_field_that_is_missing() -> None:
    read = Json(Even).decoder.function

    with pytest.raises(ShapeError, match="an odd number"):
        read(b'{"number": 3}')
    with pytest.raises(ShapeError, match="missing required field 'number'"):
        read(b"{}")


@pytest.mark.parametrize("payload", [b'{"b": 2, "a": 1, "c": 3}', b"[1, 2]"])
def test_a_named_tuple_is_read_from_an_object_or_a_list(payload: bytes) -> None:
    assert Json(Pair).decoder.decode(payload) == Pair(1, 2)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b'{"a": 1}', "missing required field 'b', got 'a'"),
        (b'{"a": 1, "b": "x"}', r"b: expected int, got 'x' \(str\)"),
        (b"[1]", "expected array of length 2"),
        (b"3", "expected object"),
    ],
)
def test_a_named_tuple_that_does_not_fit_says_where(payload: bytes, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        Json(Pair).decoder.decode(payload)


@attrs.define
class Person:
    name: str
    age: int = 0


@dataclass(frozen=True)
class Auction:
    kind: Literal["sale", "auction"]
    price: float | None = None


class Struct(msgspec.Struct):
    x: int
    y: str = "y"


def test_attrs_classes_and_structs_are_events() -> None:
    assert Json(Person).decoder.decode(b'{"name": "a", "age": 3}') == Person("a", 3)
    assert json.loads(Json(Person).encoder.function(Person("a"))) == {"name": "a", "age": 0}
    assert Json(Struct).decoder.decode(b'{"x": 1}') == Struct(1)


@pytest.mark.parametrize("serde_class", [Json, MessagePack])
def test_a_field_names_the_class_of_an_event(serde_class: Any) -> None:
    events = serde_class(Person | Auction | Pair | Struct, tag="kind")
    decode, encode = pickle.loads(pickle.dumps((events.decoder, events.encoder)))
    for event in (Person("a", 3), Auction("sale", 1.5), Auction("auction"), Pair(1, 2), Struct(1)):
        assert decode.decode(encode.function(event)) == event


@pytest.mark.parametrize(
    "payload",
    [
        b'{"kind":"person","name":"a,b"}',
        b'{"kind": "person", "name": "a,b"}',
        b'{ "kind" : "person", "name": "a,b"}',
        b'{"name":"a,b","kind":"person"}',
        b'{"kind":"Person","name":"a,b"}',
        bytearray(b'{"kind":"person","name":"a,b"}'),
    ],
)
def test_the_class_is_named_anywhere_and_in_any_form(payload: Any) -> None:
    """The usual forms of objects that begin with it are known by their first bytes."""
    events = Json(Auction | Person, tag="kind").decoder

    assert events.decode(payload) == Person("a,b")


@pytest.mark.parametrize(
    "payload",
    [
        b'{"kind":"personal","name":"a,b"}',
        b'{"kind":"auctioneer","name":"a,b"}',
        b'{"kind": "bid", "name": "a,b"}',
        b'{"name":"a,b","kind":"sale"}',
    ],
)
def test_a_union_with_none_has_none_for_all_other_classes(payload: bytes) -> None:
    events = Json(Person | None, tag="kind").decoder

    assert events.decode(payload) is None
    assert events.decode(b'{"kind":"person","name":"a,b"}') == Person("a,b")
    for broken in (b'{"kind":"bid"', b"{}", b'{"kind":"person"}'):
        with pytest.raises(ValueError, match=r"truncated|required"):
            events.decode(broken)


def test_an_object_that_is_cut_after_its_class_is_no_event() -> None:
    decode = Json(Person | Auction, tag="kind").decoder.decode
    for payload in (b'{"kind":"person"', b'{"kind":"person",', b'{"kind":"person"x'):
        with pytest.raises(ValueError, match=r"truncated|malformed"):
            decode(payload)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b'{"kind": "bid"}', "kind: expected one of 'person', 'sale', 'auction', got 'bid'"),
        (b"{}", "missing required field 'kind', got nothing"),
        (b'{"kind": "person", "name": 3}', r"name: expected str, got 3 \(int\)"),
    ],
)
def test_an_event_of_none_of_the_classes_says_what_is_expected(payload: bytes, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        Json(Person | Auction, tag="kind").decoder.decode(payload)


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": -float("inf")}])
@pytest.mark.parametrize("made", [Json(), Json(Auction), Json(dict[str, float])], ids=repr)
def test_what_json_has_no_number_for_is_refused(made: Serde[Any], value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        made.encoder.function(value)
    assert made.encoder.function({"a": None}) == b'{"a":null}'


def test_scalars_of_numpy_and_subclasses_of_plain_types_are_written() -> None:
    class Name(str):
        __slots__ = ()

    values = [np.int64(3), np.float64(1.5), np.bool_(True), Name("a"), OrderedDict(b=1)]
    assert Json().encoder.function(values) == b'[3,1.5,true,"a",{"b":1}]'


def test_sets_are_written_in_order() -> None:
    tags = [f"tag {number}" for number in range(20)]
    assert Json(set[str]).encoder.function(set(tags)) == Json().encoder.function(sorted(tags))


@pytest.mark.parametrize("serde_class", [Json, MessagePack])
@pytest.mark.parametrize(
    ("kind", "event"),
    [
        (set[Side], {Side.BUY, Side.SELL}),
        (frozenset[Point], frozenset([Point(1, 2), Point(0, 1)])),
        (frozenset[Item], frozenset([Item("a"), Item("b")])),
        (set[int | str], {1, "a"}),
        (set[int | None], {1, None}),
    ],
)
def test_sets_of_values_that_cannot_be_sorted_return(
    serde_class: Any, kind: Any, event: Any
) -> None:
    sets = serde_class(kind)
    assert sets.decoder.decode(sets.encoder.encode(event)) == event
    with pytest.raises(TypeError, match="has no form here"):
        sets.encoder.encode({object()})


@attrs.define
class Account:
    id: int
    _balance: int = 0


@attrs.define
class Cached:
    id: int
    _sum: int = attrs.field(init=False, default=0)


ACCOUNT = {"type": "record", "name": "A", "fields": [{"name": "id", "type": "long"}]}


@pytest.mark.parametrize(
    "made",
    [
        Json(Account),
        Json(list[Account]),
        Json(Account | Item, tag="kind"),
        MessagePack(Account),
        Csv(Account),
        Avro(ACCOUNT, Account),
    ],
    ids=repr,
)
def test_a_private_attribute_of_attrs_is_read_and_would_not_be_written(made: Any) -> None:
    assert made.decoder
    with pytest.raises(WallarooParameterError, match="are not written: _balance of Account"):
        _ = made.encoder


def test_private_attributes_of_other_classes_and_of_no_argument_are_no_problem() -> None:
    assert Json(Account).decoder.decode(b'{"id": 1, "_balance": 5}') == Account(1, 5)
    assert Json(Cached).encoder.encode(Cached(1)) == b'{"id":1}'


PAIR = {
    "type": "record",
    "name": "Pair",
    "fields": [{"name": "b", "type": "long"}, {"name": "a", "type": "long"}],
}


def test_a_named_tuple_is_a_record_of_avro() -> None:
    pairs = Avro(PAIR, Pair)
    assert pairs.encoder.encode(Pair(1, 2)) == b"\x04\x02"
    assert pairs.decoder.decode(b"\x04\x02") == Pair(1, 2)


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}


@pytest.mark.parametrize(
    ("kind", "fits", "too_large"),
    [
        ("int", 2**31 - 1, 2**31),
        ("int", -(2**31), -(2**31) - 1),
        (["null", "int"], None, 2**31),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2**40]),
        ({"type": "map", "values": "int"}, {"a": 1}, {"a": 2**40}),
        ({"type": "array", "items": "R"}, [{"a": 2, "f": []}], [{"a": 2**31, "f": []}]),
    ],
)
def test_an_int_of_avro_has_32_bits(kind: Any, fits: Any, too_large: Any) -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "f", "type": kind}]
    serde = Avro({"type": "record", "name": "R", "fields": fields})
    event = {"a": 1, "f": fits}
    assert serde.decoder.decode(serde.encoder.encode(event)) == event
    with pytest.raises(ValueError, match=r"(does not fit an int|do not match).* on field f"):
        serde.encoder.encode({"a": 1, "f": too_large})


@pytest.mark.parametrize(
    ("kind", "fits", "wrong", "words"),
    [
        ("float", 3.0e38, 1e300, "1e+300 does not fit a float, which has 32 bits"),
        (["null", "float"], None, -1e300, "-1e+300 does not fit a float"),
        ({"type": "array", "items": "float"}, [math.inf], [10**39], "does not fit a float"),
        (["float", "double"], 1e300, "x", "do not match"),
        ("boolean", True, "x", "'x' (str) is not a boolean"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", "B", "'B' is not in list"),
        ("long", 2**62, 2**70, "too large"),
        (DECIMAL, Decimal("12.3"), Decimal("12.345"), "precision is bigger"),
    ],
)
def test_what_avro_does_not_hold_is_an_error_of_its_field(
    kind: Any, fits: Any, wrong: Any, words: str
) -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "f", "type": kind}]
    serde = Avro({"type": "record", "name": "R", "fields": fields})
    read = serde.decoder.decode(serde.encoder.encode({"a": 1, "f": fits}))["f"]
    assert read == pytest.approx(fits) if kind == "float" else read == fits
    with pytest.raises((TypeError, ValueError)) as info:
        serde.encoder.encode({"a": 1, "f": wrong})
    assert words in str(info.value)
    assert str(info.value).endswith(" on field f")
