"""What the peers on Kafka share: the examples' functions, and a clock that starts after a warm-up.

Where it runs: in each peer's own Python.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.lib import loads

WARM_UP = 0.2  # of the records
WORD_COUNT = "Word Count"
MARKET_SPREAD = "Market Spread"
ORDER = 1  # the first byte of an order's payload; a quote's is another one


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions of an example, on the value of a record."""

    events_of: Callable[[bytes], Iterable[Any]]
    is_expanding: bool  # whether a record may have several events
    key_of: Callable[[Any], str]
    make: Callable[[], Any]
    compute: Callable[[Any, Any], Any]
    encode: Callable[[Any], bytes]


def functions_of(name: str) -> Functions:
    """Return an example's functions."""
    loads.prepare()
    if name == WORD_COUNT:
        import word_count as words  # found by loads.prepare()

        decode, split = words.decode_lines.function, words.split.function
        return Functions(
            lambda value: split(decode(value)),
            True,
            words.extract_word.function,
            words.WordTotal,
            words.count_word.function,
            words.encode_word_count.function,
        )
    import market_spread as market

    decode = decoding_both(market)
    return Functions(
        lambda value: (decode(value),),
        False,
        lambda event: event.symbol.decode(),
        market.Market,
        market.check_market_data.function,
        market.encode_rejection.function,
    )


def decoding_both(market: Any) -> Callable[[bytes], Any]:
    """Return a decoder of a topic that has orders and quotes."""
    order, quote = market.decode_order.function, market.decode_quote.function

    def decode(payload: bytes) -> Any:
        return order(payload) if payload[0] == ORDER else quote(payload)

    return decode


class Clock:
    """When the warm-up was over, and how much came after it; ``records`` have ``events``."""

    def __init__(self, records: int, events: int):
        self._records = records
        self._events = events
        self._done = 0
        self._began: tuple[float, float, float] | None = None
        self._ended: tuple[float, float, float] | None = None

    def count(self, events: int) -> None:
        """Note that events were processed."""
        self._done += events
        if self._began is None and self._done >= self._events * WARM_UP:
            self._began = self._now()
        if self._ended is None and self.is_done:
            self._ended = self._now()

    @property
    def is_done(self) -> bool:
        """Whether all events were processed."""
        return self._done >= self._events

    def report(self) -> None:
        """Print what it took as JSON."""
        assert self._began is not None
        ended = self._ended or self._now()
        records, seconds, cpu_s = (
            after - before for after, before in zip(ended, self._began, strict=True)
        )
        print(json.dumps({"records": records, "seconds": seconds, "cpu_s": cpu_s}), flush=True)

    def _now(self) -> tuple[float, float, float]:
        own = psutil.Process()
        times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
        done = self._done / self._events * self._records
        return done, time.perf_counter(), sum(each.user + each.system for each in times)
