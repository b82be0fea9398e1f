"""Events of several classes: a field names the class, and no event is read as another class's."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from wallaroo.errors import WallarooParameterError
from wallaroo.serdes import Json, MessagePack, SchemaRegistry, ShapeError


@dataclass(frozen=True)
class Quote:
    symbol: str


@dataclass(frozen=True)
class Trade:
    type: Literal["buy", "sell"]
    symbol: str


@dataclass(frozen=True)
class Sell:
    symbol: str


@dataclass
class Fixed:
    symbol: str
    type: Literal["fixed"] = field(init=False, default="fixed")


@dataclass(frozen=True)
class Named:
    type: str
    symbol: str


class Listed(NamedTuple):
    type: Literal["listed", "unlisted"]
    symbol: str


class Renamed(msgspec.Struct, rename="camel"):
    last_price: float


class Short(msgspec.Struct, omit_defaults=True):
    type: Literal["short"] = "short"
    size: int = 0


class OwnTag(msgspec.Struct, tag="own", tag_field="type"):
    size: int = 0


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    size: int = 0


class AsList(msgspec.Struct, array_like=True):
    size: int = 0


class Kind(Enum):
    BUY = "buy"
    OF_KIND = "ofkind"


@dataclass(frozen=True)
class OfEnum:
    type: Kind


@dataclass(frozen=True)
class OfKind:
    type: Kind = Kind.OF_KIND


@dataclass(frozen=True)
class OrNone:
    type: Literal["a"] | None = None


class DictQuote(TypedDict):
    symbol: str


class DictTrade(TypedDict):
    type: Literal["trade"]
    size: int


class DictBid(TypedDict, total=False):
    type: Literal["bid"]


FORMATS = pytest.mark.parametrize("serde_class", [Json, MessagePack])


@FORMATS
def test_every_form_of_class_is_read_as_it_was_written(serde_class: Any) -> None:
    kinds = Quote | Trade | Fixed | Named | OfKind | Listed | Renamed | Short | OwnTag | DictTrade
    events = serde_class(kinds, tag="type")
    for event in (
        Quote("A"),
        Trade("buy", "A"),
        Fixed("A"),
        Named("named", "A"),
        OfKind(),
        Listed("unlisted", "A"),
        Renamed(2.5),
        Short(size=3),
        OwnTag(3),
        DictTrade(type="trade", size=3),
    ):
        assert events.decoder.decode(events.encoder.encode(event)) == event


@FORMATS
def test_a_dict_is_of_the_only_typed_dict(serde_class: Any) -> None:
    events = serde_class(DictQuote | Trade | None, tag="type")
    payload = events.encoder.encode({"symbol": "A"})
    assert serde_class().decoder.decode(payload) == {"type": "dictquote", "symbol": "A"}
    assert events.decoder.decode(payload) == {"symbol": "A"}


@FORMATS
@pytest.mark.parametrize("kinds", [DictQuote | DictTrade, DictBid | Trade], ids=str)
def test_typed_dicts_that_do_not_name_their_class_are_read_and_not_written(
    serde_class: Any, kinds: Any
) -> None:
    events = serde_class(kinds, tag="type")
    assert events.decoder
    with pytest.raises(WallarooParameterError, match="has no required key 'type'"):
        _ = events.encoder


def test_with_a_registry_typed_dicts_that_do_not_name_their_class_are_not_written() -> None:
    registry = SchemaRegistry("http://127.0.0.1:8081", "events-value")
    events = Json(DictQuote | DictTrade, tag="type", schema={}, schema_registry=registry)
    with pytest.raises(WallarooParameterError, match="has no required key 'type'"):
        _ = events.encoder


def test_what_is_of_no_class_is_not_written_without_its_fields() -> None:
    encode = Json(Quote | Trade, tag="type").encoder.encode
    assert json.loads(encode(Sell("A"))) == {"type": "sell", "symbol": "A"}
    with pytest.raises(TypeError, match="no class that the field 'type' could name"):
        encode({"symbol": "A"})


@FORMATS
def test_case_distinguishes_names(serde_class: Any) -> None:
    events = serde_class(Quote | Trade | None, tag="type").decoder
    write = serde_class().encoder.encode
    for name in ("QUOTE", "SELL", "Trade"):
        assert events.decode(write({"type": name, "symbol": "A"})) is None
        assert events.decode(write({"symbol": "A", "type": name})) is None
    assert events.decode(write({"type": "Quote", "symbol": "A"})) == Quote("A")
    with pytest.raises(ShapeError, match="expected one of 'buy', 'sell', got 'SELL'"):
        serde_class(Trade, tag="type").decoder.decode(write({"type": "SELL", "symbol": "A"}))


@pytest.mark.parametrize("spaced", [b":", b": "])
def test_any_number_of_other_classes_is_dropped_and_each_is_checked(spaced: bytes) -> None:
    decode = Json(Quote | Trade | None, tag="type").decoder.decode

    def payload(name: str, end: bytes = b"}") -> bytes:
        return b'{"type"' + spaced + b'"%b","symbol":"A"' % name.encode() + end

    for name in (*(f"{'n' * (each % 9)}{each}" for each in range(200)), "q", "ü"):
        for _ in range(2):
            assert decode(payload(name)) is None
            assert decode(payload("quote")) == Quote("A")
            assert decode(payload("sell")) == Trade("sell", "A")
            with pytest.raises(msgspec.DecodeError):
                decode(payload(name, b""))
            with pytest.raises(msgspec.DecodeError):
                decode(payload(name, b",}"))
    for other_form in (bytearray, memoryview, bytes.decode):
        assert decode(other_form(payload("quote"))) == Quote("A")
        assert decode(other_form(payload("q"))) is None


@pytest.mark.parametrize(
    ("kinds", "tag", "words"),
    [
        (Trade | Sell, "type", "type='sell' names two classes, Trade and Sell"),
        (Sell | Trade, "type", "type='sell' names two classes, Sell and Trade"),
        (int | str, "type", "is for a union of classes with fields, not int"),
        (Quote | dict, "type", "is for a union of classes with fields, not dict"),
        (Quote | list[int], "type", r"is for a union of classes, not list\[int\]"),
        (Quote | OfEnum, "type", "'type' of OfEnum does not tell by which texts"),
        (Quote | OrNone, "type", "'type' of OrNone does not tell by which texts"),
        (Quote | Closed, "type", "An object of Closed cannot have the field 'type'"),
        (Quote | AsList, "type", "An object of AsList cannot have the field 'type'"),
        (Quote | Trade, 3, "tag=3 is not the name of a field"),
    ],
)
@FORMATS
def test_a_union_that_the_field_cannot_tell_apart_is_refused(
    serde_class: Any, kinds: Any, tag: Any, words: str
) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        serde_class(kinds, tag=tag)
