"""The one streaming query of a run: how it is started, and what its end means.

Where it runs: driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from wallaroo.errors import PeerError, WallarooError
from wallaroo.spark.offsets import Offsets
from wallaroo.spark.source import FORMAT, UNSTARTED, SpoolSource

JVM_GONE = (
    "Spark's JVM has gone. What was committed stays: run the same command again to go on "
    "from there."
)


def start_query(
    session: SparkSession,
    name: str,
    spool: Path,
    initial: Offsets,
    scratch: Path,
    batches: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    """Start the query over all spools below ``spool``, from these offsets; what Spark notes of it
    goes to ``scratch``.
    """
    session.dataSource.register(SpoolSource)
    stream = (
        session.readStream.format(FORMAT)
        .option("spool", str(spool))
        .option("sources", json.dumps(list(initial)))
        .option("initial", json.dumps(initial | UNSTARTED))
        .option("control", str(scratch / "control"))
        .load()
    )
    return (
        stream.writeStream.queryName(name)
        .foreachBatch(batches)
        # this host's disk, whatever Spark's default is
        .option("checkpointLocation", (scratch / "spark").as_uri())
        .trigger(processingTime="0 seconds")
        .start()
    )


def failure_of(query: StreamingQuery, failure: BaseException | None) -> WallarooError:
    """Return what ended a query, in the user's words; ``failure`` is what a batch raised."""
    if isinstance(failure, WallarooError):
        return failure
    if isinstance(failure, Py4JNetworkError | ConnectionError):
        return PeerError(JVM_GONE)
    reason = failure or query.exception()
    text = str(reason).strip().split("\n")[0][:500] if reason else "no reason given"
    return PeerError(
        f"Spark ended the run: {text}. What was committed stays; run again to go on from there."
    )
