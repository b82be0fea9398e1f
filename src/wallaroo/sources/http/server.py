"""The server of an HTTP source: takes bodies, and answers when they are on disk.

Where it runs: feeder processes.

The invariant: 204 is answered only after `Pushed.stored` was called for the last payload of the
request; payloads are stored in order, so all of them are on disk then.
"""

from __future__ import annotations

import hmac
import logging
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from wallaroo.errors import PeerError
from wallaroo.lines import split_lines
from wallaroo.sources.feed import framed
from wallaroo.sources.inbox import Inbox, Pushed
from wallaroo.tls import TLS
from wallaroo.tls_sockets import server_context

LOGGER = logging.getLogger("wallaroo.sources.http")
REQUESTS_MAX = 64  # under way at a time
STORED_S_MAX = 25.0  # for a request to be on disk: clients and proxies often give up after 30
SILENCE_S_MAX = 30.0  # of a client in the middle of a request


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What is let in."""

    source: str
    path: str
    token: str = field(repr=False)
    max_size: int
    is_lines: bool
    stored_s: float = STORED_S_MAX

    def is_allowed(self, authorization: str | None) -> bool:
        """Whether a request has the token."""
        if not self.token:
            return True
        given = (authorization or "").encode("latin-1", "replace")
        return hmac.compare_digest(given, f"Bearer {self.token}".encode())

    def payloads(self, body: bytes) -> list[bytes]:
        """Cut a body."""
        if not self.is_lines:
            return [body]
        return [line for line in split_lines(body) if line]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], endpoint: Endpoint, inbox: Inbox):
        self.endpoint = endpoint
        self.inbox = inbox
        self.free = threading.Semaphore(REQUESTS_MAX)
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that broke is the client's affair: it sends again."""
        LOGGER.debug("A request of %s broke off", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "wallaroo"
    sys_version = ""
    timeout: ClassVar[float] = SILENCE_S_MAX

    def do_POST(self) -> None:
        """Take a body."""
        refused = self._refused()
        if refused is not None:
            self.close_connection = True  # its body is not read
            self._answer(refused)
        elif not self.server.free.acquire(blocking=False):
            self.close_connection = True
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            try:
                self._take()
            finally:
                self.server.free.release()

    def do_GET(self) -> None:
        """Refuse: there is nothing to get."""
        self.close_connection = True
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED)

    do_PUT = do_DELETE = do_PATCH = do_HEAD = do_GET

    def _refused(self) -> HTTPStatus | None:
        endpoint = self.server.endpoint
        length = self.headers.get("Content-Length", "")
        if self.path.partition("?")[0] != endpoint.path:
            return HTTPStatus.NOT_FOUND
        if not endpoint.is_allowed(self.headers.get("Authorization")):
            return HTTPStatus.UNAUTHORIZED
        if not (length.isascii() and length.isdigit()):
            return HTTPStatus.LENGTH_REQUIRED
        if int(length) > endpoint.max_size:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return None

    def _take(self) -> None:
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:  # the client is gone
            self.close_connection = True
            return
        payloads = self.server.endpoint.payloads(body)
        is_stored = threading.Event()
        for number, payload in enumerate(payloads, 1):
            stored = is_stored.set if number == len(payloads) else None
            self.server.inbox.put(Pushed(framed(payload), None, stored))
        if not payloads or is_stored.wait(self.server.endpoint.stored_s):
            self._answer(HTTPStatus.NO_CONTENT)
        else:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE)

    def _answer(self, status: HTTPStatus) -> None:
        self.send_response(status)
        if status is HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", "1")
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "POST")
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", "0")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Requests are counted by the status, not logged one by one."""


def serve(address: tuple[str, int], endpoint: Endpoint, inbox: Inbox, tls: TLS | None) -> None:
    """Serve until the process ends.  Raises PeerError where it cannot listen."""
    try:
        server = _Server(address, endpoint, inbox)
    except OSError as error:
        raise PeerError(
            f"Source '{endpoint.source}' cannot listen on {address[0]}:{address[1]}: "
            f"{error.strerror or error}. Choose another port, or end the program that uses it."
        ) from error
    if tls is not None:
        context = server_context(tls)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    LOGGER.info("Source %s listens on %s:%s", endpoint.source, *server.server_address[:2])
    server.serve_forever()
