"""A proxy in front of an S3 server that does what networks and stores do to requests.

Where it runs: tests.  By chance, with a seed: an answer is lost after the server has carried the
request out, a request is carried out once more later, connections are reset before the server sees
them, and the server is "busy": 503 in bursts, and 409 to requests with a condition.  Every request
takes the latency given.
"""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}
BURST = 6  # requests


@dataclass(frozen=True, slots=True)
class Faults:
    """How often each happens, of 1; latencies in seconds."""

    lost: float = 0.0
    duplicated: float = 0.0
    reset: float = 0.0
    busy: float = 0.0
    conflict: float = 0.0
    latency_s: tuple[float, float] = (0.0, 0.0)


ALL = Faults(0.05, 0.02, 0.02, 0.01, 0.02)
NONE = Faults()


class FaultProxy(ThreadingHTTPServer):
    """The proxy; ``counts`` has what happened, ``faults`` may be replaced at any time."""

    daemon_threads = True

    def __init__(self, upstream: int, faults: Faults = NONE, seed: int = 0):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.faults = faults
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._busy = 0
        self.ignores_conditions = False

    @property
    def port(self) -> int:
        """The proxy's port."""
        return int(self.server_address[1])

    def fate(self, is_conditional: bool) -> tuple[str, float]:
        """Choose what happens to a request, and how long it takes."""
        faults = self.faults
        with self._lock:
            chance = self._random.random()
            seconds = self._random.uniform(*faults.latency_s)
            self._busy = max(0, self._busy - 1)
            fate = "busy" if self._busy else "served"
            for name in ("lost", "duplicated", "reset", "busy", "conflict"):
                chance -= getattr(faults, name)
                if chance < 0:
                    fate = name
                    break
            if fate == "conflict" and not is_conditional:
                fate = "served"
            if fate == "busy" and not self._busy:
                self._busy = BURST
            self.counts[fate] += 1
        return fate, seconds

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultProxy

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # the client died while it sent: no store accepts half an object
            return self._cut()
        fate, seconds = self.server.fate("If-None-Match" in self.headers)
        time.sleep(seconds)
        if fate == "reset":
            return self._cut()
        if fate in ("busy", "conflict"):
            return self._answer(503 if fate == "busy" else 409, [], b"<Error/>")
        status, headers, content = self._forward(body)
        if status == 412 and self.server.ignores_conditions:
            status, headers, content = 200, [("ETag", '"1"')], b""
        if fate == "lost":
            return self._cut()
        if fate == "duplicated":
            threading.Timer(0.2, self._again, (body,)).start()
        return self._answer(status, headers, content)

    do_GET = do_PUT = do_DELETE = do_HEAD = do_POST = _serve

    def _again(self, body: bytes) -> None:
        with suppress(OSError, http.client.HTTPException):
            self._forward(body)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=30)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        length = str(len(content))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _cut(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def running_proxy(upstream: int, faults: Faults = NONE, seed: int = 0) -> Iterator[FaultProxy]:
    """A proxy for as long as the context lasts."""
    proxy = FaultProxy(upstream, faults, seed)
    threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
