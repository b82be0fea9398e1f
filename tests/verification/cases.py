"""The cases: endless input from a seed, and oracles for the output.

Where it runs: the verifier.  Input is generated in portions, always in the same order; an oracle
keeps counts, not events.
"""

from __future__ import annotations

import ast
import json
import random
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar

from tests.verification.applications.dead_letters import EVENT as READING
from tests.verification.applications.dead_letters import IN_DECODER, IN_STATE, PASSES, STEPS
from tests.verification.applications.dice import EVENT as NUMBER
from tests.verification.applications.market_spread import ORDER, ORDER_TYPE, QUOTE, QUOTE_TYPE
from tests.verification.applications.sequence import EVENT, WINDOW
from tests.verification.event_input import KEYS
from tests.verification.ledger import Ledger
from tests.verification.timed_cases import Joined, Timers
from tests.verification.window_case import Windows
from wallaroo.testing.verify.cases import Case, State
from wallaroo.testing.verify.trial.result import Faults


class Sequence(Case):
    """Consecutive numbers per key, with random keys.

    Values are 1, 2, 3, ...; every output shows the last four.
    """

    module = "tests.verification.applications.sequence"
    sources = ("Sequence",)
    has_files = True
    _LINE = re.compile(rb"(\d+) \[(\d+), (\d+), (\d+), (\d+)\]")

    def __init__(self, seed: int):
        super().__init__(seed)
        self._counts: Counter[int] = Counter()

    def payloads(self, source: str, count: int) -> list[bytes]:
        chance = self._chances[source]
        counts = self._counts
        made = []
        for _ in range(count):
            key = int(KEYS * chance.random() ** 2)  # some keys are frequent, some rare
            counts[key] += 1
            made.append(EVENT.pack(key, counts[key]))
        return made

    def judge(self, lines: Iterable[bytes], faults: Faults) -> int:
        ledger = Ledger(faults)
        count = 0
        for line in lines:
            count += 1
            found = self._LINE.fullmatch(line)
            key, *values = map(int, found.groups()) if found else (-1, 0)
            if values != _window(values[-1]):
                faults.note("wrong", repr(line))
            else:
                ledger.receive(key, values[-1])
        ledger.close(self._counts)
        return count

    def state(self) -> State:
        return {key: _window(count) for key, count in self._counts.items()}

    def facts(self, state: Any) -> Any:
        return state.last


def _window(last: int) -> list[int]:
    return [max(0, value) for value in range(last - WINDOW + 1, last + 1)]


class WordCount(Case):
    """Lines of random words; outputs are the words' running counts."""

    module = "tests.verification.applications.word_count"
    sources = ("Lines",)

    def __init__(self, seed: int):
        super().__init__(seed)
        self._counts: Counter[str] = Counter()

    def payloads(self, source: str, count: int) -> list[bytes]:
        chance = self._chances[source]
        made = []
        for _ in range(count):
            words = [f"w{int(KEYS * chance.random() ** 2)}" for _ in range(chance.randrange(6))]
            self._counts.update(words)
            made.append(" ".join(words).encode())
        return made

    def judge(self, lines: Iterable[bytes], faults: Faults) -> int:
        ledger = Ledger(faults)
        count = 0
        for line in lines:
            count += 1
            word, _, number = line.decode("utf-8", "replace").partition(" ")
            if word in self._counts and number.isdigit():
                ledger.receive(word, int(number))
            else:
                faults.note("wrong", repr(line))
        ledger.close(self._counts)
        return count

    def state(self) -> State:
        return dict(self._counts)

    def facts(self, state: Any) -> Any:
        return state.count


class MarketSpread(Case):
    """Orders and quotes of the same symbols, on separate streams.

    Their interleaving is random, so the oracle checks whether any interleaving explains the output.
    Per symbol: rejected orders arrive in order, each names the quote in force, which never moves
    back and is a wide one; and if orders passed between two of them, there was a narrow quote in
    between.  The earliest such quote is assumed each time, which fails only if every choice fails.
    """

    module = "tests.verification.applications.market_spread"
    sources = ("Orders", "Quotes")
    SYMBOLS = 60

    def __init__(self, seed: int):
        super().__init__(seed)
        self._orders: Counter[bytes] = Counter()
        # symbol -> whether orders pass, by quote: 0 (none yet), 1, 2, ...
        self._narrow: dict[bytes, list[bool]] = {}

    def payloads(self, source: str, count: int) -> list[bytes]:
        chance = self._chances[source]
        symbols = [b"%04d" % chance.randrange(self.SYMBOLS) for _ in range(count)]
        return [
            self._order(symbol) if source == "Orders" else self._quote(symbol, chance)
            for symbol in symbols
        ]

    def _order(self, symbol: bytes) -> bytes:
        self._orders[symbol] += 1
        return ORDER.pack(ORDER_TYPE, symbol, self._orders[symbol])

    def _quote(self, symbol: bytes, chance: random.Random) -> bytes:
        quotes = self._narrow.setdefault(symbol, [False])
        quotes.append(chance.random() < 0.5)
        bid = chance.randrange(1000, 2000) / 100
        return QUOTE.pack(
            QUOTE_TYPE, symbol, len(quotes) - 1, bid, bid + (0.01 if quotes[-1] else 0.10)
        )

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
            self._check(line, symbol, before, (int(order), int(quote)), faults)
            at[symbol] = max(before, (int(order), int(quote)))
        for symbol, total in self._orders.items():
            came, in_force = at.get(symbol, (0, 0))
            if came < total and self._next_narrow(symbol, in_force) is None:
                faults.note(
                    "lost",
                    f"{symbol!r}: orders {came + 1} to {total} passed at no narrow quote",
                    total - came,
                )
        return count

    def _check(
        self,
        line: bytes,
        symbol: bytes,
        before: tuple[int, int],
        now: tuple[int, int],
        faults: Faults,
    ) -> None:
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
        last = {
            symbol: (len(quotes) - 1, not quotes[-1]) for symbol, quotes in self._narrow.items()
        }
        return {symbol: last.get(symbol, (0, True)) for symbol in self._orders.keys() | last.keys()}

    def facts(self, state: Any) -> Any:
        return state.quote, state.is_rejecting


class DeadLetters(Case):
    """Readings, numbered per key and place of failure.

    Those that pass are counted; every other one is a dead letter, in order.
    """

    module = "tests.verification.applications.dead_letters"
    sources = ("Readings",)
    has_letters = True
    FAILING = 0.015  # share of events, at each place
    _LINE = re.compile(rb"(\d+) (\d+) (\d+)")
    _PLACES: ClassVar[dict[str, int]] = {step: place for place, step in STEPS.items()}

    def __init__(self, seed: int):
        super().__init__(seed)
        self._counts: Counter[tuple[int, int]] = Counter()  # (place, key)

    def payloads(self, source: str, count: int) -> list[bytes]:
        chance = self._chances[source]
        counts = self._counts
        made = []
        for _ in range(count):
            key = int(KEYS * chance.random() ** 2)
            draw = chance.random()
            place = 1 + int(draw / self.FAILING) if draw < self.FAILING * len(STEPS) else PASSES
            counts[place, key] += 1
            made.append(READING.pack(place, key, counts[place, key]))
        return made

    def judge(self, lines: Iterable[bytes], faults: Faults) -> int:
        ledger = Ledger(faults)
        count = 0
        for line in lines:
            count += 1
            found = self._LINE.fullmatch(line)
            key, counted, number = map(int, found.groups()) if found else (-1, 0, -1)
            if counted != number:
                faults.note("wrong", repr(line))
            else:
                ledger.receive(key, number)
        ledger.close(
            {key: count for (place, key), count in self._counts.items() if place == PASSES}
        )
        return count

    def judge_letters(self, letters: Iterable[bytes], faults: Faults) -> int:
        ledger = Ledger(faults)
        count = 0
        for line in letters:
            count += 1
            try:
                place, key, number = self._read(json.loads(line))
            except (ValueError, KeyError, TypeError, SyntaxError) as error:
                faults.note("wrong", f"dead letter {line!r}: {error}")
            else:
                ledger.receive((STEPS[place], key), number)
        failed = {
            (STEPS[place], key): count
            for (place, key), count in self._counts.items()
            if place != PASSES
        }
        ledger.close(failed)
        return count

    def _read(self, letter: dict[str, Any]) -> tuple[int, int, int]:
        """Return the event of a letter.

        Raises ValueError if the letter's step or key does not match the event.
        """
        is_frame = letter["kind"] == "decoder"
        event: tuple[int, int, int] = (
            READING.unpack(bytes.fromhex(letter["frame_hex"]))
            if is_frame
            else ast.literal_eval(letter["event"])
        )
        if event[0] != self._PLACES[letter["step"]] or is_frame != (event[0] == IN_DECODER):
            raise ValueError(f"step '{letter['step']}' does not fail for {event}")
        if letter.get("key") != (event[1] if event[0] == IN_STATE else None):
            raise ValueError(f"its key is {letter.get('key')!r}")
        return event

    def state(self) -> State:
        seen = {key for place, key in self._counts if place in (PASSES, IN_STATE)}
        return {key: self._counts[PASSES, key] for key in seen}

    def facts(self, state: Any) -> Any:
        return state.count


class Dice(Case):
    """Numbers through random lanes.

    Each has to be output once, in any order, and counted once after each shuffle.
    """

    module = "tests.verification.applications.dice"
    sources = ("Dice",)

    def __init__(self, seed: int):
        super().__init__(seed)
        self._made = 0

    def payloads(self, source: str, count: int) -> list[bytes]:
        first = self._made + 1
        self._made += count
        return [NUMBER.pack(number) for number in range(first, self._made + 1)]

    def judge(self, lines: Iterable[bytes], faults: Faults) -> int:
        came = bytearray(self._made + 1)
        count = 0
        for line in lines:
            count += 1
            number = int(line) if line.isdigit() else 0
            if not 1 <= number <= self._made:
                faults.note("wrong", repr(line))
            elif came[number]:
                faults.note("duplicated", repr(line))
            else:
                came[number] = 1
        lost = [number for number in range(1, self._made + 1) if not came[number]]
        if lost:
            faults.note("lost", f"{lost[:5]}", len(lost))
        return count

    def judge_state(self, states: Iterable[tuple[Any, Any]], faults: Faults) -> None:
        counted: Counter[str] = Counter()
        for _, state in states:
            for name, events in vars(state).items():
                counted[name] += events
        for name in ("lane_events", "table_events"):
            if counted[name] != self._made:
                faults.note("wrong_state", f"{name} is {counted[name]}, must be {self._made}")

    def state(self) -> State:
        return {}

    def facts(self, state: Any) -> Any:
        return vars(state)


CASES: dict[str, type[Case]] = {
    "sequence": Sequence,
    "word_count": WordCount,
    "market_spread": MarketSpread,
    "dead_letters": DeadLetters,
    "dice": Dice,
    "windows": Windows,
    "timers": Timers,
    "joined": Joined,
}
