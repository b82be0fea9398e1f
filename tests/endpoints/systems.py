"""Pairs of ends, and the thread that feeds one.

Where it runs: the verifier.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tests.endpoints.files import FileOutput, LogInput
from tests.endpoints.interface import DELIVERY_S_MAX, Disturbed, Input, Output
from tests.endpoints.kafka import KafkaEnds, KafkaInput, KafkaOutput
from tests.endpoints.nats import NATSEnds, NATSInput, NATSOutput
from tests.endpoints.objects import S3Ends
from tests.endpoints.postgres import PostgresEnds
from tests.endpoints.programs import Program, SinkProgram, SourceProgram
from tests.endpoints.sqlite import SQLiteOutput
from tests.kafka.broker import running_broker
from tests.nats.server import running_nats
from tests.s3.server import running_s3
from tests.unit.sinks.postgres_server import running_server

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
def _connector_to_connector(folder: Path) -> Iterator[Ends]:
    source = SourceProgram(folder)
    sink = SinkProgram(folder)
    programs: list[Program] = [source, sink]
    for program in programs:
        program.start()
    try:
        yield source.input, sink, [source, sink]
    finally:
        for program in programs:
            program.stop(is_killed=True)


@contextmanager
def _replayable_to_s3(folder: Path) -> Iterator[Ends]:
    with running_s3(folder / "s3") as server:
        objects = S3Ends(server)
        yield LogInput(folder), objects, [objects]


@contextmanager
def _replayable_to_file(folder: Path) -> Iterator[Ends]:
    yield LogInput(folder), FileOutput(folder), []


@contextmanager
def _nats_to_sqlite(folder: Path) -> Iterator[Ends]:
    with running_nats(folder / "nats") as server:
        yield NATSInput(server), SQLiteOutput(folder), [NATSEnds(server)]


@contextmanager
def _nats_to_nats(folder: Path) -> Iterator[Ends]:
    with running_nats(folder / "nats") as server:
        yield NATSInput(server), NATSOutput(server), [NATSEnds(server)]


ENDS = {
    "kafka-kafka": _kafka_to_kafka,
    "kafka-postgres": _kafka_to_postgres,
    "connector-connector": _connector_to_connector,
    "replayable-s3": _replayable_to_s3,
    "replayable-file": _replayable_to_file,
    "nats-sqlite": _nats_to_sqlite,
    "nats-nats": _nats_to_nats,
}


def opened(name: str, folder: Path) -> AbstractContextManager[Ends]:
    """Start the systems of a pair of ends."""
    return ENDS[name](folder)


class Feeding(threading.Thread):
    """Puts portions of events until it is stopped; an error is kept for the caller."""

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
