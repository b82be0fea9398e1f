"""Say which orders must have been rejected, and judge what Market Spread made of them.  Plain
Python, without Wallaroo.

The oracle reads what was sent, as bytes, and shares no code with the application.  It holds to what
is promised: orders and quotes of one symbol each keep their order, but how the two streams
interleave is up to chance.  It accepts such data only where the verdicts do not depend on that.
Then exactly the orders for rejecting symbols come out, each once, per symbol in the order of
sending; each carries a quote that was sent for its symbol, and never an older one than the
rejection before.

Where it runs: pure.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

_ORDER = struct.Struct(">IBBI6s4sdd21x")
_QUOTE = struct.Struct(">IB4s21xdd")
_REJECTION = struct.Struct(">BI6s4sddddQ")
PROBLEMS_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came out, held against what had to."""

    expected: int
    received: int
    correct: int
    faults: dict[str, int]  # what is wrong -> how often
    examples: tuple[str, ...]  # the first faults, in words

    @property
    def is_right(self) -> bool:
        """Everything that had to come out did, exactly once, and nothing else."""
        return self.correct == self.expected == self.received

    def __str__(self) -> str:
        lines = [f"{self.correct:,} of {self.expected:,} correct"]
        lines += [f"  {count:,} x {fault}" for fault, count in self.faults.items()]
        lines += [f"  {example}" for example in self.examples]
        return "\n".join(lines)


@dataclass(slots=True)
class Oracle:
    """Feed it every quote, then every order, in the order of sending; then let it judge."""

    _verdicts: dict[bytes, bool] = field(default_factory=dict)  # symbol -> orders are rejected
    # rejecting symbol -> quote -> place
    _quotes: dict[bytes, dict[tuple[float, float], int]] = field(default_factory=dict)
    _orders: dict[bytes, tuple[int, tuple[int, int, bytes, float, float]]] = field(
        default_factory=dict
    )  # id -> place, what it says

    def feed_quotes(self, frames: bytes) -> None:
        """Take whole frames of the market data stream; raises ValueError where a verdict changes or
        a quote is not unique.
        """
        verdicts, quotes = self._verdicts, self._quotes
        for _, _, symbol, bid, offer in _QUOTE.iter_unpack(frames):
            spread = offer - bid
            verdict = spread >= 0.05 or spread / ((bid + offer) / 2) >= 0.05
            if verdicts.setdefault(symbol, verdict) != verdict:
                raise ValueError(
                    f"the verdict on {symbol!r} changes, so the answer would depend on the "
                    f"streams' interleaving"
                )
            if verdict:
                # what an order meets that comes before the first quote
                seen = quotes.setdefault(symbol, {(0.0, 0.0): 0})
                if (bid, offer) in seen:
                    raise ValueError(f"the quote {bid}, {offer} of {symbol!r} is not unique")
                seen[bid, offer] = len(seen)

    def feed_orders(self, frames: bytes) -> None:
        """Take whole frames of the orders' stream; raises ValueError where a symbol was not quoted
        or an id is not unique.
        """
        verdicts, orders = self._verdicts, self._orders
        for _, _, side, account, order_id, symbol, quantity, price in _ORDER.iter_unpack(frames):
            if symbol not in verdicts:
                raise ValueError(f"{symbol!r} was never quoted")
            if verdicts[symbol]:
                if order_id in orders:
                    raise ValueError(f"the order id {order_id!r} is not unique")
                orders[order_id] = len(orders), (side, account, symbol, quantity, price)

    @property
    def expected(self) -> int:
        """How many orders must come out."""
        return len(self._orders)

    def judge(self, rejections: Iterable[bytes]) -> Judgement:
        """Hold the rejections (payloads of the output's frames, as received) against what was
        fed.
        """
        court = _Court(self._orders, self._quotes)
        for payload in rejections:
            court.receive(payload)
        return court.judgement()


class _Court:
    """One judgement as it goes on."""

    def __init__(
        self,
        orders: dict[bytes, tuple[int, tuple[int, int, bytes, float, float]]],
        quotes: dict[bytes, dict[tuple[float, float], int]],
    ) -> None:
        self._orders, self._quotes = orders, quotes
        self._seen: set[bytes] = set()
        self._last_order: dict[bytes, int] = {}
        self._last_quote: dict[bytes, int] = {}
        self._faults: Counter[str] = Counter()
        self._examples: list[str] = []
        self._received = self._correct = 0

    def receive(self, payload: bytes) -> None:
        self._received += 1
        fault = self._fault_of(payload)
        if fault:
            self._note(fault, repr(payload))
        else:
            self._correct += 1

    def _fault_of(self, payload: bytes) -> str:
        """What is wrong with this rejection, or an empty text."""
        if len(payload) != _REJECTION.size:
            return "of a wrong length"
        side, account, order_id, symbol, quantity, price, bid, offer, _ = _REJECTION.unpack(payload)
        if order_id not in self._orders:
            return "never to be rejected"
        if order_id in self._seen:
            return "twice"
        self._seen.add(order_id)
        place, order = self._orders[order_id]
        if order != (side, account, symbol, quantity, price):
            return "not what was ordered"
        quote = self._quotes[symbol].get((bid, offer))
        if quote is None:
            return "at a quote that was never made"
        order_before, quote_before = (
            self._last_order.get(symbol, -1),
            self._last_quote.get(symbol, -1),
        )
        self._last_order[symbol], self._last_quote[symbol] = place, quote
        if place < order_before:
            return "behind a later order of the symbol"
        return "at an older quote than the rejection before" if quote < quote_before else ""

    def _note(self, fault: str, example: str) -> None:
        self._faults[fault] += 1
        if len(self._examples) < PROBLEMS_SHOWN_MAX:
            self._examples.append(f"{fault}: {example}")

    def judgement(self) -> Judgement:
        for order_id in self._orders:
            if order_id not in self._seen:
                self._note("missing", repr(order_id))
        return Judgement(
            len(self._orders),
            self._received,
            self._correct,
            dict(self._faults),
            tuple(self._examples),
        )
