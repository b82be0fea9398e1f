"""As-of orders: each order of a CSV file with the newest quote of its symbol at that time.

Quotes come from a second CSV file, the result goes to Parquet: what ``pandas.merge_asof`` gives,
from files of any size, and the same from live sources.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import wallaroo
from wallaroo.serdes import Csv
from wallaroo.sinks import RollingSinkConfig
from wallaroo.sources import FilesSourceConfig


@dataclass(frozen=True)
class Order:
    """An order, in seconds since 1970."""

    id: int
    symbol: str
    at: float
    quantity: int


@dataclass(frozen=True)
class Quote:
    """The price of a symbol, from a time on."""

    symbol: str
    at: float
    price: float


COLUMNS = {
    "id": "int64",
    "symbol": "string",
    "at": "double",
    "quantity": "int64",
    "price": "double",
}


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build the application: orders and quotes -> orders with their prices."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--orders", default="orders.csv")
    parser.add_argument("--quotes", default="quotes.csv")
    parser.add_argument("--out", default="priced")
    options = parser.parse_args(args)

    orders = wallaroo.source(
        "orders", FilesSourceConfig("orders", options.orders, Csv(Order).decoder)
    )
    quotes = wallaroo.source(
        "quotes", FilesSourceConfig("quotes", options.quotes, Csv(Quote).decoder)
    )
    priced = (
        orders.with_event_time(time_of)
        .key_by(symbol_of)
        .join_latest(quotes.with_event_time(time_of).key_by(symbol_of), priced_order)
    )
    return wallaroo.build_application(
        "As-of orders", priced.to_sink(RollingSinkConfig(options.out, columns=COLUMNS))
    )


def time_of(event: Order | Quote) -> float:
    """Return the time that a line carries."""
    return event.at


@wallaroo.key_extractor
def symbol_of(event: Order | Quote) -> str:
    """Return the symbol, whose orders and quotes meet."""
    return event.symbol


def priced_order(order: Order, quote: Quote | None) -> dict[str, Any]:
    """Return a row; the price is null before the first quote."""
    return {**vars(order), "price": quote.price if quote else None}
