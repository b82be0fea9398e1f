"""The 24 queries of Nexmark, each as a pipeline from events to rows.

The SQL of the suite is their definition (github.com/nexmark/nexmark).  What SQL has as a changing
table is here a stream of rows of which the newest one per key counts (``KEYS`` of ``oracle.py``).

Where it runs: everywhere.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import wallaroo
from benchmarks.nexmark.events import Auction, Bid, Event, Person, is_auction, is_bid, time_of

Events = wallaroo.Pipeline[Any]
Rows = wallaroo.Pipeline[Any]
DELAY = wallaroo.seconds(4)  # the suite's
SECOND, DAY = wallaroo.seconds(1), wallaroo.hours(24)
MS = wallaroo.milliseconds(1)
TEN_SECONDS = wallaroo.range_windows(10 * SECOND)
PER_DAY = wallaroo.range_windows(DAY).with_early_results(10 * SECOND)


def timed(events: Events) -> Events:
    return events.with_event_time(time_of, delay=DELAY)


def bids(events: Events) -> Events:
    return events.filter(is_bid)


# --- one event, one row ---


def q0(events: Events) -> Rows:
    """Pass through."""
    return bids(events).map(lambda b: (b.auction, b.bidder, b.price, b.at, b.extra))


def q1(events: Events) -> Rows:
    """Currency conversion."""
    return bids(events).map(lambda b: (b.auction, b.bidder, euros(b), b.at, b.extra))


def euros(bid: Bid) -> float:
    return bid.price * 908 / 1000


def q2(events: Events) -> Rows:
    """Selection."""
    return bids(events).filter(lambda b: b.auction % 123 == 0).map(lambda b: (b.auction, b.price))


def q10(events: Events) -> Rows:
    """Log to a file system, the folders as columns."""
    return bids(events).map(
        lambda b: (
            b.auction,
            b.bidder,
            b.price,
            b.at,
            b.extra,
            *f"{clock(b):%Y-%m-%d %H:%M}".split(),
        )
    )


def clock(bid: Bid) -> datetime:
    return datetime.fromtimestamp(bid.at / 1000, UTC)


SIDE_INPUT = {number: f"side {number}" for number in range(10_000)}


def q13(events: Events) -> Rows:
    """Join with a bounded side input."""
    return bids(events).map(
        lambda b: (b.auction, b.bidder, b.price, b.at, SIDE_INPUT[b.auction % 10_000])
    )


def q14(events: Events) -> Rows:
    """Calculation."""
    return (
        bids(events)
        .filter(lambda b: 1_000_000 < euros(b) < 50_000_000)
        .map(
            lambda b: (
                *(b.auction, b.bidder, euros(b), time_type(clock(b).hour), b.at),
                *(b.extra, b.extra.count("c")),
            )
        )
    )


def time_type(hour: int) -> str:
    if 8 <= hour <= 18:
        return "dayTime"
    return "nightTime" if hour <= 6 or hour >= 20 else "otherTime"


CHANNEL_IDS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


def q21(events: Events) -> Rows:
    """Add the channel's id."""
    return bids(events).map(with_channel_id)


def with_channel_id(bid: Bid) -> tuple[Any, ...] | None:
    number = CHANNEL_IDS.get(bid.channel.lower())
    if number is None:
        _, mark, rest = bid.url.partition("&channel_id=")
        if not mark:
            return None
        number = rest.partition("&")[0]
    return bid.auction, bid.bidder, bid.price, bid.channel, number


def q22(events: Events) -> Rows:
    """Folders of a URL."""
    return bids(events).map(
        lambda b: (b.auction, b.bidder, b.price, b.channel, *b.url.split("/", 6)[3:6])
    )


# --- joins of tables ---


class Matches:
    """A row, and what came before it."""

    def __init__(self) -> None:
        self.one: Any = None
        self.waiting: list[Any] = []


def match(event: Event, matches: Matches, kind: type[Any]) -> list[tuple[Any, Any]]:
    """Pair events with the one of that kind, which may come after them."""
    if isinstance(event, kind):
        matches.one = event
        waiting, matches.waiting = matches.waiting, []
        return [(event, many) for many in waiting]
    if matches.one is not None:
        return [(matches.one, event)]
    matches.waiting.append(event)
    return []


@wallaroo.key_extractor
def person_of(event: Event) -> int:
    if isinstance(event, Bid):
        return event.bidder
    return event.seller if isinstance(event, Auction) else event.id


@wallaroo.key_extractor
def auction_of(event: Auction | Bid) -> int:
    return event.auction if isinstance(event, Bid) else event.id


@wallaroo.state_computation_multi(name="match seller", state=Matches)
def match_seller(event: Event, matches: Matches) -> list[tuple[Person, Auction]]:
    return match(event, matches, Person)


@wallaroo.state_computation_multi(name="match auction", state=Matches)
def match_auction(event: Event, matches: Matches) -> list[tuple[Auction, Bid]]:
    return match(event, matches, Auction)


def q3(events: Events) -> Rows:
    """Local item suggestion."""
    return (
        events.filter(is_local_or_item)
        .key_by(person_of)
        .to(match_seller)
        .map(lambda pair: (pair[0].name, pair[0].city, pair[0].state, pair[1].id))
    )


def is_local_or_item(event: Event) -> bool:
    if isinstance(event, Auction):
        return event.category == 10
    return isinstance(event, Person) and event.state in ("OR", "ID", "CA")


def q20(events: Events) -> Rows:
    """Expand bids with their auction."""
    return (
        events.filter(lambda e: is_bid(e) or is_auction(e))
        .key_by(auction_of)
        .to(match_auction)
        .filter(lambda pair: pair[0].category == 10)
        .map(lambda pair: (*bid_row(pair[1]), *auction_row(pair[0])))
    )


def bid_row(b: Bid) -> tuple[Any, ...]:
    return b.auction, b.bidder, b.price, b.channel, b.url, b.at, b.extra


def auction_row(a: Auction) -> tuple[Any, ...]:
    return (
        *(a.item, a.description, a.initial_bid, a.reserve, a.at),
        *(a.expires, a.seller, a.category, a.extra),
    )


class Member:
    """A person, with their auctions and bids."""

    def __init__(self) -> None:
        self.person: Person | None = None
        self.auctions: list[Auction] = []
        self.bids: list[Bid] = []


@wallaroo.state_computation_multi(name="match member", state=Member)
def match_member(event: Event, member: Member) -> list[tuple[Bid, Person, Auction]]:
    own_bids, auctions = member.bids, member.auctions
    if isinstance(event, Person):
        member.person = event
    elif isinstance(event, Auction):
        member.auctions.append(event)
        auctions = [event]
    else:
        member.bids.append(event)
        own_bids = [event]
    if member.person is None:
        return []
    return [(bid, member.person, auction) for bid in own_bids for auction in auctions]


def q23(events: Events) -> Rows:
    """Expand bids with their bidder and the bidder's auctions."""
    return (
        events.key_by(person_of)
        .to(match_member)
        .map(lambda found: (*bid_row(found[0]), *person_row(found[1]), *auction_row(found[2])))
    )


def person_row(p: Person) -> tuple[Any, ...]:
    return p.id, p.name, p.email, p.credit_card, p.city, p.state, p.extra


# --- winning bids ---


class Lot:
    """An auction and its best bid so far."""

    def __init__(self) -> None:
        self.auction: Auction | None = None
        self.best: Bid | None = None
        self.early: list[Bid] = []  # came before the auction
        self.is_closed = False


@wallaroo.state_computation(name="winning bid", state=Lot)
def offer(event: Auction | Bid, lot: Lot, context: wallaroo.Context) -> tuple[Auction, Bid] | None:
    if lot.is_closed:
        return None
    if isinstance(event, Auction):
        lot.auction = event
        context.set_timer("close", (event.expires + 1) * MS)
        for bid in lot.early:
            take(bid, event, lot)
        lot.early.clear()
    elif lot.auction is None:
        lot.early.append(event)
    else:
        take(event, lot.auction, lot)
    return None


def take(bid: Bid, auction: Auction, lot: Lot) -> None:
    is_open = auction.at <= bid.at <= auction.expires
    if is_open and (lot.best is None or (-bid.price, bid.at) < (-lot.best.price, lot.best.at)):
        lot.best = bid


@offer.on_timer
def close(lot: Lot, context: wallaroo.Context, name: str) -> tuple[Auction, Bid] | None:
    auction, best = lot.auction, lot.best
    lot.auction, lot.best, lot.is_closed = None, None, True
    return (auction, best) if auction is not None and best is not None else None


def winning_bids(events: Events) -> wallaroo.Pipeline[tuple[Auction, Bid]]:
    traded = timed(events).filter(lambda e: is_bid(e) or is_auction(e))
    return traded.key_by(auction_of).to(offer)


class Prices:
    def __init__(self) -> None:
        self.total = 0
        self.count = 0


@wallaroo.key_extractor
def category_of(sale: tuple[Auction, Bid]) -> int:
    return sale[0].category


@wallaroo.state_computation(name="mean price", state=Prices)
def mean_price(sale: tuple[Auction, Bid], prices: Prices) -> tuple[int, int]:
    prices.total += sale[1].price
    prices.count += 1
    return sale[0].category, prices.total // prices.count


def q4(events: Events) -> Rows:
    """Mean of the winning bids of a category."""
    return winning_bids(events).key_by(category_of).to(mean_price)


class Sales:
    def __init__(self) -> None:
        self.last: list[tuple[int, int, int]] = []  # when, which auction, its price


@wallaroo.key_extractor
def seller_of(sale: tuple[Auction, Bid]) -> int:
    return sale[0].seller


@wallaroo.state_computation(name="last sales", state=Sales)
def last_sales(sale: tuple[Auction, Bid], sales: Sales) -> tuple[int, int, int]:
    auction, bid = sale
    insort(sales.last, (auction.expires, auction.id, bid.price))
    del sales.last[:-10]
    total = sum(price for _, _, price in sales.last)
    return auction.seller, auction.expires, total // len(sales.last)


def q6(events: Events) -> Rows:
    """Mean of a seller's last ten sales."""
    return winning_bids(events).key_by(seller_of).in_order().to(last_sales)


def q9(events: Events) -> Rows:
    """Winning bids."""
    return winning_bids(events).map(lambda s: (s[0].id, *auction_row(s[0]), *bid_row(s[1])))


# --- windows ---


class CountIn(wallaroo.Aggregation[Any, int, tuple[int, int, int, int]]):
    """Events of a window, with the window."""

    adds_up_exactly = True

    def initial_accumulator(self) -> int:
        return 0

    def update(self, event: Any, count: int, /) -> int:
        return count + 1

    def combine(self, left: int, right: int, /) -> int:
        return left + right

    def output(self, key: int, count: int, window: wallaroo.Window) -> tuple[int, int, int, int]:  # type: ignore[override]  # the documented third argument
        return key, count, window.start // MS, window.end // MS


class Greatest(wallaroo.Aggregation[Any, list[Any], list[Any]]):
    """All events with the greatest value."""

    adds_up_exactly = True

    def __init__(self, of: Callable[[Any], int]) -> None:
        self.of = of

    def initial_accumulator(self) -> list[Any]:
        return []

    def update(self, event: Any, greatest: list[Any], /) -> None:
        if greatest and self.of(event) > self.of(greatest[0]):
            greatest.clear()
        if not greatest or self.of(event) == self.of(greatest[0]):
            greatest.append(event)

    def combine(self, left: list[Any], right: list[Any], /) -> list[Any]:
        if not left or not right:
            return left or right
        ahead = self.of(left[0]) - self.of(right[0])
        return left + right if ahead == 0 else left if ahead > 0 else right

    def output(self, key: Any, greatest: list[Any], /) -> list[Any]:
        return greatest


@wallaroo.key_extractor
def bidder_of(bid: Bid) -> int:
    return bid.bidder


def q5(events: Events) -> Rows:
    """Auctions with the most bids in the last ten seconds, every two seconds."""
    hot = TEN_SECONDS.with_slide(2 * SECOND)
    most = wallaroo.range_windows(2 * SECOND).over(Greatest(lambda counted: counted[1]))
    counts = timed(bids(events)).key_by(auction_of).to(hot.over(CountIn))
    return counts.collect().to(most).flat_map(lambda rows: rows)


def q7(events: Events) -> Rows:
    """Highest bids of every ten seconds."""
    highest = TEN_SECONDS.over(Greatest(lambda bid: bid.price))
    found = timed(bids(events)).collect().to(highest).flat_map(lambda rows: rows)
    return found.map(lambda b: (b.auction, b.price, b.bidder, b.at, b.extra))


class NewSeller(wallaroo.Aggregation[Any, list[Any], Any]):
    """A person, if they came and sold within the window."""

    adds_up_exactly = True

    def initial_accumulator(self) -> list[Any]:
        return [None, False]

    def update(self, event: Event, found: list[Any], /) -> None:
        if isinstance(event, Person):
            found[0] = event.name
        else:
            found[1] = True

    def combine(self, left: list[Any], right: list[Any], /) -> list[Any]:
        return [left[0] or right[0], left[1] or right[1]]

    def output(self, key: int, found: list[Any], window: wallaroo.Window) -> Any:  # type: ignore[override]  # the documented third argument
        return (key, found[0], window.start // MS) if all(found) else None


def q8(events: Events) -> Rows:
    """People who came and sold within the same ten seconds."""
    traders = timed(events).filter(lambda e: not is_bid(e))
    return traders.key_by(person_of).to(TEN_SECONDS.over(NewSeller))


def q11(events: Events) -> Rows:
    """Bids of a user's sessions."""
    sessions = wallaroo.session_windows(10 * SECOND).over(CountIn)
    return timed(bids(events)).key_by(bidder_of).to(sessions)


def q12(events: Events) -> Rows:
    """Bids of a user in ten seconds of the clock."""
    return bids(events).key_by(bidder_of).to(TEN_SECONDS.over(CountIn))


# --- statistics of a day, as they change ---


def rank_of(price: int) -> int:
    return 0 if price < 10_000 else 1 if price < 1_000_000 else 2


class Bidding(wallaroo.Aggregation[Bid, list[Any], tuple[Any, ...]]):
    """Bids, bidders and auctions, in all and by level of price."""

    def initial_accumulator(self) -> list[Any]:
        return [0, [0, 0, 0], [set(), set(), set()], [set(), set(), set()]]

    def update(self, bid: Bid, found: list[Any], /) -> None:
        rank = rank_of(bid.price)
        if bid.at > found[0]:
            found[0] = bid.at
        found[1][rank] += 1
        found[2][rank].add(bid.bidder)
        found[3][rank].add(bid.auction)

    def combine(self, left: list[Any], right: list[Any], /) -> list[Any]:
        counts = [one + other for one, other in zip(left[1], right[1], strict=True)]
        sets = [
            [one | other for one, other in zip(left[part], right[part], strict=True)]
            for part in (2, 3)
        ]
        return [max(left[0], right[0]), counts, *sets]

    def output(self, key: Any, found: list[Any], window: wallaroo.Window) -> tuple[Any, ...]:  # type: ignore[override]  # the documented third argument
        newest, counts, *sets = found
        distinct = [
            len(part) for ranked in sets for part in (ranked[0].union(*ranked[1:]), *ranked)
        ]
        return key, window.start // MS, newest // 60_000, sum(counts), *counts, *distinct


@wallaroo.key_extractor
def channel_of(bid: Bid) -> str:
    return bid.channel


def q15(events: Events) -> Rows:
    """Bidding statistics."""
    statistics = timed(bids(events)).collect().to(PER_DAY.over(Bidding))
    return statistics.map(lambda row: (row[1], *row[3:]))


def q16(events: Events) -> Rows:
    """Bidding statistics of a channel."""
    return timed(bids(events)).key_by(channel_of).to(PER_DAY.over(Bidding))


class AuctionPrices(wallaroo.Aggregation[Bid, list[int], tuple[Any, ...]]):
    """Bids by level of price, and their prices."""

    adds_up_exactly = True

    def initial_accumulator(self) -> list[int]:
        return [0, 0, 0, 1 << 62, 0, 0]

    def update(self, bid: Bid, found: list[int], /) -> None:
        price = bid.price
        found[rank_of(price)] += 1
        found[3] = min(found[3], price)
        found[4] = max(found[4], price)
        found[5] += price

    def combine(self, left: list[int], right: list[int], /) -> list[int]:
        least, greatest = min(left[3], right[3]), max(left[4], right[4])
        counts = [one + other for one, other in zip(left[:3], right[:3], strict=True)]
        return [*counts, least, greatest, left[5] + right[5]]

    def output(self, key: int, found: list[int], window: wallaroo.Window) -> tuple[Any, ...]:  # type: ignore[override]  # the documented third argument
        *counts, least, greatest, total = found
        count = sum(counts)
        return (key, window.start // MS, count, *counts, least, greatest, total // count, total)


def q17(events: Events) -> Rows:
    """Bidding statistics of an auction."""
    return timed(bids(events)).key_by(auction_of).to(PER_DAY.over(AuctionPrices))


# --- the last, the best ---


class Last:
    def __init__(self) -> None:
        self.at = 0


@wallaroo.key_extractor
def bidder_and_auction(bid: Bid) -> str:
    return f"{bid.bidder} {bid.auction}"


@wallaroo.state_computation(name="last bid", state=Last)
def last_bid(bid: Bid, last: Last) -> tuple[Any, ...] | None:
    if bid.at < last.at:
        return None
    last.at = bid.at
    return bid_row(bid)


def q18(events: Events) -> Rows:
    """A bidder's last bid for an auction."""
    return bids(events).key_by(bidder_and_auction).to(last_bid)


class Best:
    def __init__(self) -> None:
        self.bids: list[Bid] = []


@wallaroo.state_computation_multi(name="ten best", state=Best)
def ten_best(bid: Bid, best: Best) -> list[tuple[Any, ...]]:
    top = best.bids
    rank = sum(other.price >= bid.price for other in top)  # among equal ones the first is first
    if rank == 10:
        return []
    top.insert(rank, bid)
    del top[10:]
    return [(*bid_row(top[place]), place + 1) for place in range(rank, len(top))]


def q19(events: Events) -> Rows:
    """The ten best bids of an auction."""
    return bids(events).key_by(auction_of).to(ten_best)


QUERIES: dict[str, Callable[[Events], Rows]] = {
    function.__name__: function
    for function in (
        *(q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11),
        *(q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22, q23),
    )
}
