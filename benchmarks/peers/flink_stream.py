"""Four of Nexmark's queries in PyFlink's DataStream API, in plain Python.

Python's processes beside the JVM run the functions, as by default.  Lines are read and rows written
by orjson; the rows are then dropped.

Where it runs: as ``flink_nexmark``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.datastream.state import ListStateDescriptor, ValueStateDescriptor

ANY = Types.PICKLED_BYTE_ARRAY()
CHECKPOINT_MS = 1000
WEST = ("OR", "ID", "CA")
DAY_MS = 86_400_000
Row = tuple[Any, ...]


def is_bid(event: dict[str, Any]) -> bool:
    return bool(event["type"] == "bid")


def q0(events: DataStream) -> DataStream:
    return events.filter(is_bid).map(
        lambda b: (b["auction"], b["bidder"], b["price"], b["at"], b["extra"])
    )


class SellersNearby(KeyedProcessFunction):
    """A person, and the auctions that came before."""

    def open(self, context: Any) -> None:
        self.person = context.get_state(ValueStateDescriptor("person", ANY))
        self.waiting = context.get_list_state(ListStateDescriptor("waiting", Types.LONG()))

    def process_element(self, event: dict[str, Any], context: Any) -> Iterator[Row]:
        if event["type"] == "person":
            person = (event["name"], event["city"], event["state"])
            self.person.update(person)
            for item in self.waiting.get():
                yield (*person, item)
            self.waiting.clear()
        elif (person := self.person.value()) is not None:
            yield (*person, event["id"])
        else:
            self.waiting.add(event["id"])


def q3(events: DataStream) -> DataStream:
    def is_wanted(event: dict[str, Any]) -> bool:
        if event["type"] == "person":
            return event["state"] in WEST
        return bool(event["type"] == "auction" and event["category"] == 10)

    def person_of(event: dict[str, Any]) -> int:
        return int(event["id"] if event["type"] == "person" else event["seller"])

    return events.filter(is_wanted).key_by(person_of, Types.LONG()).process(SellersNearby())


class Traded(KeyedProcessFunction):
    """An auction's statistics of a day."""

    def open(self, context: Any) -> None:
        self.known = context.get_state(ValueStateDescriptor("known", ANY))

    def process_element(self, bid: dict[str, Any], context: Any) -> Iterator[Row]:
        day, price = bid["at"] // DAY_MS * DAY_MS, bid["price"]
        known = self.known.value()
        if known is None or known[0] != day:
            known = (day, 0, [0, 0, 0], price, price, 0)
        _, count, levels, least, greatest, total = known
        levels[0 if price < 10_000 else 1 if price < 1_000_000 else 2] += 1
        known = (day, count + 1, levels, min(least, price), max(greatest, price), total + price)
        self.known.update(known)
        _, count, levels, least, greatest, total = known
        yield bid["auction"], day, count, *levels, least, greatest, total // count, total


def q17(events: DataStream) -> DataStream:
    bids = events.filter(is_bid).key_by(lambda b: b["auction"], Types.LONG())
    return bids.process(Traded())


class LastBid(KeyedProcessFunction):
    """The time of a bidder's last bid for an auction."""

    def open(self, context: Any) -> None:
        self.at = context.get_state(ValueStateDescriptor("at", Types.LONG()))

    def process_element(self, bid: dict[str, Any], context: Any) -> Iterator[Row]:
        last = self.at.value()
        if last is None or bid["at"] >= last:
            self.at.update(bid["at"])
            yield tuple(
                bid[name]
                for name in ("auction", "bidder", "price", "channel", "url", "at", "extra")
            )


def q18(events: DataStream) -> DataStream:
    key = Types.TUPLE([Types.LONG(), Types.LONG()])
    pairs = events.filter(is_bid).key_by(lambda b: (b["bidder"], b["auction"]), key)
    return pairs.process(LastBid())


STREAMS: dict[str, Callable[[DataStream], DataStream]] = {
    function.__name__: function for function in (q0, q3, q17, q18)
}


def rows_of(query: str, folder: Path, size: str, parallelism: int) -> tuple[Any, DataStream]:
    """Return a session, and a query's rows as texts."""
    session = StreamExecutionEnvironment.get_execution_environment()
    session.set_parallelism(parallelism)
    session.set_python_executable(sys.executable)
    session.enable_checkpointing(CHECKPOINT_MS)
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(folder / size)
    ).build()
    lines = session.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
    rows = STREAMS[query](lines.map(orjson.loads))
    return session, rows.map(lambda row: orjson.dumps(row).decode(), Types.STRING())
