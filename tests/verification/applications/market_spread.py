"""Market spread: two streams meet at a symbol.

If the symbol's spread is wide, orders are rejected.

Where it runs: driver (building it) and workers.  Orders and quotes are numbered per symbol, so that
a rejection can name the quote that caused it, and an oracle can determine which interleavings of
the two streams explain the output.
"""

from __future__ import annotations

import struct

import wallaroo

ORDER = struct.Struct(">B4sQ")  # 1, symbol, number of the order
QUOTE = struct.Struct(">B4sQdd")  # 2, symbol, number of the quote, bid, offer
ORDER_TYPE = 1
QUOTE_TYPE = 2
SPREAD_MAX = 0.05

Order = tuple[bytes, int]
Quote = tuple[bytes, int, float, float]


class Market:
    """State of one symbol.

    It is the latest quote (0: none), and whether orders are rejected.
    """

    def __init__(self) -> None:
        self.quote = 0
        self.is_rejecting = True


def application_setup(args: list[str]) -> object:
    """Build the application: (orders + quotes) -> one market per symbol -> rejections."""
    inputs = {name: (host, port) for name, host, port in wallaroo.tcp_parse_input_addrs(args)}
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    orders = wallaroo.source(
        "Orders", wallaroo.TCPSourceConfig("Orders", *inputs["Orders"], decode_order)
    )
    quotes = wallaroo.source(
        "Quotes", wallaroo.TCPSourceConfig("Quotes", *inputs["Quotes"], decode_quote)
    )
    rejections = orders.merge(quotes).key_by(symbol_of).to(check)
    sink = wallaroo.TCPSinkConfig(out_host, out_port, encode, resume=True)
    return wallaroo.build_application("Verify Market Spread", rejections.to_sink(sink))


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True)
def decode_order(payload: bytes) -> Order:
    """Decode an order."""
    _, symbol, number = ORDER.unpack(payload)
    return symbol, number


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True)
def decode_quote(payload: bytes) -> Quote:
    """Decode a quote."""
    _, symbol, number, bid, offer = QUOTE.unpack(payload)
    return symbol, number, bid, offer


@wallaroo.key_extractor
def symbol_of(event: Order | Quote) -> bytes:
    """Return the symbol, at which orders and quotes meet."""
    return event[0]


@wallaroo.state_computation(name="check market", state=Market)
def check(event: Order | Quote, market: Market) -> tuple[bytes, int, int] | None:
    """Keep a quote; reject or pass an order."""
    if len(event) == 2:
        return (event[0], event[1], market.quote) if market.is_rejecting else None
    market.quote = event[1]
    market.is_rejecting = event[3] - event[2] >= SPREAD_MAX
    return None


@wallaroo.encoder
def encode(rejection: tuple[bytes, int, int]) -> bytes:
    """Write a line: symbol, number of the order, number of the quote."""
    return f"{rejection[0].decode()} {rejection[1]} {rejection[2]}\n".encode()
