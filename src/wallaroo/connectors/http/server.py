"""The server of an HTTP source, which acknowledges bodies on disk.

Where it runs: feeder processes.

The invariant: 204 is answered only after `Pushed.stored` was called for the last payload of the
request; payloads are stored in order, so all of them are on disk then.
"""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar, cast

from wallaroo.connectors.http.source import HTTPSourceConfig
from wallaroo.network.connection_budget import Budget, Visitor, connections_max
from wallaroo.network.listener_threads import Acceptor, listening
from wallaroo.network.tls_sockets import server_context
from wallaroo.protocols.lines import split_lines
from wallaroo.sources.feed import framed
from wallaroo.sources.feeds.inbox import Inbox, InboxFeed, Pushed

LOGGER = logging.getLogger("wallaroo.connectors.http")
REQUESTS_MAX = 64  # in progress at a time
STORED_S_MAX = 25.0  # for a request to be on disk: clients and proxies often time out after 30
CONNECTIONS_MAX = 2000
# for a request's header, and until the next request begins
REQUEST_S_MAX = 30.0
DROPPED_S_MAX = 10.0  # how long a refused body is read
DROPPED_AT_ONCE = 1 << 16
LINE_BYTES_MAX = 1 << 16  # the library refuses a longer one
LENGTH_DIGITS_MAX = 18
BODY_BYTES_PER_S_MIN = 1 << 15  # allows a body more time by its size


class _Server:
    """The state that a source's connections share."""

    def __init__(self, config: HTTPSourceConfig[Any], inbox: Inbox, stored_s: float):
        self.config = config
        self.inbox = inbox
        self.stored_s = stored_s
        self.requests = Budget(REQUESTS_MAX)

    def serve(self, sock: socket.socket, address: Any, visitor: Visitor) -> None:
        """Accept a client's requests until it disconnects."""
        _Handler(sock, address, self, visitor)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "wallaroo"
    sys_version = ""
    timeout: ClassVar[float] = REQUEST_S_MAX
    raw_requestline: bytes

    def __init__(self, sock: socket.socket, address: Any, own: _Server, visitor: Visitor):
        self._own = own
        self._visitor = visitor
        super().__init__(sock, address, cast(Any, None))  # it never uses its server argument

    def handle_one_request(self) -> None:
        """Await a request for a limited time; until then an unproved connection may be closed."""
        self._visitor.within(REQUEST_S_MAX)
        super().handle_one_request()
        if not self._own.config.token:
            self._visitor.doubt()

    def parse_request(self) -> bool:
        """Read the header of a request that has begun."""
        self._visitor.within(REQUEST_S_MAX)
        while self.raw_requestline in (b"\r\n", b"\n"):  # RFC 9112, 2.2
            self.raw_requestline = self.rfile.readline(LINE_BYTES_MAX + 1)
        return super().parse_request()

    def do_POST(self) -> None:
        refused = self._refused()
        if refused is not None:
            self._refuse(refused)
            return
        if self._own.config.token:
            self._visitor.prove()
        request = self._own.requests.enter(self._visitor.close)
        if request is None:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        try:
            self._take(request)
        finally:
            request.leave()

    def do_GET(self) -> None:
        """Refuse GET requests."""
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)

    do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = do_GET

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer, and close the connection without the request's body.

        The rest of the request is read and dropped for a while: otherwise the system would send a
        reset, and a client that is still sending would not see the answer.
        """
        self.close_connection = True
        self._answer(status)
        if (
            self.headers.get("Content-Length", "0") == "0"
            and "Transfer-Encoding" not in self.headers
        ):
            return
        socket.socket.shutdown(self.connection, socket.SHUT_WR)
        self._visitor.within(DROPPED_S_MAX)
        with contextlib.suppress(OSError):
            while self.rfile.read1(DROPPED_AT_ONCE):
                continue

    def _refused(self) -> HTTPStatus | None:
        config = self._own.config
        lengths = {*self.headers.get_all("Content-Length", ())}
        is_chunked = "Transfer-Encoding" in self.headers
        if refusal := config.refusal(self.path, self.headers.get("Authorization")):
            return refusal
        if len(lengths) + is_chunked > 1:  # a proxy may take another one for the right one
            return HTTPStatus.BAD_REQUEST
        length = next(iter(lengths), "")
        if not (length.isascii() and length.isdigit()):
            return HTTPStatus.LENGTH_REQUIRED
        if len(length) > LENGTH_DIGITS_MAX or int(length) > config.max_size:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return None

    def _take(self, request: Visitor) -> None:
        length = int(self.headers["Content-Length"])
        self._visitor.within(REQUEST_S_MAX + length / BODY_BYTES_PER_S_MIN)
        body = self.rfile.read(length)
        if len(body) < length:  # the client has disconnected
            self.close_connection = True
            return
        self._visitor.within(math.inf)
        self._visitor.prove()
        request.prove()
        is_cut = self._own.config.lines
        payloads = [line for line in split_lines(body) if line] if is_cut else [body]
        is_stored = threading.Event()
        for number, payload in enumerate(payloads, 1):
            stored = is_stored.set if number == len(payloads) else None
            self._own.inbox.put(Pushed(framed(payload), None, stored))
        if not payloads or is_stored.wait(self._own.stored_s):
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
        """Do nothing: requests are counted by the status, not logged one by one."""


def serve(config: HTTPSourceConfig[Any], inbox: Inbox, stored_s: float = STORED_S_MAX) -> None:
    """Serve until the process ends.  Raises PeerError if it cannot listen."""
    context = server_context(config.tls) if config.tls is not None else None
    with listening(config.name, (config.host, config.port), context) as listener:
        LOGGER.info("Source %s listens on %s:%s", config.name, *listener.getsockname()[:2])
        server = _Server(config, inbox, stored_s)
        budget = Budget(connections_max(CONNECTIONS_MAX))
        Acceptor(listener, budget, server.serve, REQUEST_S_MAX).run()


def open_feed(config: HTTPSourceConfig[Any], resume: bytes) -> InboxFeed:
    return InboxFeed(config.name, lambda inbox, _: serve(config, inbox), resume)
