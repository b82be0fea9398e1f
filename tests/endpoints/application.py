"""Windows per key, from one system to another: the application whose processes are killed.

Where it runs: driver (building it) and workers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import wallaroo
from tests.connectors.files.s3.server import options_of
from tests.endpoints.interface import PARTITIONS
from tests.endpoints.oracles import DELAY_MS, GAP_MS, IDLE_S, TIMED
from tests.endpoints.sink_program import COOKIE
from tests.verification.applications.sequence import EVENT, key_of, slide
from tests.verification.applications.sequence import decode as decode_window
from wallaroo.experimental import SinkConnectorConfig, SourceConnectorConfig
from wallaroo.sinks import (
    NATSSinkConfig,
    PostgresSinkConfig,
    RedisSinkConfig,
    RollingSinkConfig,
    SQLiteSinkConfig,
)
from wallaroo.sources import (
    NATSSourceConfig,
    PostgresSourceConfig,
    RedisSourceConfig,
    ReplayableSource,
)

COLUMNS = ("key", "line")
ROLL_S = 1.0
CREDITS = 1000
Window = tuple[int, list[int]]
Timed = tuple[int, int, int]  # key, number, milliseconds


class Logs(ReplayableSource[tuple[int, int]]):
    """Files of events of a fixed size; an offset is an event's number in its file."""

    def __init__(self, name: str, folder: Path):
        super().__init__(name)
        self.folder = folder

    def partitions(self) -> Iterable[str]:
        return [f"{number}.log" for number in range(PARTITIONS)]

    def end(self, partition: str) -> int:
        file = self.folder / partition
        return file.stat().st_size // EVENT.size if file.exists() else 0

    def read(self, partition: str, start: int, end: int) -> Iterator[tuple[int, int]]:
        with (self.folder / partition).open("rb") as file:
            file.seek(start * EVENT.size)
            yield from EVENT.iter_unpack(file.read((end - start) * EVENT.size))


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode_timed(payload: bytes) -> Timed:
    return TIMED.unpack(payload)


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode_row(row: dict[str, bytes]) -> Timed:
    return TIMED.unpack(row["payload"])


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


def source_of(options: argparse.Namespace) -> Any:
    """Return the source that is asked for."""
    cookie = COOKIE.decode()
    decode = decode_timed if options.app == "sessions" else decode_window
    sources = {
        "logs": lambda: Logs("Sequence", Path(options.folder)),
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


def sink_of(options: argparse.Namespace, target: str) -> Any:
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
    return sinks[options.sink]()


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build the application: ``--app``, ``--source``, ``--sink`` and where they are."""
    parser = argparse.ArgumentParser()
    places = ("brokers", "topic", "dsn", "folder", "nats", "redis", "port", "sink-port")
    for name in ("app", "source", "sink", *places):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--target", action="append", default=[])
    options = parser.parse_known_args(args)[0]
    sinks = [sink_of(options, target) for target in options.target or [""]]
    events = wallaroo.source("Sequence", source_of(options))
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
