"""The systems at both ends: how events get in, how output is read by an independent client, and how
a system's own processes are disturbed.

Where it runs: the verifier.
"""

from __future__ import annotations

import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.endpoints.application import PARTITIONS
from tests.kafka.broker import Broker, running_broker
from tests.unit.sinks.postgres_server import Server, running_server
from wallaroo.verify.applications.sequence import EVENT

DELIVERY_S_MAX = 300.0
READ_S = 0.5


class Input(ABC):
    """Where events are put; a key's events stay in order."""

    arguments: list[str]

    @abstractmethod
    def put(self, payloads: list[bytes]) -> None:
        """Put events; return when they are safe."""


class Output(ABC):
    """Where lines are read from."""

    arguments: list[str]

    @abstractmethod
    def lines(self) -> Iterator[bytes]:
        """Yield all lines that are committed, each key's in order."""


class Disturbed(ABC):
    """A system whose own processes are disturbed."""

    @abstractmethod
    def kill(self) -> None:
        """Kill it and start it again on the same data."""

    def hold(self, seconds: float) -> None:
        """Stop it for a while."""
        self.kill()


class KafkaEnds(Disturbed):
    """One broker."""

    def __init__(self, broker: Broker):
        self.broker = broker

    def kill(self) -> None:
        self.broker.kill()
        self.broker.start()

    def hold(self, seconds: float) -> None:
        self.broker.pause()
        try:
            time.sleep(seconds)
        finally:
            self.broker.resume()


class KafkaInput(Input):
    """An idempotent producer, which goes on through the broker's deaths."""

    def __init__(self, broker: Broker):
        broker.create("in", PARTITIONS)
        self.arguments = ["--source", "kafka", "--brokers", broker.address]
        self._producer: Any = Producer(
            {
                "bootstrap.servers": broker.address,
                "enable.idempotence": True,
                "message.timeout.ms": int(DELIVERY_S_MAX * 1000),
                "log_level": 0,
            }
        )

    def put(self, payloads: list[bytes]) -> None:
        failed: list[Any] = []

        def note(error: Any, record: Any) -> None:
            if error is not None:
                failed.append(error)

        for payload in payloads:
            key = str(EVENT.unpack(payload)[0])
            self._producer.produce("in", payload, key, on_delivery=note)
        assert self._producer.flush(DELIVERY_S_MAX) == 0, "the broker takes nothing"
        assert not failed, failed[:3]


class KafkaOutput(Output):
    """A consumer that sees committed records only."""

    def __init__(self, broker: Broker):
        broker.create("out", PARTITIONS)
        self.arguments = ["--sink", "kafka", "--brokers", broker.address]
        self._address = broker.address

    def lines(self) -> Iterator[bytes]:
        consumer: Any = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": "oracle",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        try:
            for number in range(PARTITIONS):
                place = TopicPartition("out", number, 0)
                end = _high(consumer, place)
                consumer.assign([place])
                while _position(consumer, place) < end:
                    for message in consumer.consume(5000, READ_S):
                        assert message.error() is None, message.error()
                        yield message.value()
        finally:
            consumer.close()


def _high(consumer: Any, place: TopicPartition) -> int:
    """The last stable offset: where committed output ends."""
    until = time.monotonic() + DELIVERY_S_MAX
    while True:
        try:
            return int(consumer.get_watermark_offsets(place, 5.0)[1])
        except KafkaException:
            assert time.monotonic() < until, "the broker does not answer"


def _position(consumer: Any, place: TopicPartition) -> int:
    return int(consumer.position([place])[0].offset)


class PostgresEnds(Disturbed, Output):
    """One server with a table."""

    def __init__(self, server: Server):
        self._server = server
        server.ask("CREATE TABLE output (id bigserial PRIMARY KEY, key bigint, line text)")
        self.arguments = ["--sink", "postgres", "--dsn", server.dsn]

    def kill(self) -> None:
        self._server.stop(signal.SIGQUIT)
        self._server.start()

    def lines(self) -> Iterator[bytes]:
        for (line,) in self._server.ask("SELECT line FROM output ORDER BY id"):
            yield line.encode()


class LogInput(Input):
    """The files of a replayable source of the application's own."""

    def __init__(self, folder: Path):
        self._folder = folder
        self.arguments = ["--source", "logs", "--folder", str(folder)]

    def put(self, payloads: list[bytes]) -> None:
        for number in range(PARTITIONS):
            own = [p for p in payloads if EVENT.unpack(p)[0] % PARTITIONS == number]
            with (self._folder / f"{number}.log").open("ab") as file:
                file.write(b"".join(own))


class FileOutput(Output):
    """The parts of a file sink."""

    def __init__(self, folder: Path):
        self._folder = folder
        self.arguments = ["--sink", "file", "--folder", str(folder)]

    def lines(self) -> Iterator[bytes]:
        for part in sorted((self._folder / "files").glob("part-*")):
            yield from part.read_bytes().splitlines()


Ends = tuple[Input, Output, list[Disturbed]]


@contextmanager
def _kafka_to_kafka(folder: Path) -> Iterator[Ends]:
    with running_broker(folder / "broker") as broker:
        yield KafkaInput(broker), KafkaOutput(broker), [KafkaEnds(broker)]


@contextmanager
def _kafka_to_postgres(folder: Path) -> Iterator[Ends]:
    with running_broker(folder / "broker") as broker, running_server() as server:
        table = PostgresEnds(server)
        yield KafkaInput(broker), table, [KafkaEnds(broker), table]


@contextmanager
def _replayable_to_file(folder: Path) -> Iterator[Ends]:
    yield LogInput(folder), FileOutput(folder), []


ENDS = {
    "kafka-kafka": _kafka_to_kafka,
    "kafka-postgres": _kafka_to_postgres,
    "replayable-file": _replayable_to_file,
}


def opened(name: str, folder: Path) -> AbstractContextManager[Ends]:
    """Start the systems of a pair of ends."""
    return ENDS[name](folder)


class Feeding(threading.Thread):
    """Puts portions of events until it is stopped; an error is kept for who looks."""

    def __init__(self, end: Input, case: Any, rate: float):
        super().__init__(name="feeding", daemon=True)
        self._end = end
        self._case = case
        self._rate = rate
        self._stopping = threading.Event()
        self.sent = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        portion = max(1, int(self._rate / 4))
        try:
            while not self._stopping.wait(0.25):
                payloads = self._case.payloads("Sequence", portion)
                self._end.put(payloads)
                self.sent += len(payloads)
        except BaseException as error:  # noqa: BLE001  # the thread's boundary: the verifier raises it
            self.error = error

    def finish(self) -> None:
        """Put no portion after this one; return when it is safe."""
        self._stopping.set()
        self.join(DELIVERY_S_MAX)
        if self.error is not None:
            raise self.error
