"""Commits of a run on Spark are as rare as its latency target allows."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.unit.runtime.applications import line, text
from wallaroo.options import HostName

pytestmark = [pytest.mark.spark, pytest.mark.java]
EVENTS = 300


@pytest.mark.parametrize(("host", "target_ms"), [("resident", 200), ("micro-batch", 1_000)])
def test_commits_are_no_more_often_than_half_the_target(
    host: HostName,
    target_ms: int,
    spark_session: Any,
    tmp_path: Path,
    eventually: Callable[..., None],
) -> None:
    """A batch of more than half of the target ends later than that after the one before; a shorter
    one waits.
    """
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, text))
    sink = wallaroo.FileSinkConfig(tmp_path / "out.txt", encoder=line)
    application = wallaroo.build_application("copy", source.to_sink(sink))
    with wallaroo.run(
        application,
        session=spark_session,
        module_paths=(os.getcwd(),),
        latency=target_ms,
        host=host,
        status_address=None,
    ) as run:
        began = time.monotonic()
        with socket.create_connection(run.addresses["in"], 10) as client:
            for number in range(EVENTS):
                payload = f"{number:04d}".encode()
                client.sendall(struct.pack(">I", len(payload)) + payload)
                time.sleep(0.01)
        eventually(lambda: run.status().events_done == EVENTS, "all is processed")
        elapsed_ms = (time.monotonic() - began) * 1e3
        status = run.status()

    assert status.latency_target_ms == target_ms
    assert status.batches <= elapsed_ms / (target_ms / 2) + 2
    written = (tmp_path / "out.txt").read_text().split()
    assert written == [f"{number:04d}" for number in range(EVENTS)]
