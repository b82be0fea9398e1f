"""A query of Nexmark run by `wallaroo run`.

Where it runs: the benchmark's process; the run is a process of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.engine.event_cost import Cost
from benchmarks.lib import watched

APPLICATION = Path(__file__).with_name("application.py")
ROWS = "rows.jsonl"


def measured(
    query: str, events: int, source: Sequence[str], host: str, folder: Path, options: Sequence[str]
) -> Cost:
    """Run a query from its first to its last event; return its cost after the warm-up.

    ``source``: the application's options.  Rows are in ``folder``'s ``ROWS`` then.
    """
    arguments = [*options, "--query", query, *source, "--rows", str(folder / ROWS)]
    return watched.measured(APPLICATION, arguments, events, host, folder)
