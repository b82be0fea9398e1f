"""One application over several sources and sinks: a sink that is away holds back as much as is
configured, says so, and gets everything once when it is there.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

import wallaroo
from tests.connectors.redis.server import RedisServer
from wallaroo.cli.send.sending import of_lines, send
from wallaroo.options import RunOptions
from wallaroo.protocols.framing import line_framing
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sinks import RedisSinkConfig, RollingSinkConfig
from wallaroo.sources import FilesSourceConfig, IteratorSource
from wallaroo.spark.local_cluster.hosts import free_ports

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is missing"),
]

LINES = 300
BOUND_BYTES = 20_000
PADDING = "x" * 200


def ticks(after: int | None) -> Any:
    """Numbers without end, slowly."""
    for number in range(after or 0, 1_000_000):
        time.sleep(0.002)
        yield f"tick {number} {PADDING}"


def application(folder: Path, port: int, url: str) -> wallaroo.Application:
    text = Json(str)
    streams = [
        wallaroo.source(
            "tcp", wallaroo.TCPSourceConfig("tcp", "127.0.0.1", port, text.decoder, framing="lines")
        ),
        wallaroo.source("files", FilesSourceConfig("files", str(folder / "in"), text.decoder)),
        wallaroo.source("ticks", IteratorSource("ticks", ticks)),
    ]
    sinks = [
        wallaroo.FileSinkConfig(folder / "out.txt", form="lines"),
        RollingSinkConfig(str(folder / "rolled"), roll_s=0.2),
        RedisSinkConfig(url, stream="out"),
    ]
    merged = streams[0].merge(streams[1]).merge(streams[2])
    return wallaroo.build_application("fan", merged.to_sinks(sinks))


def test_a_sink_that_is_away_holds_back_as_configured(
    tmp_path: Path, eventually: Callable[..., None]
) -> None:
    port, redis_port = free_ports(2)
    (tmp_path / "in").mkdir()
    (tmp_path / "redis").mkdir()
    lines = "".join(f'"line {number}"\n' for number in range(LINES))
    (tmp_path / "in" / "a.jsonl").write_text(lines)
    server = RedisServer(tmp_path / "redis", redis_port)
    options = RunOptions(
        checkpoint=tmp_path / "state", status_address=None, backlog_bytes_max=BOUND_BYTES
    )
    run = Run(application(tmp_path, port, server.url), options, InProcessHost(2))
    run.begin()
    out = tmp_path / "out.txt"

    def written() -> list[str]:
        return out.read_text().splitlines() if out.exists() else []

    try:
        sent = of_lines(lines.replace("line", "sent").encode(), framing=line_framing(1000))
        eventually(lambda: run.status().state == "running", "it runs")
        send([("127.0.0.1", port)], lambda: [sent])
        eventually(lambda: "Redis at" in run.status().waiting_for, "it says what for")
        seen: list[int] = []

        def is_held() -> bool:
            seen.append(len(written()))
            time.sleep(0.1)
            return len(seen) > 10 and seen[-1] == seen[-10] > 0

        eventually(is_held, "batches are held back")
        server.start()
        client: Any = redis.Redis.from_url(server.url)
        eventually(lambda: len(written()) > seen[-1], "batches continue")
        run.stop()
        assert run.wait(400)
        assert run.exception is None
        rolled = [
            line
            for part in sorted((tmp_path / "rolled").glob("part-*"))
            for line in part.read_text().splitlines()
        ]
        values = [fields[b"value"].decode() for _, fields in client.xrange("out")]
        assert sorted(rolled) == sorted(written()) == sorted(values)
        assert len(set(values)) == len(values)
        names = {value.partition(" ")[0] for value in values}
        assert names == {"line", "sent", "tick"}
        client.close()
    finally:
        run.stop()
        run.wait(400)
        server.kill()
