"""The vectorized examples give what their per-event twins give."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import market_spread
import market_spread_data
import market_spread_vectorized
import pytest
import word_count
import word_count_vectorized

import wallaroo
from wallaroo.testing import Wire, run_local

SPREAD_ARGS = ["--in", "Orders@localhost:0,Market Data@localhost:0", "--out", "localhost:1"]
COUNT_ARGS = ["--in", "Lines@localhost:0", "--out", "localhost:1"]
REJECTED_AT_BYTES = 8


def rejections(module: ModuleType, inputs: dict[str, Any], batches: int) -> Any:
    """Rejections by symbol in their order, without their time, and the markets."""
    application: Any = module.application_setup(SPREAD_ARGS)
    done = run_local(application, inputs, batches=batches, tasks=2)
    by_symbol: dict[bytes, list[bytes]] = defaultdict(list)
    for output in done.outputs:
        by_symbol[output[15:19]].append(output[:-REJECTED_AT_BYTES])
    markets = done.state("Check Market Data")
    assert len(done.outputs) > 100
    return dict(by_symbol), {key: _fields(market) for key, market in markets.items()}


def _fields(market: Any) -> tuple[Any, ...]:
    if isinstance(market, dict):
        return market["bid"], market["offer"], market["is_rejecting"]
    return market.bid, market.offer, market.is_rejecting


@pytest.mark.parametrize("batches", [1, 4])
def test_market_spread_rejects_the_same_orders_for_the_same_quotes(
    examples: Path, batches: int
) -> None:
    """On the opening quotes of the 350 symbols, and what follows them."""
    opening = (examples / "market_spread" / "350_symbols_initial_nbbo.msg").read_bytes()
    market = market_spread_data.Market.of(opening, reject_share=0.05)
    quotes = b"".join(market_spread_data.first(market.quote_blocks(), 46, 3000))
    orders = b"".join(market_spread_data.first(market.order_blocks(), 57, 3000))
    inputs = {"Market Data": opening + quotes, "Orders": orders}

    expected = rejections(market_spread, inputs, batches)

    assert rejections(market_spread_vectorized, inputs, batches) == expected


def test_an_order_among_quotes_is_refused() -> None:
    order = market_spread_data.QUOTE_FRAME.pack(42, 1, b"AAPL", b"", 1.0, 1.0)

    with pytest.raises(wallaroo.UserCodeError, match="a quote begins with 2"):
        run_local(
            market_spread_vectorized.application_setup(SPREAD_ARGS),  # type: ignore[arg-type]
            {"Market Data": [Wire(order)]},
        )


def counts(module: ModuleType, lines: list[bytes]) -> dict[bytes, list[bytes]]:
    """Answers by word, in their order."""
    application: Any = module.application_setup(COUNT_ARGS)
    by_word: dict[bytes, list[bytes]] = defaultdict(list)
    for output in run_local(application, {"Lines": lines}, batches=3, tasks=2).outputs:
        by_word[output.partition(b" => ")[0]].append(output)
    return dict(by_word)


def test_word_count_answers_each_word_with_the_same_count(examples: Path) -> None:
    text = (examples / "word_count" / "bill_of_rights.txt").read_bytes()
    lines = [*text.split(b"\n"), text, b"", b"(We,  the People)\n", "É é".encode()]

    assert counts(word_count_vectorized, lines) == counts(word_count, lines)
