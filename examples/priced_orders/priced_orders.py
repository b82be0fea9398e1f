"""Priced orders: give each order the newest quote of its symbol at the order's time.

Orders and quotes come from two files, each in the order of its own times.  An order waits until
both sources have passed its time; so its price does not depend on which file is read faster.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import wallaroo


@dataclass(frozen=True)
class Order:
    """``count`` pieces of a symbol, ordered at a second of the day."""

    second: float
    symbol: str
    count: int


@dataclass(frozen=True)
class Quote:
    """The price of a symbol from a second of the day on."""

    second: float
    symbol: str
    price: float


def application_setup(args: list[str]) -> object:
    """Build the application: orders with the newest quotes -> text."""
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    parser = argparse.ArgumentParser()
    parser.add_argument("--orders", default="orders.txt")
    parser.add_argument("--quotes", default="quotes.txt")
    options, _ = parser.parse_known_args(args)

    orders = wallaroo.source("Orders", wallaroo.FileSourceConfig("Orders", options.orders))
    quotes = wallaroo.source("Quotes", wallaroo.FileSourceConfig("Quotes", options.quotes))
    pipeline = (
        orders.map(read_order)
        .with_event_time(second_of, allow_before_1980=True)
        .key_by(order_symbol)
        .join_latest(
            quotes.map(read_quote)
            .with_event_time(second_of, allow_before_1980=True)
            .key_by(quote_symbol),
            price,
            max_age=wallaroo.minutes(1),
        )
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode_line))
    )
    return wallaroo.build_application("Priced orders", pipeline)


def read_order(line: str) -> Order:
    """A line is second, symbol and count."""
    second, symbol, count = line.split()
    return Order(float(second), symbol, int(count))


def read_quote(line: str) -> Quote:
    """A line is second, symbol and price."""
    second, symbol, quoted = line.split()
    return Quote(float(second), symbol, float(quoted))


def second_of(event: Order | Quote) -> float:
    """Orders and quotes carry their time."""
    return event.second


@wallaroo.key_extractor
def order_symbol(order: Order) -> str:
    """Orders meet quotes by symbol."""
    return order.symbol


@wallaroo.key_extractor
def quote_symbol(quote: Quote) -> str:
    """Quotes meet orders by symbol."""
    return quote.symbol


def price(order: Order, quote: Quote | None) -> str:
    """What the order costs, if there is a quote that is not too old."""
    cost = "no quote" if quote is None else f"{order.count * quote.price:.2f}"
    return f"{order.symbol} {order.count} at {order.second:g}: {cost}"


@wallaroo.encoder
def encode_line(line: str) -> str:
    """A line of text for each order."""
    return f"{line}\n"
