"""The 24 queries of Nexmark, each as a pipeline from events to rows.

The SQL of the suite is their definition (github.com/nexmark/nexmark).  What SQL has as a changing
table is here a stream of rows of which the newest one per key counts (``KEYS`` of ``oracle.py``).

Where it runs: everywhere.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import wallaroo
from benchmarks.nexmark.events import (
    Auction,
    Bid,
    Event,
    Person,
    is_auction,
    is_bid,
    is_person,
    time_of,
)
from wallaroo.aggregations import (
    Count,
    Distinct,
    First,
    Max,
    MaxBy,
    Min,
    MinBy,
    Sum,
    combine_of,
)

Events = wallaroo.Pipeline[Any]
Rows = wallaroo.Pipeline[Any]
DELAY = wallaroo.seconds(4)  # the suite's
SECOND, DAY = wallaroo.seconds(1), wallaroo.hours(24)
MS = wallaroo.milliseconds(1)
TEN_SECONDS = wallaroo.range_windows(10 * SECOND)
PER_DAY = wallaroo.range_windows(DAY).with_early_results(10 * SECOND)


# what queries read that do not read bids alone
KINDS: dict[str, Any] = {
    **dict.fromkeys(("q3", "q8"), Person | Auction),
    **dict.fromkeys(("q4", "q6", "q9", "q20"), Auction | Bid),
    "q23": Event,
}


def timed(events: Events) -> Events:
    return events.with_event_time(time_of, delay=DELAY)


# --- one event, one row ---


def q0(bids: Events) -> Rows:
    """Pass through."""
    return bids.map(lambda b: (b.auction, b.bidder, b.price, b.at, b.extra))


def q1(bids: Events) -> Rows:
    """Currency conversion."""
    return bids.map(lambda b: (b.auction, b.bidder, euros(b), b.at, b.extra))


def euros(bid: Bid) -> float:
    return bid.price * 908 / 1000


def q2(bids: Events) -> Rows:
    """Selection."""
    return bids.filter(lambda b: b.auction % 123 == 0).map(lambda b: (b.auction, b.price))


def q10(bids: Events) -> Rows:
    """Log to a file system, the folders as columns."""
    return bids.map(
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


def q13(bids: Events) -> Rows:
    """Join with a bounded side input."""
    return bids.map(lambda b: (b.auction, b.bidder, b.price, b.at, SIDE_INPUT[b.auction % 10_000]))


def q14(bids: Events) -> Rows:
    """Calculation."""
    return bids.filter(lambda b: 1_000_000 < euros(b) < 50_000_000).map(
        lambda b: (
            *(b.auction, b.bidder, euros(b), time_type(clock(b).hour), b.at),
            *(b.extra, b.extra.count("c")),
        )
    )


def time_type(hour: int) -> str:
    if 8 <= hour <= 18:
        return "dayTime"
    return "nightTime" if hour <= 6 or hour >= 20 else "otherTime"


CHANNEL_IDS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


def q21(bids: Events) -> Rows:
    """Add the channel's id."""
    return bids.map(with_channel_id)


def with_channel_id(bid: Bid) -> tuple[Any, ...] | None:
    number = CHANNEL_IDS.get(bid.channel.lower())
    if number is None:
        _, mark, rest = bid.url.partition("&channel_id=")
        if not mark:
            return None
        number = rest.partition("&")[0]
    return bid.auction, bid.bidder, bid.price, bid.channel, number


def q22(bids: Events) -> Rows:
    """Folders of a URL."""
    return bids.map(lambda b: (b.auction, b.bidder, b.price, b.channel, *b.url.split("/", 6)[3:6]))


# --- joins of tables ---


@wallaroo.key_extractor
def person_of(event: Event) -> int:
    if isinstance(event, Bid):
        return event.bidder
    return event.seller if isinstance(event, Auction) else event.id


@wallaroo.key_extractor
def auction_of(event: Auction | Bid) -> int:
    return event.auction if isinstance(event, Bid) else event.id


def q3(events: Events) -> Rows:
    """Local item suggestion."""
    people = events.filter(lambda e: is_person(e) and e.state in ("OR", "ID", "CA"))
    items = events.filter(lambda e: is_auction(e) and e.category == 10).key_by(person_of)
    return people.key_by(person_of).join(
        items, lambda person, item: (person.name, person.city, person.state, item.id), within=None
    )


def q20(events: Events) -> Rows:
    """Expand bids with their auction."""
    items = events.filter(lambda e: is_auction(e) and e.category == 10).key_by(auction_of)
    return (
        events.filter(is_bid)
        .key_by(auction_of)
        .join(items, lambda bid, item: (*bid_row(bid), *auction_row(item)), within=None)
    )


def bid_row(b: Bid) -> tuple[Any, ...]:
    return b.auction, b.bidder, b.price, b.channel, b.url, b.at, b.extra


def auction_row(a: Auction) -> tuple[Any, ...]:
    return (
        *(a.item, a.description, a.initial_bid, a.reserve, a.at),
        *(a.expires, a.seller, a.category, a.extra),
    )


def q23(events: Events) -> Rows:
    """Expand bids with their bidder and the bidder's auctions."""
    people = events.filter(is_person).key_by(person_of)
    bidders = events.filter(is_bid).key_by(person_of).join(people, within=None, name="bidder")
    return bidders.join(
        events.filter(is_auction).key_by(person_of),
        lambda found, item: (*bid_row(found[0]), *person_row(found[1]), *auction_row(item)),
        within=None,
        name="their auctions",
    )


def person_row(p: Person) -> tuple[Any, ...]:
    return p.id, p.name, p.email, p.credit_card, p.city, p.state, p.extra


# --- winning bids ---


def winning_bids(events: Events) -> wallaroo.Pipeline[tuple[Any, Any]]:
    traded = timed(events)
    best = MinBy(lambda b: (-b.price, b.at))
    offers = traded.filter(is_bid).key_by(auction_of)
    auctions = traded.filter(is_auction).key_by(auction_of)
    return auctions.join(offers, until=lambda a: a.expires * MS, over=best)


class Prices:
    def __init__(self) -> None:
        self.total = 0
        self.count = 0


@wallaroo.state_computation(name="mean price", state=Prices)
def mean_price(sale: tuple[Auction, Bid], prices: Prices) -> tuple[int, int]:
    prices.total += sale[1].price
    prices.count += 1
    return sale[0].category, prices.total // prices.count


def q4(events: Events) -> Rows:
    """Mean of the winning bids of a category."""
    sales = winning_bids(events).key_by(lambda sale: sale[0].category)
    return sales.to(mean_price).latest_per_key()


class Sales:
    def __init__(self) -> None:
        self.last: list[tuple[int, int, int]] = []  # when, which auction, its price


@wallaroo.state_computation(name="last sales", state=Sales)
def last_sales(sale: tuple[Auction, Bid], sales: Sales) -> tuple[int, int, int]:
    auction, bid = sale
    insort(sales.last, (auction.expires, auction.id, bid.price))
    del sales.last[:-10]
    total = sum(price for _, _, price in sales.last)
    return auction.seller, auction.expires, total // len(sales.last)


def q6(events: Events) -> Rows:
    """Mean of a seller's last ten sales."""
    return winning_bids(events).key_by(lambda sale: sale[0].seller).in_order().to(last_sales)


def q9(events: Events) -> Rows:
    """Winning bids."""
    return winning_bids(events).map(lambda s: (s[0].id, *auction_row(s[0]), *bid_row(s[1])))


# --- windows ---


def counted(result: wallaroo.WindowResult[int]) -> tuple[int, int, int, int]:
    return result.key, result.value, result.window.start // MS, result.window.end // MS


def q5(bids: Events) -> Rows:
    """Auctions with the most bids in the last ten seconds, every two seconds."""
    hot = TEN_SECONDS.with_slide(2 * SECOND).over(Count(), with_window=True)
    most = wallaroo.range_windows(2 * SECOND).over(MaxBy(lambda hot: hot.value, ties=True))
    counts = timed(bids).key_by(auction_of).to(hot)
    return counts.collect().to(most).flat_map(lambda rows: rows).map(counted)


def q7(bids: Events) -> Rows:
    """Highest bids of every ten seconds."""
    highest = TEN_SECONDS.over(MaxBy(lambda bid: bid.price, ties=True))
    found = timed(bids).collect().to(highest).flat_map(lambda rows: rows)
    return found.map(lambda b: (b.auction, b.price, b.bidder, b.at, b.extra))


def q8(events: Events) -> Rows:
    """People who came and sold within the same ten seconds."""
    both = combine_of(
        name=First(lambda e: e.name).where(is_person), sales=Count().where(is_auction)
    )
    traders = timed(events).key_by(person_of)
    found = traders.to(TEN_SECONDS.over(both, with_window=True))
    return found.filter(lambda r: r.value["name"] and r.value["sales"]).map(
        lambda r: (r.key, r.value["name"], r.window.start // MS)
    )


def q11(bids: Events) -> Rows:
    """Bids of a user's sessions."""
    sessions = wallaroo.session_windows(10 * SECOND).over(Count(), with_window=True)
    return timed(bids).key_by(lambda b: b.bidder).to(sessions).map(counted)


def q12(bids: Events) -> Rows:
    """Bids of a user in ten seconds of the clock."""
    windows = TEN_SECONDS.over(Count(), with_window=True)
    return bids.key_by(lambda b: b.bidder).to(windows).map(counted)


# --- statistics of a day, as they change ---


def rank_of(price: int) -> int:
    return 0 if price < 10_000 else 1 if price < 1_000_000 else 2


def by_level(name: str, of: Any) -> dict[str, Any]:
    """Return an aggregation over all bids, and over those of each level of price."""
    levels = {f"{name}{rank}": of.where(partial(has_rank, rank)) for rank in range(3)}
    return {name: of, **levels}


def has_rank(rank: int, bid: Bid) -> bool:
    return rank_of(bid.price) == rank


BIDS = by_level("bids", Count())
BIDDING = combine_of(
    **BIDS,
    **by_level("bidders", Distinct(lambda b: b.bidder)),
    **by_level("auctions", Distinct(lambda b: b.auction)),
)


def q15(bids: Events) -> Rows:
    """Bidding statistics."""
    statistics = timed(bids).collect().to(PER_DAY.over(BIDDING, with_window=True))
    return statistics.map(lambda r: (r.window.start // MS, *r.value.values()))


def q16(bids: Events) -> Rows:
    """Bidding statistics of a channel."""
    day = combine_of(newest=Max(lambda b: b.at), **BIDDING.parts)
    found = timed(bids).key_by(lambda b: b.channel).to(PER_DAY.over(day, with_window=True))
    return found.map(daily)


def daily(result: wallaroo.WindowResult[dict[str, int]]) -> tuple[Any, ...]:
    newest, *numbers = result.value.values()
    return result.key, result.window.start // MS, newest // 60_000, *numbers


def q17(bids: Events) -> Rows:
    """Bidding statistics of an auction."""
    price = Sum(lambda b: b.price)
    prices = combine_of(**BIDS, least=Min(price.of), greatest=Max(price.of), total=price)
    found = timed(bids).key_by(auction_of).to(PER_DAY.over(prices, with_window=True))
    return found.map(traded)


def traded(result: wallaroo.WindowResult[dict[str, int]]) -> tuple[Any, ...]:
    *numbers, total = result.value.values()
    return result.key, result.window.start // MS, *numbers, total // numbers[0], total


# --- the last, the best ---


class Last:
    def __init__(self) -> None:
        self.at = 0


@wallaroo.state_computation(name="last bid", state=Last)
def last_bid(bid: Bid, last: Last) -> tuple[Any, ...] | None:
    if bid.at < last.at:
        return None
    last.at = bid.at
    return bid_row(bid)


def q18(bids: Events) -> Rows:
    """A bidder's last bid for an auction."""
    return bids.key_by(lambda b: (b.bidder, b.auction)).to(last_bid).latest_per_key()


class Best:
    def __init__(self) -> None:
        self.bids: list[Bid] = []


@wallaroo.state_computation_multi(name="ten best", state=Best)
def ten_best(bid: Bid, best: Best) -> list[tuple[Any, ...]]:
    top = best.bids
    rank = bisect_right(top, -bid.price, key=lambda b: -b.price)  # the first of equals stays first
    if rank == 10:
        return []
    top.insert(rank, bid)
    del top[10:]
    return [(*bid_row(top[place]), place + 1) for place in range(rank, len(top))]


def q19(bids: Events) -> Rows:
    """The ten best bids of an auction."""
    ranks = bids.key_by(auction_of).to(ten_best)
    return ranks.key_by(lambda row: (row[0], row[-1])).latest_per_key()


QUERIES: dict[str, Callable[[Events], Rows]] = {
    function.__name__: function
    for function in (
        *(q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11),
        *(q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22, q23),
    )
}
