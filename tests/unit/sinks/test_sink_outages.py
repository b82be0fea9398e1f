"""Two sinks of one run on one server that is killed under load: what the run says, and what
arrives.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

import wallaroo
from tests.connectors.redis.server import running_redis
from tests.unit.serdes.orders import Item
from wallaroo.cli.run.text import summary
from wallaroo.monitoring.metrics.status import RunStatus
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sinks import RedisSinkConfig
from wallaroo.sources import RedisSourceConfig

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is missing"),
]
Eventually = Callable[..., None]
STREAMS = "first", "second"
EVENTS = 600


@wallaroo.encoder
def as_fields(item: Item) -> object:
    return {"name": item.name}


def application(source: str, target: str) -> wallaroo.Application:
    """Copy what comes from one server to two streams of another one."""
    items = wallaroo.source(
        "items", RedisSourceConfig("items", "in", source, Json(Item).decoder, field="json")
    )
    pipelines = [
        items.to_sink(RedisSinkConfig(target, as_fields, stream=stream)) for stream in STREAMS
    ]
    return wallaroo.build_application("items", *pipelines)


def names(client: Any, stream: str) -> list[str]:
    return [fields[b"name"].decode() for _, fields in client.xrange(stream)]


def is_waiting(status: RunStatus) -> bool:
    return len(status.sinks) == len(STREAMS) and all(
        "Redis at" in sink.waiting_for and ", since " in sink.waiting_for and sink.pending_bytes
        for sink in status.sinks
    )


def test_two_sinks_name_what_they_wait_for_and_resume_when_their_server_is_there_again(
    tmp_path: Path, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        running_redis(tmp_path / "a") as origin,
        running_redis(tmp_path / "b") as target,
        ExitStack() as stopping,
    ):
        feed: Any = redis.Redis.from_url(origin.url)

        def add(first: int, last: int) -> None:
            for number in range(first, last):
                feed.xadd("in", {"json": f'{{"name": "n{number}"}}'})

        options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
        run = Run(application(origin.url, target.url), options, InProcessHost(2))
        with caplog.at_level(logging.WARNING, "wallaroo.run"):
            run.begin()
            stopping.callback(run.stop)
            add(0, EVENTS // 2)
            eventually(lambda: run.status().outputs > 0, "the first outputs")
            target.kill()
            add(EVENTS // 2, EVENTS)
            eventually(lambda: is_waiting(run.status()), "both sinks are named")
            eventually(lambda: caplog.text.count("waits for Redis at") == 2, "the log too")
            status = run.status()
            target.start()
            client: Any = redis.Redis.from_url(target.url)
            eventually(
                lambda: all(len(names(client, stream)) == EVENTS for stream in STREAMS),
                "everything has arrived",
            )
            eventually(lambda: not run.status().waiting_for, "nothing is waited for")
        run.stop()
        assert run.wait(400)
        for sink in status.sinks:
            assert f"{sink.name}: {sink.waiting_for}" in status.waiting_for
            assert sink.waiting_since is not None
            assert f"  waiting for  {sink.waiting_for}: " in summary(status)
            assert f"sink '{sink.name}' has resumed after " in caplog.text
        for stream in STREAMS:
            assert names(client, stream) == [f"n{number}" for number in range(EVENTS)]
        feed.close()
        client.close()
