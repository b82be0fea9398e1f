"""Pairs of ends.

Where it runs: the verifier.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.connectors.files.s3.server import running_s3
from tests.connectors.kafka.broker import running_broker
from tests.connectors.nats.server import running_nats
from tests.connectors.postgres.server import Server, running_server
from tests.connectors.redis.server import running_redis
from tests.endpoints.files import FileOutput, LocalFolders, LogInput
from tests.endpoints.interface import PARTITIONS, Disturbed, Input, Output
from tests.endpoints.kafka import KafkaChanges, KafkaEnds, KafkaInput, KafkaOutput, TopicsInput
from tests.endpoints.lake import DeltaOutput, IcebergOutput, SparkFiles
from tests.endpoints.nats import NATSEnds, NATSInput, NATSOutput
from tests.endpoints.objects import S3Ends, S3Folders, S3Output
from tests.endpoints.oracles import Numbers, Oracle, Sessions
from tests.endpoints.postgres import (
    ChangesInput,
    PostgresEnds,
    PostgresInput,
    PostgresOutput,
    PostgresRows,
)
from tests.endpoints.programs import Program, SinkProgram, SourceProgram
from tests.endpoints.redis import RedisEnds, RedisInput, RedisOutput, RedisRows
from tests.endpoints.sqlite import SQLiteOutput
from tests.endpoints.table_oracles import Appended, Copies, Hours, Kind
from tests.endpoints.trial import Trial

BLOCKED_S_MAX = 3.0  # of a few starts
LOGICAL = ("wal_level=logical",)
FIRST_TRANSACTIONS, FIRST_CHANGES = 10, 100
STOPPED_SHARE = 0.4  # of changes of a topic
Deed = Callable[[Trial], None]
Opening = Callable[[Path, int], AbstractContextManager["Ends"]]


@dataclass(frozen=True, slots=True)
class Ends:
    """What is on both sides of the application, and what may happen there."""

    oracle: Oracle
    source: Input
    sinks: Sequence[Output]
    systems: Sequence[Disturbed] = ()
    deeds: Mapping[str, Deed] = field(default_factory=dict)  # besides what is done to systems
    has_snapshot: bool = False  # the application begins with what is there, before there is more

    @property
    def arguments(self) -> list[str]:
        """Return the arguments of the application."""
        parts = [self.source.arguments, *(sink.arguments for sink in self.sinks)]
        return ["--app", self.oracle.app, *(word for part in parts for word in part)]


@contextmanager
def _kafka_to_kafka(folder: Path, seed: int) -> Iterator[Ends]:
    oracle = Numbers(seed)
    with running_broker(folder / "broker") as broker:
        source = KafkaInput(broker, oracle.partition_of)
        yield Ends(oracle, source, [KafkaOutput(broker)], [KafkaEnds(broker)])


@contextmanager
def _topics_to_two_kafka(folder: Path, seed: int) -> Iterator[Ends]:
    oracle = Numbers(seed, 2)
    with running_broker(folder / "broker") as broker:
        chance = random.Random(f"{seed} topics")
        source = TopicsInput(broker, oracle.partition_of, chance)
        sinks = [KafkaOutput(broker, topic) for topic in ("out", "out2")]
        changes = {"topic made again": source.make_again, "topic grown": source.grow}
        deeds = {
            name: partial(_change_topic, source, sinks[0], change, chance)
            for name, change in changes.items()
        }
        yield Ends(oracle, source, sinks, [KafkaEnds(broker)], deeds)


def _change_topic(
    source: TopicsInput,
    sink: Output,
    change: Callable[[str], None],
    chance: random.Random,
    trial: Trial,
) -> None:
    """Change a topic of which everything came out, with the application running or stopped."""
    topic = chance.choice(source.topics)
    with source.changing(topic) as is_through:
        trial.wait_for_output(
            lambda: is_through([line.split(b" ")[0] for line in sink.known()]),
            f"output of everything in {topic}",
        )
        is_stopped = chance.random() < STOPPED_SHARE
        if is_stopped:
            trial.stop()
        change(topic)
        if is_stopped:
            trial.run.start()


@contextmanager
def _sessions_to_two_kafka(folder: Path, seed: int) -> Iterator[Ends]:
    oracle = Sessions(seed, PARTITIONS)
    with running_broker(folder / "broker") as broker:
        source = KafkaInput(broker, oracle.partition_of)
        sinks = [KafkaOutput(broker, topic) for topic in ("out", "out2")]
        yield Ends(oracle, source, sinks, [KafkaEnds(broker)])


@contextmanager
def _kafka_to_postgres(folder: Path, seed: int) -> Iterator[Ends]:
    oracle = Numbers(seed)
    with running_broker(folder / "broker") as broker, running_server() as server:
        source = KafkaInput(broker, oracle.partition_of)
        systems = [KafkaEnds(broker), PostgresEnds(server)]
        yield Ends(oracle, source, [PostgresOutput(server)], systems)


@contextmanager
def _sessions_to_two_postgres(folder: Path, seed: int) -> Iterator[Ends]:
    """Rows of which some are prepared for longer than a partition may be silent."""
    oracle = Sessions(seed, 1)
    with running_server() as server:
        source = PostgresInput(server)
        sinks = [PostgresOutput(server, table) for table in ("output", "output2")]

        def prepare(trial: Trial) -> None:
            source.prepare(trial.away_s())
            trial.wait_for(lambda: not source.is_to_prepare, "a prepared transaction")

        deeds = {"transaction prepared": prepare}
        yield Ends(oracle, source, sinks, [PostgresEnds(server)], deeds)


@contextmanager
def _connector_to_connector(folder: Path, seed: int) -> Iterator[Ends]:
    source = SourceProgram(folder)
    sink = SinkProgram(folder)
    programs: list[Program] = [source, sink]
    for program in programs:
        program.start()
    try:
        yield Ends(Numbers(seed), source.input, [sink], programs)
    finally:
        for program in programs:
            program.stop(is_killed=True)


@contextmanager
def _replayable_to_s3(folder: Path, seed: int) -> Iterator[Ends]:
    with running_s3(folder / "s3") as server:
        sinks = [S3Output(server)]
        yield Ends(Numbers(seed), LogInput(folder), sinks, [S3Ends(server)])


@contextmanager
def _replayable_to_file(folder: Path, seed: int) -> Iterator[Ends]:
    yield Ends(Numbers(seed), LogInput(folder), [FileOutput(folder)])


@contextmanager
def _nats_to_sqlite(folder: Path, seed: int) -> Iterator[Ends]:
    with running_nats(folder / "nats") as server:
        sinks = [SQLiteOutput(folder)]
        yield Ends(Numbers(seed), NATSInput(server), sinks, [NATSEnds(server)])


@contextmanager
def _nats_to_nats(folder: Path, seed: int) -> Iterator[Ends]:
    with running_nats(folder / "nats") as server:
        sinks = [NATSOutput(server)]
        yield Ends(Numbers(seed), NATSInput(server), sinks, [NATSEnds(server)])


@contextmanager
def _nats_to_two_nats(folder: Path, seed: int) -> Iterator[Ends]:
    with running_nats(folder / "nats") as server:
        sinks = [NATSOutput(server, stream) for stream in ("OUT", "OUT2")]
        yield Ends(Numbers(seed, 2), NATSInput(server), sinks, [NATSEnds(server)])


@contextmanager
def _redis_to_two_redis(folder: Path, seed: int) -> Iterator[Ends]:
    with running_redis(folder / "redis") as server:
        sinks = [RedisOutput(server, stream) for stream in ("out", "out2")]
        chance = random.Random(f"{seed} keys")

        def block(trial: Trial) -> None:
            with trial.excusing("WRONGTYPE"):
                chance.choice(sinks).block(trial.pause, min(trial.away_s(), BLOCKED_S_MAX))
                trial.progress()

        deeds = {"stream's key of another type": block}
        yield Ends(Numbers(seed, 2), RedisInput(server), sinks, [RedisEnds(server)], deeds)


def _table_of_changes(oracle: Copies, server: Server) -> ChangesInput:
    """Make a table that has had some transactions."""
    table = ChangesInput(server)
    for _ in range(FIRST_TRANSACTIONS):
        table.put(oracle.payloads(FIRST_CHANGES))
    oracle.begin()
    return table


@contextmanager
def _changes_to_rows(folder: Path, seed: int) -> Iterator[Ends]:
    with (
        running_server(*LOGICAL) as server,
        running_server() as target,
        running_redis(folder / "redis") as redis,
        running_broker(folder / "broker") as broker,
    ):
        systems = [
            PostgresEnds(server, "PostgreSQL source"),
            PostgresEnds(target),
            RedisEnds(redis),
            KafkaEnds(broker),
        ]
        sinks = [PostgresRows(target), RedisRows(redis), KafkaChanges(broker)]
        oracle = Copies(seed, [Kind.WHOLE, Kind.ROWS, Kind.LOG])
        source = _table_of_changes(oracle, server)
        yield Ends(oracle, source, sinks, systems, has_snapshot=True)


@contextmanager
def _changes_to_lake(folder: Path, seed: int) -> Iterator[Ends]:
    with (
        running_server(*LOGICAL) as server,
        running_server() as catalog,
        running_s3(folder / "s3") as store,
    ):
        systems = [
            PostgresEnds(server, "PostgreSQL source"),
            PostgresEnds(catalog, "catalog's PostgreSQL server"),
            S3Ends(store),
        ]
        sinks = [
            DeltaOutput(store.port, "delta rows"),
            IcebergOutput(catalog.port, folder, "iceberg rows"),
        ]
        oracle = Copies(seed, [Kind.WHOLE] * 2)
        source = _table_of_changes(oracle, server)
        yield Ends(oracle, source, sinks, systems, has_snapshot=True)


@contextmanager
def _spark_to_lake(folder: Path, seed: int) -> Iterator[Ends]:
    with running_server() as catalog, running_s3(folder / "s3") as store:
        systems = [PostgresEnds(catalog, "catalog's PostgreSQL server"), S3Ends(store)]
        sinks = [
            DeltaOutput(store.port, "delta"),
            IcebergOutput(catalog.port, folder, "iceberg"),
        ]
        yield Ends(Appended(seed, 2), SparkFiles(folder), sinks, systems)


@contextmanager
def _replayable_to_folders(folder: Path, seed: int) -> Iterator[Ends]:
    yield Ends(Hours(seed, PARTITIONS), LogInput(folder), [LocalFolders(folder)])


@contextmanager
def _replayable_to_s3_folders(folder: Path, seed: int) -> Iterator[Ends]:
    with running_s3(folder / "s3") as server:
        sinks = [S3Folders(server)]
        yield Ends(Hours(seed, PARTITIONS), LogInput(folder), sinks, [S3Ends(server)])


ENDS: dict[str, Opening] = {
    "kafka-kafka": _kafka_to_kafka,
    "topics-2kafka": _topics_to_two_kafka,
    "sessions-2kafka": _sessions_to_two_kafka,
    "kafka-postgres": _kafka_to_postgres,
    "sessions-2postgres": _sessions_to_two_postgres,
    "connector-connector": _connector_to_connector,
    "replayable-s3": _replayable_to_s3,
    "replayable-file": _replayable_to_file,
    "nats-sqlite": _nats_to_sqlite,
    "nats-nats": _nats_to_nats,
    "nats-2nats": _nats_to_two_nats,
    "redis-2redis": _redis_to_two_redis,
    "changes-rows": _changes_to_rows,
    "changes-lake": _changes_to_lake,
    "spark-lake": _spark_to_lake,
    "replayable-folders": _replayable_to_folders,
    "replayable-s3folders": _replayable_to_s3_folders,
}


def opened(name: str, folder: Path, seed: int) -> AbstractContextManager[Ends]:
    """Start the systems of a pair of ends."""
    return ENDS[name](folder, seed)
