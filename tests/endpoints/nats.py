"""JetStream streams as ends: a publisher that repeats what was not confirmed, under the same id,
and a reader of all messages.

Where it runs: the verifier.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import nats

from tests.connectors.nats.server import NATSServer
from tests.endpoints.interface import DELIVERY_S_MAX, Disturbed, Input, Output

RETRY_S = 0.1
ANSWER_S = 2.0
IN, OUT = "IN", "OUT"
WINDOW_S = 600.0  # in which a repeated id is dropped


class NATSEnds(Disturbed):
    """One server."""

    name = "NATS server"

    def __init__(self, server: NATSServer):
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


class NATSInput(Input):
    """A publisher that continues through the server's deaths."""

    def __init__(self, server: NATSServer):
        server.create(IN, duplicate_window=WINDOW_S)
        self.arguments = ["--source", "nats", "--nats", server.url]
        self._server = server
        self._put = 0

    def put(self, payloads: list[bytes]) -> None:
        left = list(payloads)

        async def publish(jetstream: Any) -> None:
            while left:
                headers = {"Nats-Msg-Id": str(self._put)}
                await jetstream.publish(f"{IN}.events", left[0], ANSWER_S, headers=headers)
                left.pop(0)
                self._put += 1

        until = time.monotonic() + DELIVERY_S_MAX
        while left:
            try:
                self._server.do(publish)
            except (nats.errors.Error, OSError):
                if time.monotonic() > until:
                    raise
                time.sleep(RETRY_S)


class NATSOutput(Output):
    """All messages of a stream."""

    def __init__(self, server: NATSServer, stream: str = OUT):
        server.create(stream, duplicate_window=WINDOW_S)
        self.arguments = ["--sink", "nats", "--nats", server.url, "--target", f"{stream}.windows"]
        self._server = server
        self._stream = stream

    def lines(self) -> Iterator[bytes]:
        for message in self._server.messages(self._stream):
            yield message.data
