"""An application with vectorized state, whose checkpoints are kept as test data.

Where it runs: driver (building it) and workers.  Its names travel in the data: do not change them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import wallaroo

SOURCES = ("rows",)
ROW = np.dtype([("account", "S4"), ("amount", ">f8")])
LARGEST = np.dtype([("amount", "f8"), ("rows", "i8")])


@wallaroo.batch_key_extractor
def account_column(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the rows' keys."""
    return rows["account"]


@wallaroo.batch_state_computation(name="largest", state=LARGEST)
def largest(rows: NDArray[Any], at: NDArray[Any], states: NDArray[Any]) -> Any:
    """Keep the largest amount of each account; emit it with each row, and how many there were."""
    results = np.empty(len(rows), [("account", "S4"), ("amount", "f8"), ("rows", "i8")])
    results["account"] = rows["account"]
    for row, place in enumerate(at):
        states["amount"][place] = max(states["amount"][place], rows["amount"][row])
        states["rows"][place] += 1
        results["amount"][row] = states["amount"][place]
        results["rows"][row] = states["rows"][place]
    return results


@wallaroo.encoder
def encode(row: dict[str, Any]) -> str:
    """Write a row."""
    return f"{row['account'].decode()} {row['amount']:.0f} {row['rows']}"


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build the application: rows -> the largest amount of each account -> a file."""
    port = args[args.index("--ports") + 1]
    rows = wallaroo.source(
        "rows", wallaroo.TCPSourceConfig("rows", "127.0.0.1", port, wallaroo.fixed_layout(ROW))
    )
    sink = wallaroo.FileSinkConfig("out/largest.txt", encoder=encode, form="lines")
    return wallaroo.build_application(
        "amounts", rows.key_by(account_column).to(largest).to_sink(sink)
    )
