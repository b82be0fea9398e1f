"""An application with packing of its own: ``serialize`` and ``deserialize`` know its two classes,
and nothing else.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import wallaroo
from tests.conformance.apps.steps import sink, source
from wallaroo.api.application import Application

ORDER, BOOK = b"O", b"B"


class Order:
    def __init__(self, symbol: str, amount: int):
        self.symbol, self.amount = symbol, amount

    def __reduce__(self) -> Any:
        raise TypeError("orders are not pickled")


class Book:
    def __init__(self, total: int = 0):
        self.total = total

    def __reduce__(self) -> Any:
        raise TypeError("books are not pickled")


def serialize(value: Any) -> bytes:
    """Pack an Order or a Book; anything else is a mistake."""
    if isinstance(value, Order):
        return ORDER + struct.pack(">q", value.amount) + value.symbol.encode()
    if isinstance(value, Book):
        return BOOK + struct.pack(">q", value.total)
    raise TypeError(f"neither an Order nor a Book: {value!r}")


def deserialize(packed: bytes) -> Any:
    """Undo ``serialize``."""
    (number,) = struct.unpack_from(">q", packed, 1)
    return Order(packed[9:].decode(), number) if packed[:1] == ORDER else Book(number)


@wallaroo.decoder(name="order")
def decode(payload: bytes) -> Order:
    symbol, _, amount = payload.decode().partition(" ")
    return Order(symbol, int(amount))


@wallaroo.computation("parse")
def parse(line: str) -> Order:
    symbol, _, amount = line.partition(" ")
    return Order(symbol, int(amount))


@wallaroo.key_extractor("symbol")
def symbol(order: Order) -> str:
    return order.symbol


@wallaroo.state_computation("book", state=Book)
def book(order: Order, own: Book) -> Order:
    own.total += order.amount
    order.amount = own.total
    return order


@wallaroo.state_computation("book again", state=Book)
def book_again(order: Order, own: Book) -> str:
    own.total += 1
    return f"{order.symbol} {order.amount} {own.total}"


def raw_frames(inputs: Path, outputs: Path) -> Application:
    """Only a decoder comes before key_by: frames cross the shuffle, which ``serialize`` does not
    know.
    """
    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", str(inputs / "in.txt"), decode))
    return _closed("raw frames", lines, outputs)


def own_events(inputs: Path, outputs: Path) -> Application:
    """Events cross the shuffle."""
    return _closed("own events", source(inputs).to(parse), outputs)


def _closed(name: str, pipeline: Any, outputs: Path) -> Application:
    keyed = pipeline.key_by(symbol).to(book).key_by(symbol).to(book_again)
    return wallaroo.build_application(name, keyed.to_sink(sink(outputs)))
