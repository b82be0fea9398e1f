"""Where a new connection begins after another one has closed, on Spark and over a restart."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.conformance.apps import sessions
from tests.unit.runtime.applications import line, text
from wallaroo.aggregations import Count
from wallaroo.options import HostName
from wallaroo.spool import SpoolReader, folder_of

pytestmark = [pytest.mark.spark, pytest.mark.java]


class Clients:
    """Clients whose events come in one order: each waits until the one before is in the log."""

    def __init__(
        self, run: Any, folder: Path, eventually: Callable[..., None], *, reads_each: bool
    ):
        self._run = run
        self._spool = SpoolReader(folder_of(folder / "state" / "spool", "in"))
        self._eventually = eventually
        self._reads_each = reads_each
        self._before = self._spool.head().position.events
        self._sent = 0
        self._sockets: dict[str, socket.socket] = {}

    def send(self, client: str, event: str) -> None:
        if client not in self._sockets:
            self._sockets[client] = socket.create_connection(self._run.addresses["in"], 10)
        self._sockets[client].sendall(struct.pack(">I", len(event)) + event.encode())
        self._sent += 1
        end = self._before + self._sent
        self._eventually(lambda: self._spool.head().position.events == end, "stored")
        if self._reads_each:
            self.read()

    def close(self, client: str) -> None:
        self._sockets.pop(client).close()
        left = len(self._sockets)
        self._eventually(lambda: self._spool.head().connections == left, "closed")

    def read(self) -> None:
        self._eventually(lambda: self._run.status().events_done == self._sent, "processed")


def application(folder: Path) -> wallaroo.Application:
    source = wallaroo.TCPSourceConfig("in", "127.0.0.1", "0", text)
    windows = wallaroo.range_windows(10 * sessions.SECOND).over(Count(), name="tens")
    counts, late = (
        wallaroo.source("in", source)
        .to(sessions.parse)
        .with_event_time(sessions.time_of, allow_before_1980=True)
        .key_by(sessions.key_of)
        .to(windows)
        .with_late_events()
    )
    return wallaroo.build_application(
        "closed",
        counts.map(str, name="count").to_sink(
            wallaroo.FileSinkConfig(folder / "counts.txt", encoder=line, name="counts")
        ),
        late.map(repr, name="late").to_sink(
            wallaroo.FileSinkConfig(folder / "late.txt", encoder=line, name="late")
        ),
    )


@pytest.mark.parametrize("reads_each", [True, False], ids=["in many batches", "in few batches"])
@pytest.mark.parametrize("host", ["resident", "micro-batch"])
def test_results_are_the_same_however_batches_are_cut(
    host: HostName,
    spark_session: Any,
    tmp_path: Path,
    eventually: Callable[..., None],
    reads_each: bool,
) -> None:
    @contextmanager
    def running() -> Iterator[Clients]:
        with wallaroo.run(
            application(tmp_path),
            session=spark_session,
            module_paths=(os.getcwd(),),
            latency=100 if reads_each else 6_000,
            host=host,
            checkpoint=tmp_path / "state",
            status_address=None,
        ) as run:
            clients = Clients(run, tmp_path, eventually, reads_each=reads_each)
            yield clients
            clients.read()

    with running() as clients:
        clients.send("slow", "a 12 0")
        clients.send("fast", "a 35 1")
        clients.close("slow")
        clients.send("fast", "b 36 2")
        clients.send("new", "b 13 3")  # it begins at 36, as only the fast one is open

    with running() as clients:  # all have closed: 36 was the newest watermark
        clients.send("again", "c 29 4")
        clients.send("again", "c 37 5")
        clients.send("ahead", "d 55 6")
        clients.close("again")
        clients.send("ahead", "d 56 7")
        clients.send("last", "e 44 8")  # it begins at 56

    late = (tmp_path / "late.txt").read_text().splitlines()
    assert [each.split("'")[1] for each in late] == ["b", "c", "e"], late
