"""The rows that each query must have, computed by DuckDB from the same file.

Where it runs: the benchmark's process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import duckdb

FETCHED = 10_000  # rows at once
DIGEST = 12  # bytes
Form = Callable[[Iterable[Iterable[Any]]], list[Any]]
BID = "b.auction, b.bidder, b.price, b.channel, b.url, b.ms, b.extra"
AUCTION = """a.item, a.description, a.initial_bid, a.reserve, a.ms, a.expires, a.seller,
    a.category, a.extra"""
PERSON = "p.id, p.name, p.email, p.credit_card, p.city, p.state, p.extra"
DAY_MS = 86_400_000
CHANNEL_ID = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"
KNOWN = "lower(channel) in ('apple', 'google', 'facebook', 'baidu')"
WINNERS = f"""(select a.id, {AUCTION}, b.auction, b.bidder, b.price, b.channel, b.url, b.ms as
        bid_at,
    b.extra as bid_extra from auction a join bid b on a.id = b.auction
    where b.ms between a.ms and a.expires
    qualify row_number() over (partition by a.id order by b.price desc, b.ms, b.n) = 1)"""
COUNTS = """(select auction, count(*) as num, w as ends from
    (select auction, unnest(range(ms // 2000 * 2000 + 2000, ms // 2000 * 2000 + 12000, 2000)) as w
    from bid) group by auction, w)"""


def _levels(of: str) -> str:
    parts = [f"{of} filter (price {test})" for test in ("< 10000", "between 10000 and 999999")]
    return ", ".join([*parts, f"{of} filter (price >= 1000000)"])


STATISTICS = ", ".join(
    f"{of}, {_levels(of)}"
    for of in ("count(*)", "count(distinct bidder)", "count(distinct auction)")
)
SQL = {
    "q0": "select auction, bidder, price, ms, extra from bid",
    "q1": "select auction, bidder, price * 908 / 1000, ms, extra from bid",
    "q2": "select auction, price from bid where auction % 123 = 0",
    "q3": """select p.name, p.city, p.state, a.id from auction a join person p on a.seller = p.id
        where a.category = 10 and p.state in ('OR', 'ID', 'CA')""",
    "q4": f"select category, sum(price) // count(*) from {WINNERS} group by category",
    "q5": f"""select auction, num, ends - 10000, ends from {COUNTS}
        qualify num = max(num) over (partition by ends)""",
    "q6": f"""select seller, expires, sum(price) over last // count(*) over last from {WINNERS}
        window last as (partition by seller order by expires, id
            rows between 9 preceding and current row)
        qualify row_number() over (partition by seller, expires order by id desc) = 1""",
    "q7": """select auction, price, bidder, ms, extra from bid
        qualify price = max(price) over (partition by ms // 10000)""",
    "q8": """select distinct p.id, p.name, p.ms // 10000 * 10000 from person p
        join auction a on p.id = a.seller and p.ms // 10000 = a.ms // 10000""",
    "q9": f"""select id, item, description, initial_bid, reserve, ms, expires, seller, category,
        extra, auction, bidder, price, channel, url, bid_at, bid_extra from {WINNERS}""",
    "q10": """select auction, bidder, price, ms, extra, strftime(make_timestamp(ms * 1000),
        '%Y-%m-%d'), strftime(make_timestamp(ms * 1000), '%H:%M') from bid""",
    "q11": """select bidder, count(*), min(ms), max(ms) + 10000 from
        (select *, sum(is_new) over (partition by bidder order by ms, n) as session from
        (select *, (ms - coalesce(lag(ms) over (partition by bidder order by ms, n), 0) >=
        10000)::int
        as is_new from bid)) group by bidder, session""",
    "q12": "select bidder, count(*) from bid group by bidder",
    "q13": "select auction, bidder, price, ms, 'side ' || (auction % 10000) from bid",
    "q14": """select auction, bidder, price * 908 / 1000, case when hour between 8 and 18 then
        'dayTime' when hour <= 6 or hour >= 20 then 'nightTime' else 'otherTime' end, ms, extra,
        length(extra) - length(replace(extra, 'c', '')) from
        (select *, ms // 3600000 % 24 as hour from bid)
        where price * 908 > 1000000000 and price * 908 < 50000000000""",
    "q15": f"select ms // {DAY_MS} * {DAY_MS}, {STATISTICS} from bid group by 1",
    "q16": f"""select channel, ms // {DAY_MS} * {DAY_MS}, max(ms) // 60000, {STATISTICS}
        from bid group by 1, 2""",
    "q17": f"""select auction, ms // {DAY_MS} * {DAY_MS}, count(*), {_levels("count(*)")},
        min(price), max(price), sum(price) // count(*), sum(price) from bid group by 1, 2""",
    "q18": f"""select {BID} from bid b
        qualify row_number() over (partition by bidder, auction order by ms desc, n desc) = 1""",
    "q19": f"""select {BID}, row_number() over (partition by auction order by price desc, n) as r
        from bid b qualify r <= 10""",
    "q20": f"""select {BID}, {AUCTION} from bid b join auction a on b.auction = a.id
        where a.category = 10""",
    "q21": f"""select auction, bidder, price, channel, case lower(channel) when 'apple' then '0'
        when 'google' then '1' when 'facebook' then '2' when 'baidu' then '3'
        else {CHANNEL_ID} end from bid where {CHANNEL_ID} <> '' or {KNOWN}""",
    "q22": """select auction, bidder, price, channel, split_part(url, '/', 4),
        split_part(url, '/', 5), split_part(url, '/', 6) from bid""",
    "q23": f"""select {BID}, {PERSON}, {AUCTION} from bid b join person p on p.id = b.bidder
        join auction a on a.seller = b.bidder""",
}
# of changing rows the newest one of these columns counts
KEYS: dict[str, tuple[int, ...]] = {
    "q4": (0,), "q6": (0, 1), "q15": (0,), "q16": (0, 1), "q17": (0, 1), "q18": (0, 1),
    "q19": (0, -1),
}  # fmt: skip


def texts(rows: Iterable[Iterable[Any]]) -> list[str]:
    """Return rows as sorted texts."""
    return sorted(map(_text, rows))


def digests(rows: Iterable[Iterable[Any]]) -> list[bytes]:
    """Return the digests of rows, sorted: of millions of long rows they fit in memory."""
    return sorted(blake2b(_text(row).encode(), digest_size=DIGEST).digest() for row in rows)


def _text(row: Iterable[Any]) -> str:
    return json.dumps(list(row))


def opened(events: Path) -> duckdb.DuckDBPyConnection:
    """Read a file of the generator into tables; ``n`` is an event's place."""
    connection = duckdb.connect()
    connection.execute(
        """create table event as select * rename ("at" as ms), row_number() over () as n
        from read_json(?, format='newline_delimited', sample_size=-1)""",
        [str(events)],
    )
    for kind in ("person", "auction", "bid"):
        connection.execute(f"create view {kind} as select * from event where type = '{kind}'")
    return connection


def expected(connection: duckdb.DuckDBPyConnection, query: str, form: Form = texts) -> list[Any]:
    """Return a query's rows in a form, sorted."""
    result = connection.execute(SQL[query])
    return form(row for rows in iter(partial(result.fetchmany, FETCHED), []) for row in rows)


def final(query: str, rows: Iterable[Any], form: Form = texts) -> list[Any]:
    """Return what counts of an application's rows, lists or objects, in a form, sorted."""
    rows = (list(row.values()) if isinstance(row, dict) else row for row in rows)
    if query == "q12":  # windows of the clock: which ones depends on the run
        counts: dict[int, int] = {}
        for bidder, count, _, _ in rows:
            counts[bidder] = counts.get(bidder, 0) + count
        return form(counts.items())
    if query in KEYS:
        rows = {tuple(row[at] for at in KEYS[query]): row for row in rows}.values()
    return form(rows)
