"""An application with rows of due entries that are stored in chunks, whose checkpoints are kept as
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
    time_of,
)
from tests.stored.joins import until
from tests.stored.panes import both
from wallaroo.aggregations import Collect

__all__ = ["SOURCES", "application_setup"]


@wallaroo.key_extractor
def account_and_number(payment: Payment) -> tuple[str, int]:
    """Return a key that few events have."""
    return payment.account, payment.number // 4


def shown(result: wallaroo.WindowResult[list[int]]) -> str:
    """Show a session, its account first."""
    window = result.window
    numbers = sorted(result.value)
    return f"{result.key[0]} {window.start // SECOND} {window.end // SECOND} {numbers}"


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build the application: two sources -> steps that forget by key -> a file per step."""
    ports = args[args.index("--ports") + 1].split(",")
    left, right = (
        wallaroo.source(name, wallaroo.TCPSourceConfig(name, "127.0.0.1", port, decode))
        .with_event_time(time_of, allow_before_1980=True, delay=2 * SECOND)
        .key_by(account_of)
        for name, port in zip(SOURCES, ports, strict=True)
    )
    keys = left.key_by(account_and_number)
    sessions = wallaroo.session_windows(9 * SECOND)
    results: dict[str, Any] = {
        "left": left.map(number_of),
        "right": right.map(number_of),
        "sessions": keys.to(
            sessions.over(Collect(number_of), name="sessions", with_window=True)
        ).map(shown),
        "distinct": keys.dedupe(number_of, within=50 * SECOND, name="distinct").map(number_of),
        "outer": left.join(right, both, within=30 * SECOND, how="outer", name="outer"),
        "until": left.join(right, both, until=until, how="outer", name="until"),
    }
    ends = [
        pipeline.to_sink(wallaroo.FileSinkConfig(f"out/{label}.txt", encoder=encode, form="lines"))
        for label, pipeline in results.items()
    ]
    return wallaroo.build_application("chunks", *ends)
