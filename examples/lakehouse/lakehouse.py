"""Lakehouse: orders of a PostgreSQL database, priced from a Delta table, as a Delta table.

Changes of the table ``orders`` come by logical replication, prices from a Delta table whose files
Spark reads.  Each change gets the price of its item at its time.  The state of an order is its
bill, and the Delta table ``bills`` has a row for each order that is not cancelled.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from deltalake import DeltaTable

import wallaroo
from wallaroo.serdes import Change, change_decoder, row_decoder
from wallaroo.sinks import Delete, DeltaSinkConfig
from wallaroo.sources import PostgresChangesConfig, SparkSourceConfig


@dataclass(frozen=True)
class Order:
    """A row of ``orders``; ``at`` is when it was last changed."""

    id: int
    item: str
    quantity: int
    at: datetime


@dataclass(frozen=True)
class OrderKey:
    """The key of a row that is deleted, of which the database sends no more."""

    id: int


@dataclass(frozen=True)
class Price:
    """The price of an item in cents, from a time on."""

    item: str
    at: datetime
    cents: int


@dataclass(frozen=True)
class Priced:
    """A change of an order with the price of its item at that time, if there was one."""

    order: Order
    cents: int | None


@dataclass(frozen=True)
class BillRow:
    """A row of the table of bills."""

    id: int
    item: str
    quantity: int
    cents: int


class Bill:
    """The state of an order, which keeps the price that it began with."""

    def __init__(self) -> None:
        self.item = ""
        self.quantity = 0
        self.price: int | None = None


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build the application: changes of orders, and prices -> bills."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dsn", default="")
    parser.add_argument("--prices", default="lake/prices")
    parser.add_argument("--bills", default="lake/bills")
    options = parser.parse_args(args)

    changes = PostgresChangesConfig(
        "orders", options.dsn, "shop_orders", change_decoder(Order, before=OrderKey)
    )
    prices = SparkSourceConfig("prices", delta_rows(options.prices), row_decoder(Price))
    bills = DeltaSinkConfig(options.bills, BillRow, key="id", group_s=1, name="bills")
    priced = (
        wallaroo.source("orders", changes)
        .filter(has_row)
        .map(changed_order)
        .with_event_time(time_of, delay=wallaroo.seconds(1), idle_after=wallaroo.seconds(2))
        .key_by(item_of)
        .join_latest(
            wallaroo.source("prices", prices).with_event_time(time_of).key_by(item_of), with_price
        )
    )
    return wallaroo.build_application("Lakehouse", priced.key_by(order_of).to(bill).to_sink(bills))


def delta_rows(path: str) -> Callable[[Any], Any]:
    """Return a reader of the files of a Delta table's newest version, in the order of their times.

    Files of older versions may be in the same folder, so the folder itself is not read.
    """
    return lambda spark: spark.read.parquet(*DeltaTable(path).file_uris()).orderBy("at")


def has_row(change: Change[Order]) -> bool:
    """Pass over the removal of rows: an order that is cancelled is kept, with quantity 0."""
    return change.after is not None


def changed_order(change: Change[Order]) -> Order:
    """Return the row as it is after the change."""
    return change.row


def time_of(event: Order | Price) -> datetime:
    """Return the time of a change, or from which a price is valid."""
    return event.at


@wallaroo.key_extractor
def item_of(event: Order | Price) -> str:
    """Return the item, of which orders and prices meet."""
    return event.item


@wallaroo.key_extractor
def order_of(priced: Priced) -> int:
    """Return the order, which has a bill."""
    return priced.order.id


def with_price(order: Order, price: Price | None) -> Priced:
    """Return both; there is no price before the first one."""
    return Priced(order, price.cents if price else None)


@wallaroo.state_computation(name="bill", state=Bill)
def bill(priced: Priced, bill: Bill, context: wallaroo.Context) -> BillRow | Delete | None:
    """Write the order's row, or delete it if the order is cancelled."""
    order = priced.order
    if order.quantity == 0:
        context.drop_state()
        return Delete(order.id)
    if bill.price is None:
        bill.price = priced.cents
    bill.item = order.item
    bill.quantity = order.quantity
    if bill.price is None:
        return None
    return BillRow(order.id, order.item, order.quantity, order.quantity * bill.price)
