"""The changes of a PostgreSQL table in plain PySpark: a Python data source over a replication slot,
and a streaming query that writes a line for each change.

Where it runs: the benchmark's process, and Spark's Python processes.

The slot's plugin is `test_decoding`, whose texts need no decoder in Python.  As in the product, the
slot is peeked at, and moved after a batch, and a batch covers so much of the log.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from benchmarks.engine.event_cost import Cost
from benchmarks.lib.machine import BenchmarkError
from benchmarks.lib.processes import cpu_by_kind
from benchmarks.lib.runs import AS_SPARK_ITSELF, spark
from benchmarks.lib.watched import Look, cost_of

PLUGIN = "test_decoding"
SLOT = "wallaroo_changes"
STEP_BYTES = 16 << 20
ROWS_AT_ONCE = 8192
FIRST = "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = %s"
LAST = "SELECT pg_current_wal_flush_lsn() - '0/0'"
PEEK = "SELECT lsn - '0/0', data FROM pg_logical_slot_peek_changes(%s, %s, NULL)"
MOVE = "SELECT pg_replication_slot_advance(%s, %s)"
LINES = r"regexp_replace(data, '^table [^:]*: ([A-Z]+): id[^:]*:(\\d+) .*$', '$1 $2')"


class Changes(DataSource):
    """The data source; its option is ``dsn``."""

    @classmethod
    def name(cls) -> str:
        return "changes"

    def schema(self) -> str:
        return "data string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # Spark's name
        return Reader(self.options["dsn"])


class Part(InputPartition):
    """The log between two places."""

    def __init__(self, first: int, last: int):
        self.first = first
        self.last = last


class Reader(DataSourceStreamReader):
    """The slot, by places in the log as offsets."""

    def __init__(self, dsn: str):
        self._dsn = dsn

    def initialOffset(self) -> dict[str, int]:
        (first,) = self._ask(FIRST, SLOT)
        return {"place": int(first)}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        (end,) = self._ask(LAST)
        return {"place": min(int(end), start["place"] + STEP_BYTES)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [Part(start["place"], end["place"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the transactions that are committed between the places."""
        assert isinstance(partition, Part)
        rows: list[str] = []
        opened: list[str] = []
        with psycopg.connect(self._dsn) as connection, connection.cursor("changes") as cursor:
            cursor.itersize = ROWS_AT_ONCE
            cursor.execute(PEEK, (SLOT, lsn(partition.last)))
            for place, data in cursor:
                if data.startswith("BEGIN"):
                    opened = []
                elif not data.startswith("COMMIT"):
                    opened.append(data)
                elif partition.first < place <= partition.last:
                    rows += opened
                    if len(rows) >= ROWS_AT_ONCE:
                        yield pa.RecordBatch.from_pydict({"data": rows})
                        rows = []
        yield pa.RecordBatch.from_pydict({"data": pa.array(rows, pa.string())})

    def commit(self, end: dict[str, int]) -> None:
        self._ask(MOVE, SLOT, lsn(end["place"]))

    def _ask(self, query: str, *values: Any) -> Any:
        with psycopg.connect(self._dsn) as connection:
            return connection.execute(query.encode(), values).fetchone()


def lsn(place: int) -> str:
    """A place in the log as PostgreSQL writes it."""
    return f"{place >> 32:X}/{place & 0xFFFFFFFF:X}"


def plain(folder: Path, dsn: str, changes: int) -> Cost:
    """Return the cost of a change, without the server's, after a warm-up."""
    looks: list[Look] = []
    written = 0

    def write(batch: Any, number: int) -> None:
        nonlocal written
        place = folder / "lines" / str(number)
        batch.selectExpr(f"{LINES} AS value").write.text(str(place))
        written += sum(file.read_bytes().count(b"\n") for file in place.glob("part-*"))
        looks.append(Look(time.perf_counter(), written, cpu_by_kind()))

    with spark(folder, AS_SPARK_ITSELF) as session:
        session.dataSource.register(Changes)
        frame = session.readStream.format("changes").option("dsn", dsn).load()
        query = frame.writeStream.foreachBatch(write)
        running = query.option("checkpointLocation", str(folder / "notes")).start()
        while written < changes and running.isActive:
            time.sleep(0.05)
        problem = running.exception()
        running.stop()
    if problem or written != changes:
        raise BenchmarkError(f"plain PySpark: {written} of {changes} changes: {problem}")
    return cost_of(looks, changes)
