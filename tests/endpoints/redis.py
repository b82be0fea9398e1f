"""Redis streams as ends: entries with ids that cannot come twice, and a reader of all entries.

Where it runs: the verifier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import redis

from tests.connectors.redis.server import RedisServer
from tests.endpoints.interface import DELIVERY_S_MAX, Disturbed, Input, Output, Pause

RETRY_S = 0.1
FIELD = "payload"
ROWS = """
local lines = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
    table.insert(lines, redis.call('HGET', key, 'line'))
end
return lines
"""


class RedisEnds(Disturbed):
    """One server."""

    name = "Redis server"

    def __init__(self, server: RedisServer):
        self._server = server

    def pids(self) -> list[int]:
        assert self._server.process is not None
        return [self._server.process.pid]

    def start(self) -> None:
        self._server.start()

    def stop(self, *, is_killed: bool) -> None:
        if is_killed:
            self._server.kill()
        else:
            self._server.stop()


class RedisInput(Input):
    """A client that adds each entry under its own number, and continues after the last one."""

    def __init__(self, server: RedisServer):
        self.arguments = ["--source", "redis", "--redis", server.url]
        self._server = server
        self._put = 0

    def put(self, payloads: list[bytes]) -> None:
        first = self._put
        self._put += len(payloads)

        def add(client: Any) -> None:
            last = client.xrevrange("in", count=1)
            done = int(last[0][0].split(b"-")[0]) if last else 0
            with client.pipeline(transaction=True) as pipeline:
                for number, payload in enumerate(payloads, first + 1):
                    if number > done:
                        pipeline.xadd("in", {FIELD: payload}, f"{number}-0")
                pipeline.execute()

        _do(self._server, add)


class RedisOutput(Output):
    """All entries of a stream."""

    def __init__(self, server: RedisServer, stream: str):
        self.arguments = ["--sink", "redis", "--redis", server.url, "--target", stream]
        self._server = server
        self._stream = stream

    def lines(self) -> Iterator[bytes]:
        entries: list[Any] = []
        _do(self._server, lambda client: entries.extend(client.xrange(self._stream)))
        for _, fields in entries:
            yield fields[b"value"]

    def block(self, pause: Pause, away_s: float) -> None:
        """Let the stream's key have another type for a while."""
        aside = f"{self._stream} aside"

        def take(client: Any) -> None:
            if not client.exists(aside) and client.exists(self._stream):
                with client.pipeline(transaction=True) as pipeline:
                    pipeline.rename(self._stream, aside).set(self._stream, "text").execute()

        def give(client: Any) -> None:
            if client.exists(aside):
                with client.pipeline(transaction=True) as pipeline:
                    pipeline.rename(aside, self._stream).execute()

        _do(self._server, take)
        try:
            pause(away_s)
        finally:
            _do(self._server, give)


class RedisRows(Output):
    """All hashes whose names have a prefix, read at one moment."""

    is_watched = True

    def __init__(self, server: RedisServer, prefix: str = "row"):
        self.arguments = ["--sink", "redis rows", "--redis", server.url, "--target", prefix]
        self._server = server
        self._prefix = prefix

    def lines(self) -> Iterator[bytes]:
        with redis.Redis.from_url(self._server.url, socket_timeout=30.0) as client:
            yield from client.eval(ROWS, 0, f"{self._prefix}:*")


def _do(server: RedisServer, work: Callable[[Any], None]) -> None:
    """Do what can be repeated until it is done."""
    until = time.monotonic() + DELIVERY_S_MAX
    while True:
        try:
            with redis.Redis.from_url(server.url, socket_timeout=30.0) as client:
                return work(client)
        except redis.RedisError:
            if time.monotonic() > until:
                raise
            time.sleep(RETRY_S)
