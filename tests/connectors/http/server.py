"""A real HTTP server that answers as it is asked to and remembers what it was sent."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from wallaroo.network.tls import TLS

GONE = 0  # in place of an answer: the connection is closed
TRICKLE = 1  # a header that never ends, a byte now and then


@dataclass(slots=True)
class Hook:
    """``answers``: statuses, in order, with headers; when they are over, 204."""

    port: int = 0
    scheme: str = "http"
    answers: list[int] = field(default_factory=list)
    retry_after: str = ""
    body: bytes = b"so it is"  # of any answer but 204
    encoding: str = ""  # that the body claims to have
    missing: int = 0  # bytes that an answer to the first request claims to have in addition
    clients: set[Any] = field(default_factory=set)  # addresses: one for each connection
    early: tuple[int, ...] = ()  # statuses of informational answers before each answer
    is_over: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[dict[str, str], bytes, int]] = field(default_factory=list)

    def taken(self) -> list[bytes]:
        """The bodies of requests that were answered with 2xx, as a server that remembers keys
        sees them.
        """
        seen: dict[str, bytes] = {}
        for headers, body, status in self.requests:
            if 200 <= status < 300:
                seen.setdefault(headers["Idempotency-Key"], body)
        return list(seen.values())

    @property
    def keys(self) -> list[str]:
        return [headers["Idempotency-Key"] for headers, _, _ in self.requests]

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/alerts"


@contextmanager
def running_hook(port: int = 0, hook: Hook | None = None, tls: TLS | None = None) -> Iterator[Hook]:
    """A server for as long as the context lasts."""
    kept = hook or Hook()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = kept.answers.pop(0) if kept.answers else 204
            kept.requests.append((dict(self.headers), body, status))
            if status == GONE:
                self.close_connection = True
                return
            if status == TRICKLE:
                self.close_connection = True
                with contextlib.suppress(OSError):
                    self.wfile.write(b"HTTP/1.1 204 No Content\r\nX-Slow: ")
                    while not kept.is_over.wait(0.05):
                        self.wfile.write(b".")
                return
            for informational in kept.early:
                self.send_response_only(informational)
                self.send_header("Link", "</style.css>; rel=preload")
                self.end_headers()
            kept.clients.add(self.client_address)
            text = b"" if status == 204 else kept.body
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", str(len(text) + kept.missing))
                self.close_connection = bool(kept.missing)
                kept.missing = 0
            if kept.encoding:
                self.send_header("Content-Encoding", kept.encoding)
            if kept.retry_after and status >= 400:
                self.send_header("Retry-After", kept.retry_after)
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # it is not read to its end
                self.wfile.write(text)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        kept.scheme = "https"
    kept.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        kept.is_over.set()
        server.shutdown()
        server.server_close()
        thread.join()
