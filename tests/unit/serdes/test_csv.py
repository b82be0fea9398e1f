"""Rows of CSV: each value is in its column, in both directions, and what has no form is refused."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.serdes.orders import Item, Order, Side
from wallaroo.errors import WallarooParameterError
from wallaroo.serdes import Csv, CsvLine
from wallaroo.serdes.csv import row_of


class Pair(NamedTuple):
    a: int
    b: int


class Three(NamedTuple):
    a: str
    b: int = 3
    c: int = 5


@dataclass(frozen=True)
class Data:
    a: str
    b: int = 3
    c: int = 5


class Quote(TypedDict):
    symbol: str
    price: float
    note: NotRequired[str]


class Renamed(msgspec.Struct, rename="camel"):
    last_price: float | None


@dataclass(frozen=True)
class Raw:
    payload: bytes


@dataclass(frozen=True)
class Basket:
    name: str
    items: list[str] = field(default_factory=list)


def test_csv_reads_texts_as_fields() -> None:
    orders = Csv(Order, columns=("id", "side", "price", "note"))
    assert orders.decoder.decode(b'7,buy,"1.5",') == Order(7, Side.BUY, 1.5)
    line = CsvLine(b"\xef\xbb\xbfprice,id,side", b"2.0,8,sell")
    assert Csv(Order).decoder.decode(line) == Order(8, Side.SELL, 2.0)  # type: ignore[arg-type]
    assert Csv(columns=("a", "b")).decoder.decode(b'1,"x, ""y"""') == {"a": "1", "b": 'x, "y"'}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'"a', "has to be on one line"),
        (b"1,2,3", "3 values for 2 columns"),
        (b"1,x", "b: expected int, got 'x'"),
    ],
)
def test_a_row_that_does_not_fit_says_why(line: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Csv(Pair, columns=("a", "b")).decoder.decode(line)


def test_csv_writes_rows() -> None:
    assert Csv(Item).line_encoder.function(Item('a"b', 2)) == b'"a""b",2\n'
    assert Csv(columns=("b", "a")).encoder.function({"a": 1, "b": 2}) == b"2,1"
    with pytest.raises(ValueError, match="newline"):
        Csv(Item).encoder.function(Item("a\nb"))


@pytest.mark.parametrize("kind", [Three, Data])
def test_columns_are_written_in_their_order(kind: Any) -> None:
    event = kind("q", 1, 2)
    for rows in (Csv(kind, columns=("b", "a", "c")), Csv(columns=("b", "a", "c"))):
        assert rows.encoder.encode(event) == b"1,q,2"
    assert Csv(kind, columns=("b", "a", "c")).decoder.decode(b"1,q,2") == event
    assert Csv(kind, columns=("a", "c")).encoder.encode(event) == b"q,2"


@pytest.mark.parametrize("kind", [Three, Data])
def test_without_columns_rows_have_the_fields_of_the_type(kind: Any) -> None:
    rows = Csv(kind)
    assert rows.encoder.encode(kind("q", 1, 2)) == b"q,1,2"
    assert rows.decoder.decode(b"q,1,2") == kind("q", 1, 2)
    line: Any = CsvLine(b"c,b,a", b"2,1,q")
    assert rows.decoder.decode(line) == kind("q", 1, 2)


def test_keys_of_a_typed_dict_are_in_the_order_of_its_fields() -> None:
    encode = Csv(Quote, columns=("symbol", "price")).encoder.encode
    assert encode({"price": 2.5, "symbol": "A"}) == b"A,2.5"
    every = Csv(Quote)
    event: Quote = {"note": "n", "price": 2.5, "symbol": "A"}
    assert every.encoder.encode(event) == b"A,2.5,n"
    assert every.decoder.decode(b"A,2.5,n") == event
    with pytest.raises(ValueError, match="no value for the column 'note'"):
        every.encoder.encode({"price": 2.5, "symbol": "A"})


def test_bytes_and_renamed_fields_return() -> None:
    raw = Csv(Raw)
    assert raw.encoder.encode(Raw(b"\0\xff")) == b"AP8="
    assert raw.decoder.decode(b"AP8=") == Raw(b"\0\xff")
    assert Csv(Renamed, columns=("lastPrice",)).decoder.decode(b'""') == Renamed(None)


def test_a_value_in_quotes_may_be_long() -> None:
    texts = Csv(columns=("a", "b"))
    event = {"a": "," * 200_000, "b": "c"}
    assert texts.decoder.decode(texts.encoder.encode(event)) == event


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"a": 1}, "no value for the column 'b'"),
        ((1, 2, 3), "3 values for 2 columns"),
        ({"a": 1, "b": [1]}, "a column has one value"),
        ("ab", "a row is an object, a dict or a list, not 'ab'"),
    ],
)
def test_an_event_that_makes_no_row_is_refused(event: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        Csv(columns=("a", "b")).encoder.encode(event)


def test_a_field_that_fits_no_column_is_not_written() -> None:
    assert Csv(Basket, columns=("name",)).encoder.encode(Basket("a")) == b"a"
    with pytest.raises(WallarooParameterError, match="'items' is of several values"):
        _ = Csv(Basket).encoder
    rows = Csv(Data, columns=("a", "zz"))
    assert rows.decoder.decode(b"q,1") == Data("q")
    with pytest.raises(WallarooParameterError, match="'zz' is a column, and no field"):
        _ = rows.encoder


@pytest.mark.parametrize("delimiter", ["", ";;", '"', "\n", "\r", None])
def test_a_delimiter_that_separates_nothing_is_refused(delimiter: Any) -> None:
    with pytest.raises(WallarooParameterError, match="is not one character"):
        Csv(delimiter=delimiter)


@pytest.mark.parametrize("columns", [("a", "a"), "abc"])
def test_columns_are_different_names(columns: Any) -> None:
    with pytest.raises(WallarooParameterError, match="are not different names"):
        Csv(columns=columns)


@given(st.text(st.sampled_from("ab,; \"'\r\0\\\t\u2028é"), max_size=12), st.sampled_from(",;\t"))
def test_a_row_of_csv_is_what_the_standard_reader_returns(text: str, delimiter: str) -> None:
    """Also if it is read by a shorter way."""
    try:
        expected = next(csv.reader([text], delimiter=delimiter, strict=True), [])
    except csv.Error:
        with pytest.raises(ValueError, match="on one line"):
            row_of(text, delimiter)
        return
    assert row_of(text, delimiter) == expected
