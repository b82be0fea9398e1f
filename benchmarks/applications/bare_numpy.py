"""Market Spread and Word Count as plain numpy loops: what there is to gain without a platform.

No processes, no durability, no routing: decode, update, emit.  Keys are found as cheaply as numpy
allows.

Where it runs: the benchmark's process, on one core.
"""

from __future__ import annotations

from typing import Any

import numpy as np

CHUNK_BYTES = 256 * 1024


def market_spread(chunks: dict[str, list[bytes]]) -> int:
    """Return how many messages there were."""
    import market_spread_vectorized as example

    orders, quotes = chunks.values()
    known: dict[bytes, int] = {}
    markets = np.zeros(4096, example.MARKET)
    markets["is_rejecting"] = True
    table = np.zeros(1 << 16, np.intp)
    messages = 0
    for turn in range(max(len(orders), len(quotes))):
        for chunk, layout, select in (
            (quotes[turn % len(quotes)], example.QUOTE, example.select_quotes),
            (orders[turn % len(orders)], example.ORDER, example.select_orders),
        ):
            stride = layout.itemsize + 4
            count = len(chunk) // stride
            rows: Any = np.ndarray(count, layout, chunk, 4, (stride,))
            rows = select.function(rows)
            example.check_market_data.function(
                rows, _numbers(rows["symbol"], known, table), markets
            )
            messages += count
    return messages


def _numbers(symbols: Any, known: dict[bytes, int], table: Any) -> Any:
    """A number per symbol, by a table of hashes that do not collide for these few."""
    words = symbols.getfield(np.dtype("u4"), 0)
    slots = (words * np.uint32(0x9E3779B1)) >> np.uint32(16)
    numbers = table[slots]
    for slot in np.unique(slots[numbers == 0]).tolist():
        symbol = symbols[np.flatnonzero(slots == slot)[0]]
        table[slot] = known.setdefault(symbol, len(known) + 1)
        numbers = table[slots]
    return numbers


def word_count(chunks: dict[str, list[bytes]]) -> int:
    """Return how many words there were."""
    import word_count_vectorized as example

    from wallaroo.protocols.framing import Framing, frame_splitter

    split = frame_splitter(Framing())
    known: dict[str, int] = {}
    totals = np.zeros(1 << 16, example.TOTAL)
    words_seen = 0
    for chunk in next(iter(chunks.values())):
        words = example.decode_words.function(split(chunk))
        coded = example.extract_words.function(words).dictionary_encode()
        values = coded.dictionary.to_pylist()
        numbers = np.array([known.setdefault(each, len(known)) for each in values])
        at = numbers[coded.indices.to_numpy()]
        example.encode_word_counts.function(example.count_words.function(words, at, totals))
        words_seen += len(at)
    return words_seen
