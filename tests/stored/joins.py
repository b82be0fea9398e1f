"""An application with the joins and window results of later versions, whose checkpoints are kept as
test data.

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
    pair,
    time_of,
)
from wallaroo.aggregations import Collect, Count

__all__ = ["SOURCES", "application_setup"]


def until(payment: Payment) -> float:
    """Return up to which time a left event waits."""
    return payment.at + 20.0


def shown(result: wallaroo.WindowResult[str, list[int]]) -> str:
    """Show a result with its key and window."""
    window = result.window
    numbers = sorted(result.value)
    return f"{result.key} {window.start // SECOND} {window.end // SECOND} {numbers}"


def totals(left: Payment, count: int | None) -> str:
    """Show how many right events a left one met."""
    return f"{left.account} {left.number} {count}"


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build the application: two sources -> joins of each kind -> a file per step."""
    ports = args[args.index("--ports") + 1].split(",")
    left, right = (
        wallaroo.source(name, wallaroo.TCPSourceConfig(name, "127.0.0.1", port, decode))
        .with_event_time(time_of, allow_before_1980=True, delay=2 * SECOND)
        .key_by(account_of)
        for name, port in zip(SOURCES, ports, strict=True)
    )
    windows = wallaroo.range_windows(40 * SECOND)
    results: dict[str, Any] = {
        "left": left.map(number_of),
        "right": right.map(number_of),
        "open": left.join(right, pair, within=None, name="open"),
        "open with ttl": left.join(right, pair, within=None, ttl=40 * SECOND, name="open with ttl"),
        "until": left.join(right, pair, until=until, how="outer", name="until"),
        "until over": left.join(
            right, totals, until=until, over=Count(), how="left", name="until over"
        ),
        "windows": left.to(windows.over(Collect(number_of), name="windows", with_window=True)).map(
            shown
        ),
    }
    ends = [
        pipeline.to_sink(wallaroo.FileSinkConfig(f"out/{label}.txt", encoder=encode, form="lines"))
        for label, pipeline in results.items()
    ]
    return wallaroo.build_application("joins", *ends)
