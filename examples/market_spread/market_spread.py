"""Market Spread: turn down orders for symbols whose price is uncertain.

Two streams meet: orders, and the market's best bids and offers (NBBO).  Each symbol keeps its
latest quote.  Where bid and offer are far apart, the symbol is in reject state, and every order for
it is answered with a rejection; all other orders pass without a word.  A symbol that no message has
quoted yet is in reject state as well.
"""

from __future__ import annotations

import struct
import time

import wallaroo

# Compiled once per process.  Functions travel by reference, so a module may keep such things, which
# cannot be pickled.
# type 1, side, account, order id, symbol, quantity, price; the time is passed over
ORDER = struct.Struct(">BBI6s4sdd21x")
QUOTE = struct.Struct(">B4s21xdd")  # type 2, symbol; the time is passed over; bid, offer
# length 55, side, account, order id, symbol, quantity, price, bid, offer, time
REJECTION = struct.Struct(">IBI6s4sddddQ")
REJECTION_BYTES = REJECTION.size - 4
ORDER_TYPE, QUOTE_TYPE = 1, 2

SPREAD_MAX = 0.05  # currency units
SPREAD_MAX_OF_MID = 0.05  # as a part of the price in the middle


def application_setup(args: list[str]) -> object:
    """Build the application: (orders + market data) -> one market per symbol -> rejections."""
    addresses = {name: (host, port) for name, host, port in wallaroo.tcp_parse_input_addrs(args)}
    orders_host, orders_port = addresses["Orders"]
    quotes_host, quotes_port = addresses["Market Data"]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]

    orders = wallaroo.source(
        "Orders", wallaroo.TCPSourceConfig("Orders", orders_host, orders_port, decode_order)
    )
    quotes = wallaroo.source(
        "Market Data",
        wallaroo.TCPSourceConfig("Market Data", quotes_host, quotes_port, decode_quote),
    )
    pipeline = (
        orders.merge(quotes)
        .key_by(extract_symbol)
        .to(check_market_data)
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode_rejection))
    )
    return wallaroo.build_application("Market Spread", pipeline)


class Order:
    """An order to buy (side 1) or sell (side 2)."""

    __slots__ = ("account", "order_id", "price", "quantity", "side", "symbol")

    def __init__(
        self, side: int, account: int, order_id: bytes, symbol: bytes, quantity: float, price: float
    ) -> None:
        self.side = side
        self.account = account
        self.order_id = order_id
        self.symbol = symbol
        self.quantity = quantity
        self.price = price


class Quote:
    """The best bid and the best offer for a symbol."""

    __slots__ = ("bid", "offer", "symbol")

    def __init__(self, symbol: bytes, bid: float, offer: float) -> None:
        self.symbol = symbol
        self.bid = bid
        self.offer = offer


class Market:
    """The state of one symbol: its latest quote, and whether orders are rejected."""

    __slots__ = ("bid", "is_rejecting", "offer")

    def __init__(self) -> None:
        self.bid = 0.0
        self.offer = 0.0
        self.is_rejecting = True


class Rejection:
    """An order that was turned down, and the quote that was the reason."""

    __slots__ = ("bid", "offer", "order", "rejected_at")

    def __init__(self, order: Order, bid: float, offer: float) -> None:
        self.order = order
        self.bid = bid
        self.offer = offer
        self.rejected_at = int(time.time() * 100_000)  # in steps of 10 microseconds


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True, key_at=slice(12, 16))
def decode_order(payload: bytes) -> Order:
    """Read one order."""
    order_type, side, account, order_id, symbol, quantity, price = ORDER.unpack(payload)
    if order_type != ORDER_TYPE:
        raise ValueError(f"an order begins with {ORDER_TYPE}, this message with {order_type}")
    return Order(side, account, order_id, symbol, quantity, price)


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True, key_at=slice(1, 5))
def decode_quote(payload: bytes) -> Quote:
    """Read one quote."""
    quote_type, symbol, bid, offer = QUOTE.unpack(payload)
    if quote_type != QUOTE_TYPE:
        raise ValueError(f"a quote begins with {QUOTE_TYPE}, this message with {quote_type}")
    return Quote(symbol, bid, offer)


@wallaroo.key_extractor
def extract_symbol(event: Order | Quote) -> bytes:
    """Orders and quotes of a symbol meet at the symbol's market."""
    return event.symbol


@wallaroo.state_computation(name="Check Market Data", state=Market)
def check_market_data(event: Order | Quote, market: Market) -> Rejection | None:
    """A quote updates the market; an order is rejected or passes."""
    if type(event) is Order:
        return Rejection(event, market.bid, market.offer) if market.is_rejecting else None
    bid, offer = event.bid, event.offer  # type: ignore[union-attr]  # mypy does not narrow a union by `type(...) is`
    spread = offer - bid
    market.is_rejecting = spread >= SPREAD_MAX or spread / ((bid + offer) / 2) >= SPREAD_MAX_OF_MID
    market.bid = bid
    market.offer = offer
    return None


@wallaroo.encoder
def encode_rejection(rejection: Rejection) -> bytes:
    """Write a rejection as a frame."""
    order = rejection.order
    return REJECTION.pack(
        REJECTION_BYTES,
        order.side,
        order.account,
        order.order_id,
        order.symbol,
        order.quantity,
        order.price,
        rejection.bid,
        rejection.offer,
        rejection.rejected_at,
    )
