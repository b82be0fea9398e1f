"""Nexmark's queries in Flink's SQL, over one table of the generator's lines.

q6 is none of them, as Flink has no such window over changing rows, nor is q13, whose side input
Flink looks up in systems that answer queries.

Where it runs: as ``flink_nexmark``.
"""

from __future__ import annotations

TEN_SECONDS = "INTERVAL '10' SECOND"
DAY_MS = 86_400_000
BID = "b.auction, b.bidder, b.price, b.channel, b.url, b.ms, b.extra"
AUCTION = """a.item, a.description, a.initial_bid, a.reserve, a.ms, a.expires, a.seller,
    a.category, a.extra"""
PERSON = "p.id, p.name, p.email, p.credit_card, p.city, p.state, p.extra"
TABLES = (
    """CREATE TABLE event (
        `type` STRING, id BIGINT, name STRING, email STRING, credit_card STRING, city STRING,
        state STRING, item STRING, description STRING, initial_bid BIGINT, reserve BIGINT,
        expires BIGINT, seller BIGINT, category BIGINT, auction BIGINT, bidder BIGINT,
        price BIGINT, channel STRING, url STRING, `at` BIGINT, extra STRING,
        ts AS TO_TIMESTAMP_LTZ(`at`, 3), p AS PROCTIME(),
        WATERMARK FOR ts AS ts - INTERVAL '4' SECOND
    ) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json')""",
    """CREATE TEMPORARY VIEW person AS SELECT id, name, email, credit_card, city, state, extra,
        `at` AS ms, ts FROM event WHERE `type` = 'person'""",
    """CREATE TEMPORARY VIEW auction AS SELECT id, item, description, initial_bid, reserve, expires,
        seller, category, extra, `at` AS ms, ts FROM event WHERE `type` = 'auction'""",
    """CREATE TEMPORARY VIEW bid AS SELECT auction, bidder, price, channel, url, extra, `at` AS ms,
        ts, p FROM event WHERE `type` = 'bid'""",
)


def _levels(of: str) -> str:
    tests = ("price < 10000", "price BETWEEN 10000 AND 999999", "price >= 1000000")
    return ", ".join(f"{of} FILTER (WHERE {test})" for test in tests)


def _window(kind: str, table: str, time: str = "ts") -> str:
    return f"TABLE({kind}(TABLE {table}, DESCRIPTOR({time}), {TEN_SECONDS}))"


STATISTICS = ", ".join(
    f"{of}, {_levels(of)}"
    for of in ("COUNT(*)", "COUNT(DISTINCT bidder)", "COUNT(DISTINCT auction)")
)
OFFERS = "auction a JOIN bid b ON a.id = b.auction AND b.ms BETWEEN a.ms AND a.expires"
COUNTS = f"""(SELECT auction, COUNT(*) AS num, window_start, window_end FROM TABLE(HOP(TABLE bid,
    DESCRIPTOR(ts), INTERVAL '2' SECOND, {TEN_SECONDS})) GROUP BY auction, window_start,
    window_end)"""
START_MS = "1000 * UNIX_TIMESTAMP(CAST(window_start AS STRING))"
END_MS = "1000 * UNIX_TIMESTAMP(CAST(window_end AS STRING))"
CHANNEL_ID = "REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"
KNOWN = "LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')"
DAY = f"ms / {DAY_MS} * {DAY_MS}"
QUERIES = {
    "q0": "SELECT auction, bidder, price, ms, extra FROM bid",
    "q1": "SELECT auction, bidder, price * 908 / 1000e0, ms, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""SELECT category, SUM(final) / COUNT(*) FROM (SELECT a.id, a.category,
        MAX(b.price) AS final FROM {OFFERS} GROUP BY a.id, a.category) GROUP BY category""",
    "q5": f"""SELECT c.auction, c.num, {START_MS.replace("window", "c.window")},
        {END_MS.replace("window", "c.window")} FROM {COUNTS} c JOIN (SELECT MAX(num) AS most,
        window_start, window_end FROM {COUNTS} GROUP BY window_start, window_end) m
        ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num = m.most""",
    "q7": f"""SELECT b.auction, b.price, b.bidder, b.ms, b.extra FROM bid b JOIN (SELECT
        MAX(price) AS highest, window_time AS ends FROM {_window("TUMBLE", "bid")}
        GROUP BY window_start, window_end, window_time) m ON b.price = m.highest
        AND b.ts BETWEEN m.ends - INTERVAL '9.999' SECOND AND m.ends""",
    "q8": f"""SELECT p.id, p.name, {START_MS.replace("window", "p.window")} FROM
        (SELECT id, name, window_start, window_end FROM {_window("TUMBLE", "person")}
        GROUP BY id, name, window_start, window_end) p JOIN
        (SELECT seller, window_start, window_end FROM {_window("TUMBLE", "auction")}
        GROUP BY seller, window_start, window_end) a ON p.id = a.seller
        AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    "q9": f"""SELECT id, item, description, initial_bid, reserve, ms, expires, seller, category,
        extra, auction, bidder, price, channel, url, bid_ms, bid_extra FROM (SELECT a.id,
        {AUCTION}, b.auction, b.bidder, b.price, b.channel, b.url, b.ms AS bid_ms,
        b.extra AS bid_extra, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.ms)
        AS place FROM {OFFERS}) WHERE place = 1""",
    "q10": """SELECT auction, bidder, price, ms, extra, DATE_FORMAT(ts, 'yyyy-MM-dd'),
        DATE_FORMAT(ts, 'HH:mm') FROM bid""",
    "q11": f"""SELECT bidder, COUNT(*) FROM TABLE(SESSION(TABLE bid PARTITION BY bidder,
        DESCRIPTOR(ts), {TEN_SECONDS})) GROUP BY bidder, window_start, window_end""",
    "q12": f"""SELECT bidder, COUNT(*), 0, 0 FROM {_window("TUMBLE", "bid", "p")}
        GROUP BY bidder, window_start, window_end""",
    "q14": """SELECT auction, bidder, price * 908 / 1000e0, CASE WHEN HOUR(ts) BETWEEN 8 AND 18
        THEN 'dayTime' WHEN HOUR(ts) <= 6 OR HOUR(ts) >= 20 THEN 'nightTime' ELSE 'otherTime' END,
        ms, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) FROM bid
        WHERE price * 908 > 1000000000 AND price * 908 < 50000000000""",
    "q15": f"SELECT {DAY}, {STATISTICS} FROM bid GROUP BY {DAY}",
    "q16": f"""SELECT channel, {DAY}, MAX(ms) / 60000, {STATISTICS} FROM bid
        GROUP BY channel, {DAY}""",
    "q17": f"""SELECT auction, {DAY}, COUNT(*), {_levels("COUNT(*)")}, MIN(price), MAX(price),
        SUM(price) / COUNT(*), SUM(price) FROM bid GROUP BY auction, {DAY}""",
    "q18": """SELECT auction, bidder, price, channel, url, ms, extra FROM (SELECT *, ROW_NUMBER()
        OVER (PARTITION BY bidder, auction ORDER BY ts DESC) AS place FROM bid) WHERE place = 1""",
    "q19": """SELECT auction, bidder, price, channel, url, ms, extra, place FROM (SELECT *,
        ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)
        WHERE place <= 10""",
    "q20": f"""SELECT {BID}, {AUCTION} FROM bid b JOIN auction a ON b.auction = a.id
        WHERE a.category = 10""",
    "q21": f"""SELECT auction, bidder, price, channel, CASE LOWER(channel) WHEN 'apple' THEN '0'
        WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
        ELSE {CHANNEL_ID} END FROM bid WHERE {CHANNEL_ID} IS NOT NULL OR {KNOWN}""",
    "q22": """SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3),
        SPLIT_INDEX(url, '/', 4), SPLIT_INDEX(url, '/', 5) FROM bid""",
    "q23": f"""SELECT {BID}, {PERSON}, {AUCTION} FROM bid b JOIN person p ON p.id = b.bidder
        JOIN auction a ON a.seller = b.bidder""",
}
