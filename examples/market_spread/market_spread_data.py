"""Make both streams of Market Spread from a seed: endless, cheap, and with one right answer
whatever the streams' interleaving.

How orders and quotes interleave is up to chance, so the market is made such that it does not matter
which orders are rejected: each symbol keeps the verdict that its opening quote has, forever, while
its prices move all the time.  Which quote a rejection carries does depend on chance; every quote of
a rejecting symbol is therefore unique, and `market_spread_oracle.py` can say which one it was.

Both streams are blocks of frames.  A block is made once; the next one differs in what has to be
unique only: all orders' ids, and the rejecting symbols' quotes.  So a million frames cost a sender
a few milliseconds.

Where it runs: pure.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

ORDER_FRAME = struct.Struct(">IBBI6s4sdd21s")
QUOTE_FRAME = struct.Struct(">IB4s21sdd")
ORDER_ID_AT = 10  # where the order's id begins in its frame
PRICES_AT = 30  # where bid and offer begin in a quote's frame
PRICES = struct.Struct(">dd")
CLOCK = b"20160902-15:47:53.000"

DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ORDERS_PER_BLOCK = 36**3  # the three low digits of the order id run through once
ROUNDS_PER_BLOCK = 128  # in a round every symbol is quoted once
PROBE_IDS_FROM = 35 * 36**5  # order ids from "Z00000" on are left to probes
SPREAD_MAX = 0.05


@dataclass(frozen=True, slots=True)
class Market:
    """Symbols with their opening quotes; ``rejecting`` are the ones whose orders are turned
    down.
    """

    opening: tuple[tuple[bytes, float, float], ...]  # symbol, bid, offer
    rejecting: tuple[bytes, ...]
    reject_share: float  # of the orders
    seed: int

    @classmethod
    def of(cls, opening_frames: bytes, reject_share: float = 0.005, seed: int = 1) -> Market:
        """Read the opening quotes (46-byte frames); about ``reject_share`` of the orders will be
        for rejecting symbols.
        """
        opening = tuple(
            (symbol, bid, offer)
            for _, _, symbol, _, bid, offer in QUOTE_FRAME.iter_unpack(opening_frames)
        )
        rejecting = tuple(symbol for symbol, bid, offer in opening if is_wide(bid, offer))
        if not rejecting or len(rejecting) == len(opening):
            raise ValueError(
                "the opening quotes must have symbols that reject orders and symbols that do not"
            )
        return cls(opening, rejecting, reject_share, seed)

    def fence(self) -> bytes:
        """One more quote, to be sent behind the opening quotes: a probe answered with it proves all
        of them applied.
        """
        symbol = self.rejecting[0]
        bid = next(bid for quoted, bid, _ in self.opening if quoted == symbol)
        return QUOTE_FRAME.pack(42, 2, symbol, CLOCK, *wide_quote(bid, 0))

    def probe(self, number: int) -> bytes:
        """An order that is rejected at any time, with an id that no other order has."""
        probe_id = order_id(PROBE_IDS_FROM + number)
        return ORDER_FRAME.pack(53, 1, 1, 1, probe_id, self.rejecting[0], 100.0, 10.0, CLOCK)

    def order_blocks(self) -> Iterator[bytearray]:
        """Orders without end, `ORDERS_PER_BLOCK` to a block: the same buffer each time, so be done
        with it before the next.
        """
        block = bytearray(self._order_block())
        for number in range(PROBE_IDS_FROM // ORDERS_PER_BLOCK):
            for digit, at in zip(
                order_id(number * ORDERS_PER_BLOCK)[:3],
                range(ORDER_ID_AT, ORDER_ID_AT + 3),
                strict=True,
            ):
                block[at :: ORDER_FRAME.size] = bytes([digit]) * ORDERS_PER_BLOCK
            yield block

    def quote_blocks(self) -> Iterator[bytearray]:
        """Quotes without end, `ROUNDS_PER_BLOCK` rounds to a block.  One buffer, as for orders."""
        block, places = self._quote_block()
        number = 1  # of the round; 0 is the fence
        while True:
            for round_places in places:
                for at, bid in round_places:
                    PRICES.pack_into(block, at, *wide_quote(bid, number))
                number += 1
            yield block

    def _order_block(self) -> bytes:
        chance = random.Random(self.seed)
        bids = {symbol: bid for symbol, bid, _ in self.opening}
        accepting = tuple(symbol for symbol in bids if symbol not in self.rejecting)
        frames = []
        for number in range(ORDERS_PER_BLOCK):
            symbol = chance.choice(
                self.rejecting if chance.random() < self.reject_share else accepting
            )
            price = bids[symbol] + chance.randrange(-20, 20) / 100
            side, account, quantity = (
                chance.randint(1, 2),
                chance.randrange(10_000),
                float(chance.randrange(100, 10_000, 100)),
            )
            frames.append(
                ORDER_FRAME.pack(
                    53, 1, side, account, order_id(number), symbol, quantity, price, CLOCK
                )
            )
        return b"".join(frames)

    def _quote_block(self) -> tuple[bytearray, list[list[tuple[int, float]]]]:
        """A block of quotes, and per round where the prices of rejecting symbols stand in it, with
        the opening bids.
        """
        chance = random.Random(self.seed + 1)
        rejecting, quoted = set(self.rejecting), list(self.opening)
        block = bytearray()
        places: list[list[tuple[int, float]]] = []
        for number in range(ROUNDS_PER_BLOCK):
            chance.shuffle(quoted)
            places.append([])
            for symbol, bid, _ in quoted:
                if symbol in rejecting:
                    places[-1].append((len(block) + PRICES_AT, bid))
                moved = (
                    bid
                    + (number if number < ROUNDS_PER_BLOCK // 2 else ROUNDS_PER_BLOCK - number)
                    / 100
                )
                block += QUOTE_FRAME.pack(42, 2, symbol, CLOCK, moved, moved + 0.01)
        return block, places


def is_wide(bid: float, offer: float) -> bool:
    """Whether orders are rejected at this quote."""
    return offer - bid >= SPREAD_MAX or (offer - bid) / ((bid + offer) / 2) >= SPREAD_MAX


def wide_quote(bid: float, number: int) -> tuple[float, float]:
    """The quote ``number`` of a rejecting symbol: five up and five down again, cent by cent; the
    spread widens at each turn.
    """
    turn, cent = divmod(number, 500)
    moved = bid + (cent if turn % 2 == 0 else 500 - cent) / 100
    return moved, moved + 0.06 + turn / 10_000


def order_id(number: int) -> bytes:
    """Six digits to the base of 36."""
    digits = bytearray(6)
    for at in range(5, -1, -1):
        number, digit = divmod(number, 36)
        digits[at] = DIGITS[digit]
    return bytes(digits)


def first(blocks: Iterator[bytearray], frame_size: int, count: int) -> Iterator[bytes]:
    """The first ``count`` frames of endless blocks of equal frames, block by block."""
    while count > 0:
        block = next(blocks)
        frames = min(count, len(block) // frame_size)
        yield bytes(memoryview(block)[: frames * frame_size])
        count -= frames
