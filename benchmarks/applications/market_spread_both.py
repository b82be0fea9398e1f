"""A decoder of Market Spread's orders and quotes in one topic.

Where it runs: workers.
"""

from __future__ import annotations

import market_spread  # on the path of all processes

import wallaroo

_order = market_spread.decode_order.function
_quote = market_spread.decode_quote.function


def symbol_of(payload: bytes) -> bytes:
    """Read the symbol of an order or a quote."""
    return payload[12:16] if payload[0] == market_spread.ORDER_TYPE else payload[1:5]


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True, key_at=symbol_of)
def decode_both(payload: bytes) -> object:
    """Read an order or a quote."""
    return _order(payload) if payload[0] == market_spread.ORDER_TYPE else _quote(payload)
