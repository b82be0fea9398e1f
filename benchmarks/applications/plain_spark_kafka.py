"""Market Spread in plain PySpark from a Kafka topic: `plain_spark` with a source that reads ranges
of offsets.

Spark's own Kafka connector is not published for every version of Spark; this Python data source
reads with confluent-kafka, as Wallaroo's does, and hands over Arrow batches.

Where it runs: ``start`` in the driver, the rest in Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plain_spark  # type: ignore[import-not-found]  # beside this file, on the path of all processes
import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.streaming.query import StreamingQuery

FORMAT = "market-topic"
ORDER = 1  # the first byte of an order
SYMBOL_IN_ORDER = slice(12, 16)  # of a payload
SYMBOL_IN_QUOTE = slice(1, 5)
HEADER = bytes(plain_spark.HEADER_BYTES)  # a frame's, which `plain_spark` passes over
READ_S = 0.1


class TopicSource(DataSource):
    """Options: ``brokers``, ``topic``, ``partitions``, ``events`` (per batch)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return str(plain_spark.SCHEMAS["frames"])

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return TopicReader(dict(self.options))


class TopicReader(DataSourceStreamReader):
    """Every batch reads as many records of each partition, to the topic's end."""

    def __init__(self, options: dict[str, str]):
        self._brokers = options["brokers"]
        self._topic = options["topic"]
        self._partitions = int(options["partitions"])
        self._step = int(options["events"]) // self._partitions

    def initialOffset(self) -> dict[str, int]:
        return {str(number): 0 for number in range(self._partitions)}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        consumer: Any = self._consumer()
        try:
            return {
                number: min(at + self._step, self._end(consumer, number))
                for number, at in start.items()
            }
        finally:
            consumer.close()

    def _end(self, consumer: Any, number: str) -> int:
        place = TopicPartition(self._topic, int(number))
        return int(consumer.get_watermark_offsets(place, 10.0)[1])

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [
            InputPartition((int(number), at, end[number]))
            for number, at in start.items()
            if end[number] > at
        ]

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept, so nothing is let go."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        number, at, end = partition.value
        consumer: Any = self._consumer()
        try:
            consumer.assign([TopicPartition(self._topic, number, at)])
            while at < end:
                found = consumer.consume(min(plain_spark.ROWS_PER_ARROW_BATCH, end - at), READ_S)
                values = [message.value() for message in found if message.error() is None]
                if values:
                    at = found[-1].offset() + 1
                    yield _rows(values)
        finally:
            consumer.close()

    def _consumer(self) -> Any:
        return Consumer(
            {
                "bootstrap.servers": self._brokers,
                "group.id": "plain-spark",
                "enable.auto.commit": False,
                "fetch.queue.backoff.ms": 5,
            }
        )


def _rows(values: list[bytes]) -> pa.RecordBatch:
    are_orders = [value[0] == ORDER for value in values]
    symbols = [
        value[SYMBOL_IN_ORDER if is_order else SYMBOL_IN_QUOTE].decode()
        for value, is_order in zip(values, are_orders, strict=True)
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(symbols), pa.array(are_orders), pa.array([HEADER + value for value in values])],
        schema=plain_spark.ARROW_SCHEMAS["frames"],
    )


def start(
    spark: SparkSession,
    brokers: str,
    topic: str,
    partitions: int,
    checkpoint: Path,
    events: int,
    cores: int,
) -> StreamingQuery:
    """Start the query: batches of ``events`` records, back to back."""
    settings = {**plain_spark.SETTINGS, "spark.sql.shuffle.partitions": str(cores)}
    for name, value in settings.items():
        spark.conf.set(name, value)
    spark.dataSource.register(TopicSource)
    options = {"brokers": brokers, "topic": topic, "partitions": str(partitions)}
    return (
        spark.readStream.format(FORMAT)
        .options(**options, events=str(events))
        .load()
        .groupBy("symbol")
        .transformWithState(
            plain_spark.CheckMarketData("frames"),
            "rejection binary",
            outputMode="Append",
            timeMode="None",
        )
        .writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
