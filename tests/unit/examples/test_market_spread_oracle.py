"""Market Spread's data and its oracle: the streams are as promised, and the oracle sees every kind
of fault.
"""

from __future__ import annotations

import random
import struct
from itertools import islice
from pathlib import Path

import pytest
from market_spread_data import (
    ORDER_FRAME,
    ORDERS_PER_BLOCK,
    QUOTE_FRAME,
    Market,
    first,
    order_id,
    wide_quote,
)
from market_spread_oracle import Oracle

REJECTION = struct.Struct(">BI6s4sddddQ")
ORDERS, ROUNDS = 5_000, 20


@pytest.fixture(scope="module")
def opening() -> bytes:
    return (
        Path(__file__).resolve().parents[3] / "examples/market_spread/350_symbols_initial_nbbo.msg"
    ).read_bytes()


@pytest.fixture(scope="module")
def market(opening: bytes) -> Market:
    return Market.of(opening, reject_share=0.05, seed=3)


@pytest.fixture(scope="module")
def sent(market: Market, opening: bytes) -> tuple[bytes, bytes]:
    """The quotes and the orders of a small run."""
    quotes = (
        opening
        + market.fence()
        + b"".join(first(market.quote_blocks(), QUOTE_FRAME.size, ROUNDS * 350))
    )
    orders = market.probe(0) + b"".join(first(market.order_blocks(), ORDER_FRAME.size, ORDERS))
    return quotes, orders


@pytest.fixture
def oracle(sent: tuple[bytes, bytes]) -> Oracle:
    fed = Oracle()
    fed.feed_quotes(sent[0])
    fed.feed_orders(sent[1])
    return fed


@pytest.fixture(scope="module")
def rejections(sent: tuple[bytes, bytes], opening: bytes) -> list[bytes]:
    """What a right application may answer: the streams are interleaved by chance behind the opening
    quotes.
    """
    chance = random.Random(5)
    quotes, out = list(QUOTE_FRAME.iter_unpack(sent[0])), []
    latest = {symbol: (bid, offer) for _, _, symbol, _, bid, offer in quotes[:351]}
    ahead = 351
    for _, _, side, account, number, symbol, quantity, price, _ in ORDER_FRAME.iter_unpack(sent[1]):
        until = min(len(quotes), ahead + chance.randrange(5))
        latest |= {quoted: (bid, offer) for _, _, quoted, _, bid, offer in quotes[ahead:until]}
        ahead = until
        bid, offer = latest[symbol]
        if offer - bid >= 0.05 or (offer - bid) / ((bid + offer) / 2) >= 0.05:
            out.append(
                REJECTION.pack(side, account, number, symbol, quantity, price, bid, offer, 7)
            )
    return out


def test_the_opening_quotes_have_fifteen_rejecting_symbols(market: Market) -> None:
    assert len(market.opening) == 350
    assert len(market.rejecting) == 15


def test_the_same_seed_makes_the_same_streams(opening: bytes, sent: tuple[bytes, bytes]) -> None:
    again = Market.of(opening, reject_share=0.05, seed=3)

    assert (
        b"".join(first(again.order_blocks(), ORDER_FRAME.size, ORDERS))
        == sent[1][ORDER_FRAME.size :]
    )
    assert sent[0].endswith(b"".join(first(again.quote_blocks(), QUOTE_FRAME.size, ROUNDS * 350)))


def test_frames_have_wallaroos_sizes_and_headers(sent: tuple[bytes, bytes]) -> None:
    assert (QUOTE_FRAME.size, ORDER_FRAME.size) == (4 + 42, 4 + 53)
    assert {(length, kind) for length, kind, *_ in QUOTE_FRAME.iter_unpack(sent[0])} == {(42, 2)}
    assert {(length, kind) for length, kind, *_ in ORDER_FRAME.iter_unpack(sent[1])} == {(53, 1)}


def test_order_ids_go_on_from_block_to_block(market: Market) -> None:
    lasts = [
        (bytes(block[10:16]), bytes(block[-47:-41])) for block in islice(market.order_blocks(), 3)
    ]

    assert lasts == [
        (order_id(n * ORDERS_PER_BLOCK), order_id((n + 1) * ORDERS_PER_BLOCK - 1)) for n in range(3)
    ]


def test_the_streams_of_many_blocks_pass_the_oracles_own_checks(
    market: Market, opening: bytes
) -> None:
    oracle = Oracle()
    oracle.feed_quotes(opening + market.fence())
    for quotes in first(market.quote_blocks(), QUOTE_FRAME.size, 150_000):
        oracle.feed_quotes(quotes)
    for orders in first(market.order_blocks(), ORDER_FRAME.size, 150_000):
        oracle.feed_orders(orders)
    assert 0.04 < oracle.expected / 150_000 < 0.06


def test_wide_quotes_are_unique_for_an_hour() -> None:
    quotes = {wide_quote(19.65, number) for number in range(600_000)}  # 170 rounds a second
    assert len(quotes) == 600_000


def test_any_interleaving_of_the_streams_is_right(oracle: Oracle, rejections: list[bytes]) -> None:
    judgement = oracle.judge(rejections)

    assert judgement.is_right, str(judgement)
    assert judgement.correct == len(rejections) > 200


def test_symbols_may_overtake_each_other(oracle: Oracle, rejections: list[bytes]) -> None:
    # stable: a symbol's own order stays
    by_symbol = sorted(rejections, key=lambda payload: payload[11:15])

    assert oracle.judge(by_symbol).is_right


def _swapped(rejections: list[bytes]) -> list[bytes]:
    """Two rejections of one symbol with different quotes change places."""
    one = rejections[0]
    other = next(
        at
        for at, payload in enumerate(rejections)
        if payload[11:15] == one[11:15] and payload[31:47] != one[31:47]
    )
    return [rejections[other], *rejections[1:other], one, *rejections[other + 1 :]]


def _requoted(payload: bytes, bid: float, offer: float) -> bytes:
    return payload[:31] + struct.pack(">dd", bid, offer) + payload[47:]


@pytest.mark.parametrize(
    ("fault", "spoil"),
    [
        ("missing", lambda good: good[1:]),
        ("twice", lambda good: [*good, good[-1]]),
        ("behind a later order of the symbol", _swapped),
        ("at a quote that was never made", lambda good: [_requoted(good[0], 1.0, 2.0), *good[1:]]),
        (
            "at an older quote than the rejection before",
            lambda good: [*good[:-1], _requoted(good[-1], 0.0, 0.0)],
        ),
        ("not what was ordered", lambda good: [bytes([good[0][0] ^ 3]) + good[0][1:], *good[1:]]),
        ("never to be rejected", lambda good: [*good, good[0][:5] + b"??????" + good[0][11:]]),
        ("of a wrong length", lambda good: [*good, good[0][:-1]]),
    ],
)
def test_the_oracle_names_the_fault(
    oracle: Oracle, rejections: list[bytes], fault: str, spoil: object
) -> None:
    judgement = oracle.judge(spoil(rejections))  # type: ignore[operator]  # the parameters are functions

    assert fault in judgement.faults
    assert not judgement.is_right
    assert fault in str(judgement)


def test_the_oracle_refuses_data_whose_answer_depends_on_the_interleaving(
    oracle: Oracle, market: Market
) -> None:
    flip = QUOTE_FRAME.pack(42, 2, market.rejecting[0], b" " * 21, 10.0, 10.01)

    with pytest.raises(ValueError, match="verdict"):
        oracle.feed_quotes(flip)


def test_the_oracle_refuses_repeated_quotes_and_order_ids(oracle: Oracle, market: Market) -> None:
    with pytest.raises(ValueError, match="not unique"):
        oracle.feed_quotes(market.fence())
    with pytest.raises(ValueError, match="not unique"):
        oracle.feed_orders(market.probe(0))
