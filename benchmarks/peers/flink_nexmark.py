"""Queries of Nexmark in Flink, over the generator's lines of JSON in files.

    PYTHON -m benchmarks.peers.flink_nexmark sql|stream time|rows FOLDER PARALLELISM QUERY...

Where it runs: a Python of its own in which apache-flink is installed, started by
``benchmarks.nexmark``.  For each query it prints one line of JSON: the seconds and the CPU seconds
that events took, or the rows that remain at the end.

``FOLDER`` has the folders ``few`` and ``all``, with a file for each task.  A query runs repeatedly
in one process: the quickest run over ``all`` less the quickest one over ``few`` is what the other
events took, without start and warm-up.

Flink gets what is in its favour: rows are thrown away (``blackhole``), state is on the JVM's heap,
changes are handed on in batches of up to 2 s and distinct counts are split, as the suite has it.
Like Wallaroo it checkpoints, once a second.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment

from benchmarks.peers.flink_queries import QUERIES, TABLES
from benchmarks.peers.flink_stream import CHECKPOINT_MS, rows_of

OPTIONS = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
    "table.local-time-zone": "UTC",
    "taskmanager.memory.network.max": "128m",
}
CHECKPOINTS = {"execution.checkpointing.interval": f"{CHECKPOINT_MS}ms"}
SIZES = {"sql": ("few", "few", "few", "all", "all"), "stream": ("few", "few", "all")}


def environment(folder: Path, size: str, parallelism: int, options: dict[str, str]) -> Any:
    """Return a session whose tables are the files of one size."""
    stream = StreamExecutionEnvironment.get_execution_environment()
    stream.set_parallelism(parallelism)
    tables = StreamTableEnvironment.create(stream)
    for name, value in options.items():
        tables.get_config().set(name, value)
    tables.get_config().set("execution.checkpointing.dir", (folder / "checkpoints").as_uri())
    for statement in TABLES:
        tables.execute_sql(statement.format(path=(folder / size).as_uri()))
    return tables


def run_sql(folder: Path, size: str, parallelism: int, query: str) -> None:
    """Run a query of SQL, and throw its rows away."""
    tables = environment(folder, size, parallelism, OPTIONS | CHECKPOINTS)
    result = tables.sql_query(QUERIES[query])
    kinds = result._j_table.getResolvedSchema().getColumnDataTypes()
    names = [kind.nullable().getLogicalType().asSerializableString() for kind in kinds]
    columns = ", ".join(f"`c{at}` {name}" for at, name in enumerate(names))
    tables.execute_sql(f"CREATE TABLE nothing ({columns}) WITH ('connector' = 'blackhole')")
    result.execute_insert("nothing").wait()


def run_stream(folder: Path, size: str, parallelism: int, query: str) -> None:
    """Run a query of the DataStream API, and throw its rows away."""
    session, rows = rows_of(query, folder, size, parallelism)
    rows.filter(lambda _: False).print()
    session.execute(query)


def timed(
    run: Callable[[Path, str, int, str], None], sizes: Sequence[str], folder: Path, *job: Any
) -> dict[str, float]:
    """Run a query repeatedly; return what the events beyond the few took."""
    took: dict[str, list[tuple[float, float]]] = {size: [] for size in sizes}
    for size in sizes:
        began = time.perf_counter()
        spent = cpu_s()
        run(folder, size, *job)
        took[size].append((time.perf_counter() - began, cpu_s() - spent))
    few, everything = min(took["few"]), min(took["all"])
    return {"seconds": everything[0] - few[0], "cpu_s": everything[1] - few[1]}


def cpu_s() -> float:
    """Return the processor time of this process and of all that it started."""
    own = psutil.Process()
    times = [each.cpu_times() for each in own.children(recursive=True)]
    spent = sum(sum(each[:4]) for each in times)  # with that of processes that have ended
    return spent + sum(own.cpu_times()[:2])


def remaining(folder: Path, parallelism: int, query: str) -> Iterator[list[Any]]:
    """Yield the rows of a query of SQL that were not taken back."""
    counts: dict[str, int] = {}
    result = environment(folder, "all", parallelism, OPTIONS).sql_query(QUERIES[query]).execute()
    with result.collect() as rows:
        for row in rows:
            text = json.dumps(list(row), default=float)
            is_added = row.get_row_kind().name in ("INSERT", "UPDATE_AFTER")
            counts[text] = counts.get(text, 0) + (1 if is_added else -1)
    for text, count in counts.items():
        yield from [json.loads(text)] * count


def streamed(folder: Path, parallelism: int, query: str) -> Iterator[list[Any]]:
    """Yield the rows of a query of the DataStream API."""
    _, rows = rows_of(query, folder, "all", parallelism)
    with rows.execute_and_collect() as texts:
        yield from map(json.loads, texts)


def main() -> None:
    """Run the queries."""
    api, kind, place, parallelism, *queries = sys.argv[1:]
    folder = Path(place)
    for query in queries:
        job = (folder, int(parallelism), query)
        if kind == "time":
            run = run_sql if api == "sql" else run_stream
            answer: Any = timed(run, SIZES[api], *job)
        else:
            answer = list(remaining(*job) if api == "sql" else streamed(*job))
        print(json.dumps([query, answer]), flush=True)


if __name__ == "__main__":
    main()
