"""What the text of a function shows of its results, and of the events that it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import pytest

from wallaroo.user_code.events_used import class_returned, lacks, uses_of_event


class Order:
    """A class of events."""


class Row(NamedTuple):
    """A row."""

    name: str


@dataclass(slots=True)
class Slotted:
    """A class whose objects have no other attributes."""

    name: str


class Kind(Enum):
    """A class whose call looks up an object."""

    A = "a"


class Chosen:
    """A class that creates objects of another one."""

    def __new__(cls) -> Any:
        return Order()


def of_a_class(line):  # type: ignore[no-untyped-def]
    if line:
        return Order()
    return None


def of_a_row(line):  # type: ignore[no-untyped-def]
    def inner() -> int:
        return 1

    return Row(line * inner())


def of_text(line):  # type: ignore[no-untyped-def]
    return f"{line}!"


def of_several(line):  # type: ignore[no-untyped-def]
    return Order() if line else {}


def of_two(line):  # type: ignore[no-untyped-def]
    if line:
        return []
    return {}


def of_another(line):  # type: ignore[no-untyped-def]
    return Chosen()


def of_an_enum(line):  # type: ignore[no-untyped-def]
    return Kind("a")


def of_a_local_name(line):  # type: ignore[no-untyped-def]
    Order = dict
    return Order()


def of_a_generator(line):  # type: ignore[no-untyped-def]
    yield line
    return Order()


@pytest.mark.parametrize(
    ("function", "returned"),
    [
        (of_a_class, Order),
        (of_a_row, Row),
        (of_text, str),
        *(
            (function, None)
            for function in (
                of_several,
                of_two,
                of_another,
                of_an_enum,
                of_a_local_name,
                of_a_generator,
                len,
                lambda line: Order(),
            )
        ),
    ],
)
def test_a_class_is_known_if_each_return_creates_it(
    function: Callable[..., Any], returned: type[Any] | None
) -> None:
    assert class_returned(function) is returned


def needs(order):  # type: ignore[no-untyped-def]
    total = order["amount"] + order.fee
    return total if order.is_paid or order["vip"] else None


def needs_perhaps(order):  # type: ignore[no-untyped-def]
    names = [order.name for _ in range(3)]
    print(names, lambda: order.id, True and order["id"], 1 if names else order.id)
    if names:
        return order["id"]
    return order.id


def needs_another(order):  # type: ignore[no-untyped-def]
    order = order or {}
    return order["id"]


def tries(order):  # type: ignore[no-untyped-def]
    try:
        return order["id"]
    except TypeError:
        return order.id


def test_uses_at_each_call_are_found() -> None:
    assert sorted(uses_of_event(needs)) == [
        ("order.fee", "fee"),
        ("order.is_paid", "is_paid"),
        ("order['amount']", "__getitem__"),
    ]


@pytest.mark.parametrize("function", [needs_perhaps, needs_another, tries, len])
def test_uses_that_depend_on_something_are_unknown(function: Callable[..., Any]) -> None:
    assert list(uses_of_event(function)) == []


class Open:
    """A class with attributes by any name."""

    __slots__ = ()

    def __getattr__(self, name: str) -> str:
        return name


@pytest.mark.parametrize(
    ("cls", "attribute", "is_lacking"),
    [
        (dict, "id", True),
        (dict, "items", False),
        (str, "id", True),
        (Slotted, "name", False),
        (Slotted, "nam", True),
        (Row, "name", False),
        (Row, "nam", True),
        (Order, "anything", False),  # each object may have it
        (Order, "__getitem__", True),
        (Open, "id", False),
    ],
)
def test_a_class_lacks_what_none_of_its_objects_can_have(
    cls: type[Any], attribute: str, is_lacking: bool
) -> None:
    assert lacks(cls, attribute) is is_lacking
