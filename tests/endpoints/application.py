"""Windows per key, from one system to another: the application whose processes are killed.

Where it runs: driver (building it) and workers.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

import wallaroo
from tests.connectors.files.s3.server import options_of
from tests.endpoints.interface import PARTITIONS
from tests.endpoints.lake import catalog_of, storage_of
from tests.endpoints.oracles import DELAY_MS, GAP_MS, IDLE_S, TIMED
from tests.endpoints.sink_program import COOKIE
from tests.endpoints.table_oracles import DELETED_EVERY, HOURS_DELAY_MS
from tests.verification.applications.sequence import EVENT, key_of, slide
from tests.verification.applications.sequence import decode as decode_window
from wallaroo.experimental import SinkConnectorConfig, SourceConnectorConfig
from wallaroo.serdes import Change
from wallaroo.sinks import (
    Delete,
    DeltaSinkConfig,
    IcebergSinkConfig,
    NATSSinkConfig,
    PostgresSinkConfig,
    RedisSinkConfig,
    RollingSinkConfig,
    SQLiteSinkConfig,
)
from wallaroo.sources import (
    NATSSourceConfig,
    PostgresChangesConfig,
    PostgresSourceConfig,
    RedisSourceConfig,
    ReplayableSource,
    SparkSourceConfig,
)

COLUMNS = ("key", "line")
TABLE = {"key": "int64", "line": "string"}
HOURLY = {"at": "timestamp[us]", "key": "int64", "number": "int64"}
ROLL_S = 1.0
CREDITS = 1000
Window = tuple[int, list[int]]
Timed = tuple[int, int, int]  # key, number, milliseconds


class Logs(ReplayableSource[tuple[int, ...]]):
    """Files of events of a fixed size; an offset is an event's number in its file."""

    def __init__(self, name: str, folder: Path, form: str):
        super().__init__(name)
        self.folder = folder
        self.event = struct.Struct(form)

    def __reduce__(self) -> Any:
        return Logs, (self.name, self.folder, self.event.format)

    def partitions(self) -> Iterable[str]:
        return [f"{number}.log" for number in range(PARTITIONS)]

    def end(self, partition: str) -> int:
        file = self.folder / partition
        return file.stat().st_size // self.event.size if file.exists() else 0

    def read(self, partition: str, start: int, end: int) -> Iterator[tuple[int, ...]]:
        size = self.event.size
        with (self.folder / partition).open("rb") as file:
            file.seek(start * size)
            yield from self.event.iter_unpack(file.read((end - start) * size))


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode_timed(payload: bytes) -> Timed:
    return TIMED.unpack(payload)


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode_row(row: dict[str, bytes]) -> Timed:
    return TIMED.unpack(row["payload"])


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode_numbers(row: dict[str, int]) -> tuple[int, int]:
    return row["key"], row["number"]


@wallaroo.computation
def number_of(change: Change[dict[str, int]]) -> tuple[int, int]:
    """Return the key and its number; a deletion is the one after the row's."""
    if change.after is not None:
        return change.after["key"], change.after["number"]
    return change.row["key"], change.row["number"] + 1


def time_of(event: Timed) -> int:
    return wallaroo.milliseconds(event[2])


@wallaroo.key_extractor
def timed_key_of(event: Timed) -> int:
    return event[0]


class Session(wallaroo.Aggregation[Timed, list[tuple[int, int]], Window]):
    """The numbers of a session, in the order of their times."""

    def initial_accumulator(self) -> list[tuple[int, int]]:
        return []

    def update(self, event: Timed, events: list[tuple[int, int]], /) -> None:
        events.append((event[2], event[1]))

    def combine(
        self, left: list[tuple[int, int]], right: list[tuple[int, int]], /
    ) -> list[tuple[int, int]]:
        return left + right

    def output(self, key: int, events: list[tuple[int, int]]) -> Window:  # type: ignore[override]
        return key, [number for _, number in sorted(events)]


def line_of(event: Window | Timed) -> str:
    return " ".join(map(str, event))


@wallaroo.encoder
def as_line(window: Window | Timed) -> str:
    return f"{line_of(window)}\n"


@wallaroo.encoder
def as_message(window: Window | Timed) -> str:
    return line_of(window)


@wallaroo.encoder
def as_record(window: Window | Timed) -> Any:
    return line_of(window), window[0]


@wallaroo.encoder
def as_row(window: Window | Timed) -> Any:
    return window[0], line_of(window)


def _is_deletion(window: Window) -> bool:
    return window[1][-1] % DELETED_EVERY == 0


@wallaroo.encoder
def as_keyed_row(window: Window) -> Any:
    return Delete(window[0]) if _is_deletion(window) else (window[0], line_of(window))


@wallaroo.encoder
def as_fields(window: Window) -> Any:
    fields = {"key": window[0], "line": line_of(window)}
    return Delete(fields) if _is_deletion(window) else fields


@wallaroo.encoder
def as_hourly_row(event: Timed) -> Any:
    at = datetime.fromtimestamp(event[2] / 1000, UTC).replace(tzinfo=None)
    return at, event[0], event[1]


def source_of(options: argparse.Namespace) -> Any:
    """Return the source that is asked for."""
    cookie = COOKIE.decode()
    decode = decode_timed if options.app == "sessions" else decode_window
    folder = Path(options.folder)
    event = TIMED if options.app == "hours" else EVENT
    sources = {
        "logs": lambda: Logs("Sequence", folder, event.format),
        "changes": lambda: PostgresChangesConfig(
            "Sequence", options.changes, "items", snapshot=True
        ),
        "spark": lambda: SparkSourceConfig(
            "Sequence",
            lambda spark: (
                spark.readStream.schema("key long, number long")
                .option("maxFilesPerTrigger", 1)
                .json(str(folder / "files"))
            ),
            decode_numbers,
        ),
        "kafka": lambda: wallaroo.KafkaSourceConfig(
            "Sequence", options.topic, options.brokers, decode, on_data_loss="skip"
        ),
        "postgres": lambda: PostgresSourceConfig(
            "Sequence", options.dsn, "input", "id", decode_row, ("payload",)
        ),
        "nats": lambda: NATSSourceConfig("Sequence", "IN", options.nats, decode),
        "redis": lambda: RedisSourceConfig("Sequence", "in", options.redis, decode, "payload"),
        "connector": lambda: SourceConnectorConfig(
            "Sequence", None, decode, options.port, cookie, CREDITS, CREDITS // 2
        ),
    }
    return sources[options.source]()


def sink_of(options: argparse.Namespace, kind: str, target: str) -> Any:
    """Return a sink of the kind that is asked for."""
    cookie = COOKIE.decode()
    sinks = {
        "file": lambda: wallaroo.FileSinkConfig(Path(options.folder) / "files", as_line),
        "kafka": lambda: wallaroo.KafkaSinkConfig(target, options.brokers, as_record),
        "postgres": lambda: PostgresSinkConfig(options.dsn, target, COLUMNS, as_row),
        "nats": lambda: NATSSinkConfig(options.nats, target, as_message),
        "redis": lambda: RedisSinkConfig(options.redis, as_message, stream=target),
        "sqlite": lambda: SQLiteSinkConfig(
            Path(options.folder) / "output.db", "output", COLUMNS, as_row
        ),
        "connector": lambda: SinkConnectorConfig("out", as_line, None, options.sink_port, cookie),
        "s3": lambda: RollingSinkConfig(
            "s3://out/windows",
            as_row,
            columns={"key": "int64", "line": "string"},
            roll_s=ROLL_S,
            options=options_of(int(options.port)),
        ),
    }
    return {**sinks, **_tables(options, target)}[kind]()


def _tables(options: argparse.Namespace, target: str) -> dict[str, Callable[[], Any]]:
    """Return the sinks of tables and folders."""
    folder = Path(options.folder)

    def delta(encoder: Any, **own: Any) -> Any:
        storage = storage_of(int(options.port))
        return DeltaSinkConfig(target, TABLE, encoder, group_s=ROLL_S, options=storage, **own)

    def iceberg(encoder: Any, **own: Any) -> Any:
        catalog = catalog_of(options.catalog, folder)
        return IcebergSinkConfig(target, TABLE, encoder, group_s=ROLL_S, options=catalog, **own)

    def folders(path: str, **own: Any) -> Any:
        levels = ("dt(at)", "hour(at)")
        return RollingSinkConfig(
            path,
            as_hourly_row,
            HOURLY,
            roll_s=ROLL_S,
            partition_by=levels,
            mark_success=True,
            **own,
        )

    return {
        "postgres rows": lambda: PostgresSinkConfig(
            options.dsn, target, COLUMNS, as_keyed_row, key="key"
        ),
        "redis rows": lambda: RedisSinkConfig(options.redis, as_fields, key=f"{target}:{{key}}"),
        "kafka rows": lambda: wallaroo.KafkaSinkConfig(
            target, options.brokers, as_fields, key="key"
        ),
        "delta": lambda: delta(as_row),
        "delta rows": lambda: delta(as_keyed_row, key="key"),
        "iceberg": lambda: iceberg(as_row),
        "iceberg rows": lambda: iceberg(as_keyed_row, key="key"),
        "folders": lambda: folders(str(folder / "hours")),
        "s3 folders": lambda: folders("s3://out/hours", options=options_of(int(options.port))),
    }


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build the application: ``--app``, ``--source``, ``--sink`` and where they are."""
    parser = argparse.ArgumentParser()
    places = ("brokers", "topic", "dsn", "folder", "nats", "redis", "port", "sink-port")
    for name in ("app", "source", "changes", "catalog", *places):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--sink", action="append", required=True)
    parser.add_argument("--target", action="append", default=[])
    options = parser.parse_known_args(args)[0]
    kinds = zip_longest(options.sink, options.target, fillvalue="")
    sinks = [sink_of(options, kind, target) for kind, target in kinds]
    events = wallaroo.source("Sequence", source_of(options))
    if options.app == "copies":
        copies = events.to(number_of).key_by(key_of).to(slide)
        return wallaroo.build_application("Ends", copies.to_sinks(sinks))
    if options.app == "hours":
        delay = wallaroo.milliseconds(HOURS_DELAY_MS)
        hours = events.with_event_time(time_of, delay=delay, allow_before_1980=True)
        return wallaroo.build_application("Ends", hours.to_sinks(sinks))
    if options.app == "sessions":
        timed = events.with_event_time(
            time_of,
            delay=wallaroo.milliseconds(DELAY_MS),
            idle_after=wallaroo.seconds(IDLE_S),
            allow_before_1980=True,
        )
        windows = wallaroo.session_windows(int(GAP_MS * wallaroo.milliseconds(1))).over(Session)
        sessions, late = timed.key_by(timed_key_of).to(windows).with_late_events()
        return wallaroo.build_application(
            "Ends", sessions.to_sink(sinks[0]), late.to_sink(sinks[1])
        )
    return wallaroo.build_application("Ends", events.key_by(key_of).to(slide).to_sinks(sinks))
