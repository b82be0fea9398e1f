"""What happens at the auction house: the three classes of events, and how they are read.

Where it runs: everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import wallaroo
from wallaroo.serdes import Json

MILLISECOND = wallaroo.milliseconds(1)


@dataclass(frozen=True, slots=True)
class Person:
    id: int
    name: str
    email: str
    credit_card: str
    city: str
    state: str
    at: int  # milliseconds since 1970, as all times of events
    extra: str


@dataclass(frozen=True, slots=True)
class Auction:
    id: int
    item: str
    description: str
    initial_bid: int
    reserve: int
    at: int
    expires: int
    seller: int
    category: int
    extra: str


@dataclass(frozen=True, slots=True)
class Bid:
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    at: int
    extra: str


Event = Person | Auction | Bid
SERDE = Json[Event](Event, tag="type")
ROWS = Json()


def time_of(event: Event) -> int:
    return event.at * MILLISECOND


def is_person(event: Event) -> bool:
    return type(event) is Person


def is_auction(event: Event) -> bool:
    return type(event) is Auction


def is_bid(event: Event) -> bool:
    return type(event) is Bid
