"""Nexmark's input: each event is a function of its number alone.

    python -m benchmarks.nexmark.generator EVENTS FILE

The proportions are those of the suite: of 50 events one is a person, three are auctions, 46 are
bids.  Half of the bids are for a hot auction, three quarters by a hot bidder, three quarters of the
auctions by a hot seller; a hot one is the first (bidders: the second) of each hundred.  Prices are
spread evenly by their logarithm.  A tenth of the events is up to 300 ms older than those before it.

Where it runs: the benchmark's process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from string import ascii_lowercase

from benchmarks.nexmark.events import SERDE, Auction, Bid, Event, Person

PERSONS, AUCTIONS, ALL = 1, 3, 50  # of each fifty events
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
HOT_GROUP = 100  # one of so many is hot
ACTIVE_PERSONS, OPEN_AUCTIONS = 1000, 100
LEAD = 10  # ids that are used before their person or auction has come
BEGIN_MS = 1_767_225_600_000  # 2026-01-01
EVENTS_PER_S = 1000
LATE_MS_MAX = 300
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "Boise", "Portland", "Bend", "Seattle", "Kent", "Cheyenne")
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000


def event(number: int) -> Event:
    """Return the event of a number, counted from 0."""
    random = Random(number)
    at = BEGIN_MS + number * 1000 // EVENTS_PER_S
    if random.random() < 0.1:
        at = max(BEGIN_MS, at - random.randrange(LATE_MS_MAX))
    epoch, place = divmod(number, ALL)
    if place < PERSONS:
        return _person(random, epoch, at)
    if place < PERSONS + AUCTIONS:
        return _auction(random, epoch, epoch * AUCTIONS + place - PERSONS, at)
    return _bid(random, epoch, epoch * AUCTIONS + AUCTIONS - 1, at)


def lines(events: int) -> Iterator[bytes]:
    """Yield the first events as lines of JSON."""
    encode = SERDE.encoder.encode
    for number in range(events):
        yield encode(event(number)) + b"\n"


def _person(random: Random, number: int, at: int) -> Person:
    name = f"{random.choice(FIRST_NAMES)} {random.choice(LAST_NAMES)}"
    email = f"{_text(random, 5)}@{_text(random, 4)}.com"
    card = " ".join(f"{random.randrange(10_000):04}" for _ in range(4))
    city, state = random.choice(CITIES), random.choice(STATES)
    return Person(FIRST_ID + number, name, email, card, city, state, at, _text(random, 130))


def _auction(random: Random, person: int, number: int, at: int) -> Auction:
    is_hot = random.randrange(4) > 0
    seller = person // HOT_GROUP * HOT_GROUP if is_hot else _active_person(random, person)
    open_ms = OPEN_AUCTIONS * ALL // AUCTIONS * 1000 // EVENTS_PER_S  # on average
    initial = _price(random)
    return Auction(
        id=FIRST_ID + number,
        item=_text(random, 12),
        description=_text(random, 50),
        initial_bid=initial,
        reserve=initial + _price(random),
        at=at,
        expires=at + 1 + random.randrange(2 * open_ms),
        seller=FIRST_ID + seller,
        category=FIRST_CATEGORY + random.randrange(CATEGORIES),
        extra=_text(random, 400),
    )


def _bid(random: Random, person: int, last_auction: int, at: int) -> Bid:
    if random.randrange(2):
        auction = last_auction // HOT_GROUP * HOT_GROUP
    else:
        auction = random.randrange(max(0, last_auction - OPEN_AUCTIONS), last_auction + 1 + LEAD)
    is_hot = random.randrange(4) > 0
    bidder = person // HOT_GROUP * HOT_GROUP + 1 if is_hot else _active_person(random, person)
    price = _price(random)
    channel, url = _channel(random)
    extra = _text(random, 68)
    return Bid(FIRST_ID + auction, FIRST_ID + bidder, price, channel, url, at, extra)


def _active_person(random: Random, last: int) -> int:
    return random.randrange(max(0, last + 1 - ACTIVE_PERSONS), last + 1 + LEAD)


def _price(random: Random) -> int:
    return round(100 * 10 ** (6 * random.random()))


def _channel(random: Random) -> tuple[str, str]:
    if random.randrange(2):
        channel = random.choice(HOT_CHANNELS)
        return channel, _url(channel.lower())
    number = random.randrange(CHANNELS)
    known = f"&channel_id={number * 214_013 % 2**31}" if number % 10 else ""
    return f"channel-{number}", _url(f"c{number}") + known


def _url(name: str) -> str:
    return f"https://www.nexmark.com/{name}/{name[::-1]}/{name[:2]}_x/item.htm?query=1"


def _text(random: Random, length: int) -> str:
    count = length - length // 5 + random.randrange(2 * (length // 5) + 1)
    return "".join(random.choices(ascii_lowercase, k=count))


if __name__ == "__main__":
    with Path(sys.argv[2]).open("wb") as file:
        file.writelines(lines(int(sys.argv[1])))
