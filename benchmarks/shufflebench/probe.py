"""Records at a steady rate, and the latency of the consumers' outputs.

    python -m benchmarks.shufflebench.probe BROKERS IN OUT PARTITIONS

It prints ``ready`` when it reads OUT.  For each line ``RATE SECONDS FILE`` it sends for so long,
waits until outputs have ceased, saves their times in FILE (numpy: when the last record of an output
was due, and when the output was here, in ms of unix time), and prints how many there were.

Where it runs: a process of its own.  It reads what is committed.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from random import Random

import numpy
from confluent_kafka import Producer

from benchmarks.kafka.topics import committed
from benchmarks.lib.probe import paced
from benchmarks.shufflebench.application import STATE
from benchmarks.shufflebench.rules import RECORD_BYTES

POOL = 20_000  # different records
STILL_S = 5.0  # without outputs: there are no more
FLUSH_S = 60.0


class Reader(threading.Thread):
    """The consumer of outputs."""

    def __init__(self, brokers: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.times: list[tuple[int, int]] = []
        self.last_s = time.monotonic()
        self._consumer = committed(brokers, topic, partitions)

    def run(self) -> None:
        """Note when outputs come."""
        while True:
            messages = self._consumer.consume(1_000, 0.001)
            now_ms = time.time_ns() // 1_000_000
            for message in messages:
                if message.error() is None:
                    self.times.append((STATE.unpack(message.value() or b"")[3], now_ms))
                    self.last_s = time.monotonic()


def records() -> list[bytes]:
    """Return random records."""
    numbers = Random(0)
    return [numbers.randbytes(RECORD_BYTES) for _ in range(POOL)]


def main() -> None:
    """Send as often as asked."""
    brokers, given, answered, partitions = sys.argv[1:]
    reader = Reader(brokers, answered, int(partitions))
    reader.start()
    producer = Producer({"bootstrap.servers": brokers})
    pool = records()
    print("ready", flush=True)
    for line in sys.stdin:
        rate, seconds, file = line.split()
        reader.times = []
        began = time.time_ns()
        for numbers in paced(float(rate), int(float(rate) * float(seconds)), began):
            for number in numbers:
                producer.produce(
                    given,
                    pool[number % POOL],
                    partition=number % int(partitions),
                    timestamp=int(began / 1e6 + number * 1e3 / float(rate)),
                )
            producer.poll(0)
        producer.flush(FLUSH_S)
        reader.last_s = time.monotonic()
        while time.monotonic() - reader.last_s < STILL_S:
            time.sleep(0.1)
        numpy.save(Path(file), numpy.array(reader.times, numpy.int64))
        print(len(reader.times), flush=True)


if __name__ == "__main__":
    main()
