"""Bills follow the changes of orders, at the price of the time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lakehouse import Order, OrderKey, Price, application_setup

from wallaroo.serdes import Change
from wallaroo.sinks import Delete
from wallaroo.testing import run_local


def at(hour: int) -> datetime:
    return datetime(2026, 3, 1, hour, tzinfo=UTC)


def test_a_bill_keeps_its_first_price_and_goes_with_its_order() -> None:
    changes = [
        Change("insert", None, Order(1, "tea", 2, at(9))),
        Change("insert", None, Order(2, "cup", 1, at(10))),  # before the first price of a cup
        Change("update", None, Order(1, "tea", 3, at(13))),
        Change("insert", None, Order(3, "tea", 1, at(13))),
        Change("update", None, Order(2, "cup", 2, at(13))),
        Change("update", None, Order(3, "tea", 0, at(14))),
        Change("delete", OrderKey(3), None),
    ]
    prices = [Price("tea", at(8), 250), Price("cup", at(11), 900), Price("tea", at(12), 300)]

    run = run_local(application_setup([]), {"orders": changes, "prices": prices}, batches=2)

    rows = [row if isinstance(row, Delete) else tuple(row.values()) for row in run.decoded]
    assert {number: [row for row in rows if id_of(row) == number] for number in (1, 2, 3)} == {
        1: [(1, "tea", 2, 500), (1, "tea", 3, 750)],
        2: [(2, "cup", 2, 1800)],
        3: [(3, "tea", 1, 300), Delete((3,))],
    }


def id_of(row: Any) -> Any:
    return row.key[0] if isinstance(row, Delete) else row[0]
