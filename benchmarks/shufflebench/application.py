"""ShuffleBench as an application, from a topic to a topic.

    wallaroo run benchmarks/shufflebench/application.py --brokers HOST:PORT --in TOPIC --out TOPIC

``--until-now`` ends at the present ends of the topic.

Where it runs: driver and workers.
"""

from __future__ import annotations

import argparse
import struct
from typing import NamedTuple

import wallaroo
from benchmarks.shufflebench.rules import PER_OUTPUT, number_of, wanted_by, wrapped
from wallaroo.sources import KafkaRecord

STATE = struct.Struct(">qqqq")  # records, their sum, times of the first and of the last one in ms


class Wanted(NamedTuple):
    """A record for a consumer."""

    consumer: int
    record: bytes
    at_ms: int


class Output(NamedTuple):
    """A consumer's state after its tenth record."""

    consumer: int
    state: bytes


class Seen:
    """The records that a consumer has had since its last output."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.first_ms = 0


@wallaroo.decoder
def decode(record: KafkaRecord) -> KafkaRecord:
    return record


def distribute(record: KafkaRecord) -> list[Wanted]:
    value = record.value or b""
    return [Wanted(consumer, value, record.timestamp_ms) for consumer in wanted_by(value)]


@wallaroo.key_extractor
def consumer_of(wanted: Wanted) -> int:
    return wanted.consumer


@wallaroo.state_computation(name="consume", state=Seen)
def consume(wanted: Wanted, seen: Seen) -> Output | None:
    seen.count += 1
    seen.total = wrapped(seen.total + number_of(wanted.record))
    if seen.count == 1:
        seen.first_ms = wanted.at_ms
    if seen.count < PER_OUTPUT:
        return None
    state = STATE.pack(seen.count, seen.total, seen.first_ms, wanted.at_ms)
    seen.count = 0
    seen.total = 0
    return Output(wanted.consumer, state)


@wallaroo.encoder
def encode(output: Output) -> tuple[bytes, int]:
    return output.state, output.consumer


def application(brokers: str, source: str, sink: str, *, until_now: bool) -> wallaroo.Application:
    """Build the application."""
    records = wallaroo.KafkaSourceConfig(
        "records", source, brokers, decode, group="", until_now=until_now, with_metadata=True
    )
    outputs = wallaroo.KafkaSinkConfig(sink, brokers, encode, delivery="exactly-once")
    pipeline = (
        wallaroo.source("records", records)
        .flat_map(distribute)
        .key_by(consumer_of)
        .to(consume)
        .to_sink(outputs)
    )
    return wallaroo.build_application("ShuffleBench", pipeline)


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build the application of a command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--in", dest="source", required=True, metavar="TOPIC")
    parser.add_argument("--out", dest="sink", required=True, metavar="TOPIC")
    parser.add_argument("--until-now", action="store_true")
    options = parser.parse_args(args)
    return application(options.brokers, options.source, options.sink, until_now=options.until_now)
