"""Windows per key, from one system to another: the application whose processes are killed.

Where it runs: driver (building it) and workers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import wallaroo
from tests.endpoints.interface import PARTITIONS
from tests.endpoints.sink_program import COOKIE
from tests.s3.server import options_of
from wallaroo.experimental import SinkConnectorConfig, SourceConnectorConfig
from wallaroo.sinks import (
    NATSSinkConfig,
    PostgresSinkConfig,
    RollingSinkConfig,
    SQLiteSinkConfig,
)
from wallaroo.sources import NATSSourceConfig, ReplayableSource
from wallaroo.verify.applications.sequence import EVENT, decode, key_of, slide

COLUMNS = ("key", "line")
ROLL_S = 1.0
CREDITS = 1000
Window = tuple[int, list[int]]


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


def line_of(window: Window) -> str:
    return f"{window[0]} {window[1]}"


@wallaroo.encoder
def as_line(window: Window) -> str:
    return f"{line_of(window)}\n"


@wallaroo.encoder
def as_message(window: Window) -> str:
    return line_of(window)


@wallaroo.encoder
def as_record(window: Window) -> Any:
    return line_of(window), window[0]


@wallaroo.encoder
def as_row(window: Window) -> Any:
    return window[0], line_of(window)


def source_of(options: argparse.Namespace) -> Any:
    """Return the source that is asked for."""
    cookie = COOKIE.decode()
    sources = {
        "logs": lambda: Logs("Sequence", Path(options.folder)),
        "kafka": lambda: wallaroo.KafkaSourceConfig("Sequence", "in", options.brokers, decode),
        "nats": lambda: NATSSourceConfig("Sequence", "IN", options.nats, decode),
        "connector": lambda: SourceConnectorConfig(
            "Sequence", None, decode, options.port, cookie, CREDITS, CREDITS // 2
        ),
    }
    return sources[options.source]()


def sink_of(options: argparse.Namespace) -> Any:
    """Return the sink that is asked for."""
    cookie = COOKIE.decode()
    sinks = {
        "file": lambda: wallaroo.FileSinkConfig(Path(options.folder) / "files", as_line),
        "kafka": lambda: wallaroo.KafkaSinkConfig("out", options.brokers, as_record),
        "postgres": lambda: PostgresSinkConfig(options.dsn, "output", COLUMNS, as_row),
        "nats": lambda: NATSSinkConfig(options.nats, "OUT.windows", as_message),
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
    """Build the application: ``--source KIND --sink KIND`` and where they are."""
    parser = argparse.ArgumentParser()
    for name in ("source", "sink", "brokers", "dsn", "folder", "nats", "port", "sink-port"):
        parser.add_argument(f"--{name}", default="")
    options = parser.parse_known_args(args)[0]
    windows = wallaroo.source("Sequence", source_of(options)).key_by(key_of).to(slide)
    return wallaroo.build_application("Ends", windows.to_sink(sink_of(options)))
