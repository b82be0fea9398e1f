"""Each order has the price that ``pandas.merge_asof`` finds for it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from asof_orders import COLUMNS, Order, Quote, application_setup

from wallaroo.testing import run_local


def test_prices_are_those_of_pandas() -> None:
    random = np.random.default_rng(11)
    times = (1_767_182_400 + random.permutation(3_000) / 8).tolist()  # no two are equal
    symbols = random.choice(["AAPL", "IBM", "SAP"], 3_000).tolist()
    orders = [
        Order(number, symbol, at, 10 + number % 7)
        for number, (symbol, at) in enumerate(zip(symbols, sorted(times[:1_000]), strict=False))
    ]
    quotes = [
        Quote(symbol, at, 100 + number / 4)
        for number, (symbol, at) in enumerate(
            zip(symbols[1_000:], sorted(times[1_000:]), strict=True)
        )
    ]
    expected = pd.merge_asof(pd.DataFrame(orders), pd.DataFrame(quotes), on="at", by="symbol")

    run = run_local(application_setup([]), {"orders": orders, "quotes": quotes}, batches=3)

    rows = pd.DataFrame(run.decoded, columns=[*COLUMNS])
    pd.testing.assert_frame_equal(
        rows.sort_values("id", ignore_index=True)[expected.columns], expected, check_dtype=False
    )
    assert 0 < expected["price"].isna().sum() < 20
