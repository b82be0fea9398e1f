"""Market Spread, vectorized: as ``market_spread.py``, with functions that are called with a block
of messages.

The same messages come in, and the same rejections go out.  Orders and quotes arrive as numpy arrays
that lie over the bytes that were received; a symbol's market is a row of a table.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import wallaroo

Block = NDArray[Any]

# the layouts of payloads: the time is passed over
ORDER = np.dtype(
    [
        ("type", "u1"),
        ("side", "u1"),
        ("account", ">u4"),
        ("order_id", "S6"),
        ("symbol", "S4"),
        ("quantity", ">f8"),
        ("price", ">f8"),
        ("time", "V21"),
    ]
)
QUOTE = np.dtype(
    [("type", "u1"), ("symbol", "S4"), ("time", "V21"), ("bid", ">f8"), ("offer", ">f8")]
)
ORDER_FIELDS = ["side", "account", "order_id", "symbol", "quantity", "price"]
QUOTE_FIELDS = ["symbol", "bid", "offer"]
REJECTION = np.dtype(
    [
        ("length", ">u4"),
        ("side", "u1"),
        ("account", ">u4"),
        ("order_id", "S6"),
        ("symbol", "S4"),
        ("quantity", ">f8"),
        ("price", ">f8"),
        ("bid", ">f8"),
        ("offer", ">f8"),
        ("rejected_at", ">u8"),
    ]
)
ORDER_TYPE, QUOTE_TYPE = 1, 2

# the state of one symbol: its latest quote, and whether orders are rejected
MARKET = np.dtype([("bid", "f8"), ("offer", "f8"), ("is_rejecting", "?")], align=True)

SPREAD_MAX = 0.05  # currency units
SPREAD_MAX_OF_MID = 0.05  # as a part of the price in the middle


def application_setup(args: list[str]) -> object:
    """Build the application: (orders + market data) -> one market per symbol -> rejections."""
    addresses = {name: (host, port) for name, host, port in wallaroo.tcp_parse_input_addrs(args)}
    orders_host, orders_port = addresses["Orders"]
    quotes_host, quotes_port = addresses["Market Data"]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]

    orders = wallaroo.source(
        "Orders", wallaroo.TCPSourceConfig("Orders", orders_host, orders_port, decode_orders)
    ).to(select_orders)
    quotes = wallaroo.source(
        "Market Data",
        wallaroo.TCPSourceConfig("Market Data", quotes_host, quotes_port, decode_quotes),
    ).to(select_quotes)
    pipeline = (
        orders.merge(quotes)
        .key_by(extract_symbols)
        .to(check_market_data)
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode_rejections))
    )
    return wallaroo.build_application("Market Spread", pipeline)


decode_orders = wallaroo.fixed_layout(ORDER, name="decode_orders")
decode_quotes = wallaroo.fixed_layout(QUOTE, name="decode_quotes")


@wallaroo.batch_computation
def select_orders(rows: Block) -> Block:
    """Refuse what is not an order; keep the columns that are used, and with them what travels."""
    wrong = rows["type"] != ORDER_TYPE
    if wrong.any():
        raise wallaroo.RowError(wrong, f"an order begins with {ORDER_TYPE}")
    return rows[ORDER_FIELDS]


@wallaroo.batch_computation
def select_quotes(rows: Block) -> Block:
    """Refuse what is not a quote; keep the columns that are used."""
    wrong = rows["type"] != QUOTE_TYPE
    if wrong.any():
        raise wallaroo.RowError(wrong, f"a quote begins with {QUOTE_TYPE}")
    return rows[QUOTE_FIELDS]


@wallaroo.batch_key_extractor
def extract_symbols(rows: Block) -> Block:
    """Orders and quotes of a symbol meet at the symbol's market."""
    return rows["symbol"]


@wallaroo.batch_state_computation(name="Check Market Data", state=MARKET, initial=(0.0, 0.0, True))
def check_market_data(rows: Block, at: Block, markets: Block) -> Any:
    """Quotes update markets; orders are rejected or pass.  A block is of one source: orders or
    quotes.
    """
    assert rows.dtype.names is not None
    if "bid" in rows.dtype.names:
        bid, offer = rows["bid"].astype("f8"), rows["offer"].astype("f8")
        spread = offer - bid
        is_wide = (spread >= SPREAD_MAX) | (spread / ((bid + offer) / 2) >= SPREAD_MAX_OF_MID)
        # where a symbol is there several times, its last quote stays
        markets["is_rejecting"][at] = is_wide
        markets["bid"][at] = bid
        markets["offer"][at] = offer
        return None
    rejected = np.flatnonzero(markets["is_rejecting"][at])
    if not len(rejected):
        return None
    rejections = np.empty(len(rejected), REJECTION)
    rejections["length"] = REJECTION.itemsize - 4
    for field in ORDER_FIELDS:
        rejections[field] = rows[field][rejected]
    reasons = markets[at[rejected]]
    rejections["bid"] = reasons["bid"]
    rejections["offer"] = reasons["offer"]
    rejections["rejected_at"] = int(time.time() * 100_000)  # in steps of 10 microseconds
    return rejections, rejected


@wallaroo.batch_encoder
def encode_rejections(rejections: Block) -> Block:
    """Write rejections as frames: the bytes of each row."""
    return rejections
