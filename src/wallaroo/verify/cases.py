"""The cases: input from a seed without end, and the oracle that says what must come of it.

Where it runs: the verifier.  Input is made in portions, always in the same order; an oracle keeps counts, not events.
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar

from wallaroo.verify.applications.market_spread import ORDER, ORDER_TYPE, QUOTE, QUOTE_TYPE
from wallaroo.verify.applications.sequence import EVENT, WINDOW
from wallaroo.verify.ledger import Faults, Ledger

KEYS = 300

State = dict[Any, Any]  # key -> what its state object must hold


class Case(ABC):
    """One application with its input and its oracle."""

    module: ClassVar[str]
    sources: ClassVar[tuple[str, ...]]
    has_files: ClassVar[bool] = False  # whether the output goes to files as well

    def __init__(self, seed: int):
        self._chances = {source: random.Random(f"{seed} {source}") for source in self.sources}

    @abstractmethod
    def payloads(self, source: str, count: int) -> list[bytes]:
        """Make the next events of a source.  Sources may be asked from different threads."""

    @abstractmethod
    def judge(self, lines: Iterable[bytes], faults: Faults) -> int:
        """Hold the output against everything made so far; return how many outputs there were."""

    @abstractmethod
    def state(self) -> State:
        """What each key's state must hold in the end."""

    @abstractmethod
    def facts(self, state: Any) -> Any:
        """What a state object holds, to be compared with ``state()``."""

    def judge_state(self, states: Iterable[tuple[Any, Any]], faults: Faults) -> None:
        """Hold the final state objects, by key, against the oracle's."""
        expected = self.state()
        found = {key: self.facts(state) for key, state in states}
        for key in expected.keys() | found.keys():
            if expected.get(key) != found.get(key):
                faults.note("wrong_state", f"{key!r} is {found.get(key)}, must be {expected.get(key)}")


class Sequence(Case):
    """Values 1, 2, 3, ... per key, keys at random; every output shows the last four."""

    module = "wallaroo.verify.applications.sequence"
    sources = ("Sequence",)
    has_files = True
    _LINE = re.compile(rb"(\d+) \[(\d+), (\d+), (\d+), (\d+)\]")

    def __init__(self, seed: int):
        super().__init__(seed)
        self._counts: Counter[int] = Counter()

    def payloads(self, source: str, count: int) -> list[bytes]:
        chance, counts, made = self._chances[source], self._counts, []
        for _ in range(count):
            key = int(KEYS * chance.random() ** 2)  # some keys often, some seldom
            counts[key] += 1
            made.append(EVENT.pack(key, counts[key]))
        return made

    def judge(self, lines: Iterable[bytes], faults: Faults) -> int:
        ledger, count = Ledger(faults), 0
        for line in lines:
            count += 1
            found = self._LINE.fullmatch(line)
            key, *values = map(int, found.groups()) if found else (-1, 0)
            if values != _window(values[-1]):
                faults.note("wrong", repr(line))
            else:
                ledger.hear(key, values[-1])
        ledger.close(self._counts)
        return count

    def state(self) -> State:
        return {key: _window(count) for key, count in self._counts.items()}

    def facts(self, state: Any) -> Any:
        return state.last


def _window(last: int) -> list[int]:
    return [max(0, value) for value in range(last - WINDOW + 1, last + 1)]


class WordCount(Case):
    """Lines of random words; every output is a word's running count."""

    module = "wallaroo.verify.applications.word_count"
    sources = ("Lines",)

    def __init__(self, seed: int):
        super().__init__(seed)
        self._counts: Counter[str] = Counter()

    def payloads(self, source: str, count: int) -> list[bytes]:
        chance, made = self._chances[source], []
        for _ in range(count):
            words = [f"w{int(KEYS * chance.random() ** 2)}" for _ in range(chance.randrange(6))]
            self._counts.update(words)
            made.append(" ".join(words).encode())
        return made

    def judge(self, lines: Iterable[bytes], faults: Faults) -> int:
        ledger, count = Ledger(faults), 0
        for line in lines:
            count += 1
            word, _, number = line.decode("utf-8", "replace").partition(" ")
            if word in self._counts and number.isdigit():
                ledger.hear(word, int(number))
            else:
                faults.note("wrong", repr(line))
        ledger.close(self._counts)
        return count

    def state(self) -> State:
        return dict(self._counts)

    def facts(self, state: Any) -> Any:
        return state.count


class MarketSpread(Case):
    """Orders and quotes of the same symbols, on streams of their own.

    How they interleave is up to chance, so the oracle asks whether any interleaving explains the output.  Per symbol: rejected
    orders come in order, each names the quote in force, which never goes back and is a wide one; and between two of them, where
    orders passed, there was a narrow quote.  The earliest such quote is assumed each time, which fails only where every choice
    fails.
    """

    module = "wallaroo.verify.applications.market_spread"
    sources = ("Orders", "Quotes")
    SYMBOLS = 60

    def __init__(self, seed: int):
        super().__init__(seed)
        self._orders: Counter[bytes] = Counter()
        self._narrow: dict[bytes, list[bool]] = {}  # symbol -> of quote 0 (none yet), 1, 2, ...: whether orders pass

    def payloads(self, source: str, count: int) -> list[bytes]:
        chance = self._chances[source]
        symbols = [b"%04d" % chance.randrange(self.SYMBOLS) for _ in range(count)]
        return [self._order(symbol) if source == "Orders" else self._quote(symbol, chance) for symbol in symbols]

    def _order(self, symbol: bytes) -> bytes:
        self._orders[symbol] += 1
        return ORDER.pack(ORDER_TYPE, symbol, self._orders[symbol])

    def _quote(self, symbol: bytes, chance: random.Random) -> bytes:
        quotes = self._narrow.setdefault(symbol, [False])
        quotes.append(chance.random() < 0.5)
        bid = chance.randrange(1000, 2000) / 100
        return QUOTE.pack(QUOTE_TYPE, symbol, len(quotes) - 1, bid, bid + (0.01 if quotes[-1] else 0.10))

    def judge(self, lines: Iterable[bytes], faults: Faults) -> int:
        at: dict[bytes, tuple[int, int]] = {}  # symbol -> last order accounted for, quote in force
        count = 0
        for line in lines:
            count += 1
            symbol, _, numbers = line.partition(b" ")
            order, _, quote = numbers.partition(b" ")
            if symbol not in self._orders or not (order.isdigit() and quote.isdigit()):
                faults.note("wrong", repr(line))
                continue
            before = at.get(symbol, (0, 0))
            self._hear(line, symbol, before, (int(order), int(quote)), faults)
            at[symbol] = max(before, (int(order), int(quote)))
        for symbol, total in self._orders.items():
            came, in_force = at.get(symbol, (0, 0))
            if came < total and self._next_narrow(symbol, in_force) is None:
                faults.note("lost", f"{symbol!r}: orders {came + 1} to {total} passed at no narrow quote", total - came)
        return count

    def _hear(self, line: bytes, symbol: bytes, before: tuple[int, int], now: tuple[int, int], faults: Faults) -> None:
        quotes = self._narrow.get(symbol, [False])
        if now[0] > self._orders[symbol] or now[1] >= len(quotes) or quotes[now[1]]:
            faults.note("wrong", repr(line))
        elif now[0] == before[0]:
            faults.note("duplicated", repr(line))
        elif now < before or now[1] < before[1]:
            faults.note("out_of_order", f"{line!r} behind {before}")
        elif now[0] > before[0] + 1:
            passed = self._next_narrow(symbol, before[1])
            if passed is None or passed > now[1]:
                faults.note("lost", f"before {line!r}: {before}", now[0] - before[0] - 1)

    def _next_narrow(self, symbol: bytes, quote: int) -> int | None:
        quotes = self._narrow.get(symbol, [False])
        return next((number for number in range(quote, len(quotes)) if quotes[number]), None)

    def state(self) -> State:
        last = {symbol: (len(quotes) - 1, not quotes[-1]) for symbol, quotes in self._narrow.items()}
        return {symbol: last.get(symbol, (0, True)) for symbol in self._orders.keys() | last.keys()}

    def facts(self, state: Any) -> Any:
        return state.quote, state.is_rejecting


CASES: dict[str, type[Case]] = {"sequence": Sequence, "word_count": WordCount, "market_spread": MarketSpread}
