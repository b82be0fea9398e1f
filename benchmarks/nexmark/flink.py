"""Nexmark's queries in Flink SQL and in PyFlink's DataStream API, beside ours.

Where it runs: the benchmark's process, which starts ``peers.flink_nexmark`` in a Python of its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.engine.event_cost import Cost
from benchmarks.lib.machine import cores
from benchmarks.lib.watched import WARM_UP

SQL, STREAM = "Flink SQL", "PyFlink DataStream"
APIS = {SQL: "sql", STREAM: "stream"}
# rows that cannot be compared: Flink joins sessions exactly a gap apart, and drops the last windows
# of the clock when its input ends
INCOMPARABLE = ("q11", "q12")
QUERIES = {
    SQL: tuple(f"q{number}" for number in range(24) if number not in (6, 13)),
    STREAM: ("q0", "q3", "q17", "q18"),
}
RUN_S_MAX = 900.0


def named(apis: Iterable[str]) -> tuple[str, ...]:
    """Return the names under which APIs are reported."""
    return tuple(who for who, api in APIS.items() if api in apis)


def split(events: Path, count: int, folder: Path) -> None:
    """Write a file's lines for Flink: a file per task, with the first events and with all."""
    for size, lines in (("few", int(count * WARM_UP)), ("all", count)):
        place = folder / size
        place.mkdir(parents=True)
        with events.open("rb") as file:
            whole = list(islice(file, lines))
        for task in range(cores()):
            (place / f"{task}.jsonl").write_bytes(b"".join(whole[task :: cores()]))


def measured(python: str, who: str, query: str, events: int, folder: Path) -> Cost:
    """Return what a query costs per event after the first ones.  Raises BenchmarkError."""
    ((_, took),) = _answers(python, who, "time", folder, [query])
    count = events - int(events * WARM_UP)
    return Cost.of_run(count, took["seconds"], {}, {who: took["cpu_s"]})


def rows(
    python: str, who: str, folder: Path, queries: Collection[str]
) -> Iterator[tuple[str, list[list[Any]]]]:
    """Yield those of the queries that can be compared, with all rows.  Raises BenchmarkError."""
    chosen = [query for query in QUERIES[who] if query in queries and query not in INCOMPARABLE]
    if chosen:
        yield from _answers(python, who, "rows", folder, chosen)


def _answers(
    python: str, who: str, kind: str, folder: Path, queries: list[str]
) -> Iterator[tuple[str, Any]]:
    arguments = APIS[who], kind, str(folder), str(cores()), *queries
    for line in peers.printed(python, "flink_nexmark", *arguments, seconds=RUN_S_MAX):
        if line.startswith('["q'):
            query, answer = json.loads(line)
            yield query, answer
