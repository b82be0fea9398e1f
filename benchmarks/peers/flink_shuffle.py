"""ShuffleBench in PyFlink's DataStream API, from a Kafka topic to a Kafka topic, exactly once.

    PYTHON -m benchmarks.peers.flink_shuffle BROKERS IN OUT ELSEWHERE RECORDS FEW TASKS JARS

Where it runs: a Python of its own in which apache-flink is installed, with the ``JARS`` of Kafka's
connector (``scripts/setup-peers``), started by ``benchmarks.shufflebench``.  It prints one line of
JSON: the seconds and the CPU seconds that the records after the few took.

The job runs three times in one process: twice over the few, into the topic ELSEWHERE, then over
all; the third run less the second is what the other records took.  It checkpoints once a second.
PyFlink does not hand on the times of records, so that those of outputs are 0; the consumer is at
the head of the value.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Types, WatermarkStrategy
from pyflink.common.serialization import ByteArraySchema
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTopicPartition,
)
from pyflink.datastream.state import ValueStateDescriptor

from benchmarks.peers.flink_nexmark import cpu_s
from benchmarks.peers.flink_stream import CHECKPOINT_MS
from benchmarks.shufflebench.rules import PER_OUTPUT, number_of, wanted_by, wrapped

PARTITIONS = 2
OUTPUT = ">qqqqq"  # the consumer and its state; a format, as a Struct does not travel
BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
TRANSACTION_MS = "600000"


class Consume(KeyedProcessFunction):
    """A consumer's count and sum since its last output."""

    def open(self, context: Any) -> None:
        self.seen = context.get_state(ValueStateDescriptor("seen", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, wanted: tuple[int, bytes], context: Any) -> Iterator[bytes]:
        consumer, record = wanted
        count, total = self.seen.value() or (0, 0)
        count += 1
        total = wrapped(total + number_of(record))
        if count == PER_OUTPUT:
            yield struct.pack(OUTPUT, consumer, count, total, 0, 0)
            count = total = 0
        self.seen.update((count, total))


def distribute(record: bytes) -> Iterator[tuple[int, bytes]]:
    for consumer in wanted_by(record):
        yield consumer, record


def run(brokers: str, source: str, sink: str, records: int, tasks: int, jars: Path) -> None:
    """Run the job over the first records of a topic."""
    session = StreamExecutionEnvironment.get_execution_environment()
    session.set_parallelism(tasks)
    session.set_python_executable(sys.executable)
    session.enable_checkpointing(CHECKPOINT_MS)
    session.add_jars(*(jar.as_uri() for jar in jars.glob("*.jar")))
    ends = {
        KafkaTopicPartition(source, partition): len(range(partition, records, PARTITIONS))
        for partition in range(PARTITIONS)
    }
    reader = (
        KafkaSource.builder()
        .set_bootstrap_servers(brokers)
        .set_topics(source)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.offsets(ends))
        .set_value_only_deserializer(ByteArraySchema())
        .build()
    )
    writer = (
        KafkaSink.builder()
        .set_bootstrap_servers(brokers)
        .set_record_serializer(
            KafkaRecordSerializationSchema.builder()
            .set_topic(sink)
            .set_value_serialization_schema(ByteArraySchema())
            .build()
        )
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(f"{sink}-{time.time_ns()}")
        .set_property("transaction.timeout.ms", TRANSACTION_MS)
        .build()
    )
    wanted = session.from_source(reader, WatermarkStrategy.no_watermarks(), "records").flat_map(
        distribute, Types.TUPLE([Types.LONG(), BYTES])
    )
    outputs = wanted.key_by(lambda pair: pair[0], Types.LONG()).process(Consume(), BYTES)
    outputs.sink_to(writer)
    session.execute("ShuffleBench")


def main() -> None:
    """Run the job three times."""
    brokers, source, sink, elsewhere, records, few, tasks, jars = sys.argv[1:]
    seconds = []
    cpu = []
    for out, count in ((elsewhere, few), (elsewhere, few), (sink, records)):
        began = time.perf_counter()
        spent = cpu_s()
        run(brokers, source, out, int(count), int(tasks), Path(jars))
        seconds.append(time.perf_counter() - began)
        cpu.append(cpu_s() - spent)
    print(json.dumps({"seconds": seconds[2] - seconds[1], "cpu_s": cpu[2] - cpu[1]}), flush=True)


if __name__ == "__main__":
    main()
