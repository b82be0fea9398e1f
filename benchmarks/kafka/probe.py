"""Produces records to a topic at a steady rate and reads the answers from another: latency from the
producer's clock to the consumer's poll.

    python -m benchmarks.kafka.probe BROKERS IN OUT PARTITIONS

prints ``ready`` when it reads OUT; then as ``benchmarks.lib.probe``, with ``RATE SECONDS WARM_UP``
in a line.  The consumer reads what is committed (`isolation.level=read_committed`).

Where it runs: a process of its own, outside of the application.
"""

from __future__ import annotations

import sys
import threading
import time

import numpy
from confluent_kafka import Producer
from counting import EVENT  # type: ignore[import-not-found]  # found by loads.prepare()

from benchmarks.kafka.topics import committed
from benchmarks.lib.probe import ANSWER, KEYS, Answers, paced, summary

FLUSH_S = 30.0


class Reader(threading.Thread):
    """Notes when answers came."""

    def __init__(self, brokers: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.found = Answers()
        self._consumer = committed(brokers, topic, partitions)

    def run(self) -> None:
        """Take what comes."""
        while True:
            messages = self._consumer.consume(1_000, 0.001)
            now = time.time_ns()
            values = b"".join(each.value() or b"" for each in messages if each.error() is None)
            if values:
                due_ns = numpy.frombuffer(values, ANSWER)["due"].astype(numpy.int64)
                self.found.add(due_ns, now)


def main() -> None:
    """Measure as often as asked."""
    brokers, given, answered, partitions = sys.argv[1:]
    reader = Reader(brokers, answered, int(partitions))
    reader.start()
    producer = Producer({"bootstrap.servers": brokers})
    print("ready", flush=True)
    for line in sys.stdin:
        rate, seconds, warm_up = map(float, line.split())
        reader.found = Answers()
        began = time.time_ns()
        total = int(rate * (seconds + warm_up))
        for numbers in paced(rate, total, began):
            for number in numbers:
                value = EVENT.pack(number % KEYS, began + int(number * 1e9 / rate))
                producer.produce(given, value, partition=number % int(partitions))
            producer.poll(0)
        producer.flush(FLUSH_S)
        print(summary(reader.found, began, total, warm_up), flush=True)


if __name__ == "__main__":
    main()
