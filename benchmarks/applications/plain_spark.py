"""Market Spread in plain PySpark: ``transformWithState``, one row per event, Spark's own state
store.

The yardstick of ``benchmarks.engine.market_spread``: the same frames, the same decisions, the same
encoded rejections, and everything in its favour that does not change what it is:

* the source slices files of frames at known places, hands over Arrow batches, and the sink throws
  the output away;
* RocksDB with changelog checkpoints and without row counts; as many shuffle partitions as cores;
* per key and batch, state is read once and written once, however many events the key has.

Where it runs: ``start`` in the driver, the rest in Spark's Python workers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import market_spread as example  # beside the examples, on the path of all processes
import pyarrow as pa
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

FORMAT = "market-frames"
ORDER_BYTES, QUOTE_BYTES = 57, 46
HEADER_BYTES = 4
SYMBOL_IN_ORDER, SYMBOL_IN_QUOTE = slice(16, 20), slice(5, 9)  # of a frame with its header
ROWS_PER_ARROW_BATCH = 10_000  # Spark's default for what it sends to Python
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
SCHEMAS = {
    "frames": "symbol string, is_order boolean, frame binary",
    "columns": (
        "symbol string, is_order boolean, side int, account int, order_id binary, "
        "quantity double, price double, bid double, offer double"
    ),
}
ARROW_SCHEMAS = {
    "frames": pa.schema(
        [("symbol", pa.string()), ("is_order", pa.bool_()), ("frame", pa.binary())]
    ),
    "columns": pa.schema(
        [
            ("symbol", pa.string()),
            ("is_order", pa.bool_()),
            ("side", pa.int32()),
            ("account", pa.int32()),
            ("order_id", pa.binary()),
        ]
        + [(name, pa.float64()) for name in ("quantity", "price", "bid", "offer")]
    ),
}
STATE = "bid double, offer double, is_rejecting boolean"
ORDER, QUOTE = struct.Struct(">4xBBI6s4sdd21x"), struct.Struct(">4xB4s21xdd")


class FramesSource(DataSource):
    """Options: ``orders``, ``quotes`` (files of frames), ``slices``, ``events`` (per batch),
    ``rows`` (frames or columns).
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMAS[self.options["rows"]]

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return FramesReader(dict(self.options))


class FramesReader(DataSourceStreamReader):
    """Every batch reads the same number of both kinds of frames; the files are read in circles."""

    def __init__(self, options: dict[str, str]):
        self._rows, self._slices, self._events = (
            options["rows"],
            int(options["slices"]),
            int(options["events"]),
        )
        self._files = {True: options["orders"], False: options["quotes"]}

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"batch": start["batch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        per_slice = self._events // 2 // self._slices
        begin = start["batch"] * self._events // 2
        return [
            InputPartition((begin + number * per_slice, per_slice))
            for number in range(self._slices)
        ]

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept, so nothing is let go."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        begin, count = partition.value
        for is_order, size in ((False, QUOTE_BYTES), (True, ORDER_BYTES)):
            content = Path(self._files[is_order]).read_bytes()
            total = len(content) // size
            made = 0
            while made < count:
                at = (begin + made) % total
                rows = min(ROWS_PER_ARROW_BATCH, count - made, total - at)
                piece = content[at * size : (at + rows) * size]
                yield (
                    _frames(piece, is_order, size)
                    if self._rows == "frames"
                    else _columns(piece, is_order)
                )
                made += rows


def _frames(piece: bytes, is_order: bool, size: int) -> pa.RecordBatch:
    frames = [piece[at : at + size] for at in range(0, len(piece), size)]
    where = SYMBOL_IN_ORDER if is_order else SYMBOL_IN_QUOTE
    symbols = [frame[where].decode() for frame in frames]
    return pa.RecordBatch.from_arrays(
        [pa.array(symbols), pa.array([is_order] * len(frames)), pa.array(frames)],
        schema=ARROW_SCHEMAS["frames"],
    )


def _columns(piece: bytes, is_order: bool) -> pa.RecordBatch:
    schema = ARROW_SCHEMAS["columns"]
    if is_order:
        _, sides, accounts, ids, symbols, quantities, prices = zip(
            *ORDER.iter_unpack(piece), strict=True
        )
        values: dict[str, Any] = {
            "side": sides,
            "account": accounts,
            "order_id": ids,
            "quantity": quantities,
            "price": prices,
        }
    else:
        _, symbols, bids, offers = zip(*QUOTE.iter_unpack(piece), strict=True)
        values = {"bid": bids, "offer": offers}
    count = len(symbols)
    values |= {"symbol": [symbol.decode() for symbol in symbols], "is_order": [is_order] * count}
    arrays = [
        pa.array(values[field.name], field.type)
        if field.name in values
        else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class CheckMarketData(StatefulProcessor):
    """The example's ``check_market_data`` on rows; ``rows`` is the layout."""

    def __init__(self, rows: str):
        self._event = _event_of_frame if rows == "frames" else _event_of_columns

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("market", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        market, event_of = example.Market(), self._event
        kept = self._state.get()
        if kept is not None:
            market.bid, market.offer, market.is_rejecting = kept
        check, encode = CHECK, ENCODE
        for row in rows:
            rejection = check(event_of(row), market)
            if rejection is not None:
                yield Row(rejection=encode(rejection))
        self._state.update((market.bid, market.offer, market.is_rejecting))

    def close(self) -> None:
        """Nothing to release."""


CHECK, ENCODE = example.check_market_data.function, example.encode_rejection.function
DECODE_ORDER, DECODE_QUOTE = example.decode_order.function, example.decode_quote.function


def _event_of_frame(row: Row) -> Any:
    _, is_order, frame = row
    return (
        DECODE_ORDER(bytes(frame[HEADER_BYTES:]))
        if is_order
        else DECODE_QUOTE(bytes(frame[HEADER_BYTES:]))
    )


def _event_of_columns(row: Row) -> Any:
    symbol, is_order, side, account, order_id, quantity, price, bid, offer = row
    if is_order:
        return example.Order(side, account, bytes(order_id), symbol.encode(), quantity, price)
    return example.Quote(symbol.encode(), bid, offer)


def start(
    spark: SparkSession,
    orders: Path,
    quotes: Path,
    checkpoint: Path,
    events: int,
    cores: int,
    rows: str,
) -> StreamingQuery:
    """Start the query: batches of ``events`` events, back to back, without end."""
    for name, value in {**SETTINGS, "spark.sql.shuffle.partitions": str(cores)}.items():
        spark.conf.set(name, value)
    spark.dataSource.register(FramesSource)
    options = {
        "orders": str(orders),
        "quotes": str(quotes),
        "slices": str(cores),
        "events": str(events),
        "rows": rows,
    }
    return (
        spark.readStream.format(FORMAT)
        .options(**options)
        .load()
        .groupBy("symbol")
        .transformWithState(
            CheckMarketData(rows), "rejection binary", outputMode="Append", timeMode="None"
        )
        .writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
