"""Kafka to Kafka on Spark: exactly once through kills; an independent read_committed consumer is
the oracle.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.fixtures import broker, committed_records
from wallaroo.testing.verify.trial.processes import Kind, find

__all__ = ["broker"]
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.java]

ROOT = Path(__file__).resolve().parents[2]
KEYS = 20
WAIT_S = 400.0
Eventually = Callable[..., None]


@pytest.fixture
def topics(broker: Broker) -> None:
    broker.create("words", 3)
    broker.create("counts", 2)


class Application:
    """The application of docs/connectors/kafka.md, as a user runs it."""

    def __init__(self, folder: Path, broker: Broker):
        self._folder = folder
        self._broker = broker
        page = (ROOT / "docs" / "connectors" / "kafka.md").read_text()
        found = re.search(r"^```python\n(# kafka_count\.py\n.*?)^```$", page, re.M | re.S)
        assert found is not None
        self.file = folder / "kafka_count.py"
        self.file.write_text(found[1])
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "wallaroo", "run", "--no-live"]
        command += ["--checkpoint", str(self._folder / "state"), "--master", "local[2]"]
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, str(self.file), self._broker.address],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                start_new_session=True,
            )
        return self.process

    def log(self) -> str:
        return (self._folder / "log").read_text()

    def kill(self) -> None:
        """SIGKILL the driver; what it started ends by itself."""
        assert self.process is not None
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()
        psutil.wait_procs(family, WAIT_S)

    def bound(self) -> None:
        """From here on a run ends at what the topic holds when it starts."""
        text = self.file.read_text()
        assert "brokers, decode)" in text
        self.file.write_text(text.replace("brokers, decode)", "brokers, decode, until_now=True)"))


@pytest.fixture
def application(tmp_path: Path, broker: Broker) -> Iterator[Application]:
    made = Application(tmp_path, broker)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.send_signal(signal.SIGTERM)
        made.process.wait(WAIT_S)


def produce(broker: Broker, events: int) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(events):
        producer.produce("words", f"w{number % KEYS}", partition=number % 3)
    assert producer.flush(30) == 0


def counts(broker: Broker) -> dict[str, list[int]]:
    """Every count of every word that consumers see, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for record in committed_records(broker, "counts"):
        word, number = record.value().decode().split()  # type: ignore[attr-defined]
        assert record.key().decode() == word  # type: ignore[attr-defined]
        found[word].append(int(number))
    return found


def seen(broker: Broker) -> int:
    return sum(map(len, counts(broker).values()))


def test_every_record_counts_once_though_a_worker_and_the_driver_are_killed(
    broker: Broker, topics: None, application: Application, eventually: Eventually
) -> None:
    produce(broker, 3_000)
    first = application.start()
    eventually(lambda: seen(broker) > 0, "the first counts are committed")

    produce(broker, 6_000)
    for worker in find(first.pid)[Kind.WORKER]:
        os.kill(worker, signal.SIGKILL)
    eventually(lambda: seen(broker) > 3_000, "it continues without the worker")
    produce(broker, 6_000)
    application.kill()

    application.bound()
    last = application.start()
    produce(broker, 50)  # after the bound, or just before it
    assert last.wait(WAIT_S) == 0, application.log()

    got = counts(broker)
    assert "finished" in application.log()
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in got.values())
    assert 15_000 <= sum(map(len, got.values())) <= 15_050
    assert Counter(map(len, got.values())).total() == KEYS
