"""An application with windows that are stored by pane, whose checkpoints are kept as test data.

Where it runs: driver (building it) and workers.  Its names travel in the data: do not change them.
"""

from __future__ import annotations

from typing import Any

import wallaroo
from tests.stored.accounts import (
    SECOND,
    SOURCES,
    Payment,
    account_of,
    decode,
    encode,
    number_of,
    time_of,
)
from tests.stored.joins import shown
from wallaroo.aggregations import Collect

__all__ = ["SOURCES", "application_setup"]


def both(left: Payment | None, right: Payment | None) -> str:
    """Show the payments of a pair, of which one may be missing."""
    numbers = [payment and payment.number for payment in (left, right)]
    account = next(payment.account for payment in (left, right) if payment is not None)
    return f"{account} {numbers}"


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build the application: two sources -> windows of each kind -> a file per step."""
    ports = args[args.index("--ports") + 1].split(",")
    left, right = (
        wallaroo.source(name, wallaroo.TCPSourceConfig(name, "127.0.0.1", port, decode))
        .with_event_time(time_of, allow_before_1980=True, delay=2 * SECOND)
        .key_by(account_of)
        for name, port in zip(SOURCES, ports, strict=True)
    )
    tumbling = wallaroo.range_windows(40 * SECOND)
    kinds = {
        "tumbling": tumbling,
        "sliding": wallaroo.range_windows(40 * SECOND).with_slide(10 * SECOND),
        "early": tumbling.with_early_results(7 * SECOND),
    }
    results: dict[str, Any] = {"left": left.map(number_of), "right": right.map(number_of)}
    for name, windows in kinds.items():
        results[name] = left.to(windows.over(Collect(number_of), name=name, with_window=True)).map(
            shown
        )
    results["joined"] = left.join_windows(right, tumbling, both, how="outer", name="joined")
    ends = [
        pipeline.to_sink(wallaroo.FileSinkConfig(f"out/{label}.txt", encoder=encode, form="lines"))
        for label, pipeline in results.items()
    ]
    return wallaroo.build_application("panes", *ends)
