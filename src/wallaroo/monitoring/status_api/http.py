"""HTTP for the status server: requests, replies, routes and sockets.

Where it runs: driver, in threads of its own.

It is the standard library's server for the reasons in ``docs/decisions/0012``.

Invariants:

* GET is the only method.
* At most ``REQUESTS_MAX`` requests at a time; more are asked to retry.  At most
  ``STREAMS_MAX`` of these are streams, so that open dashboards never lock out a query.
* A client has ``REQUEST_S_MAX`` for its whole request, TLS's handshake included, and its connection
  may be closed in favour of others until then: silent clients block no others.
* ``/healthz`` and ``/readyz`` are answered regardless of the number of requests in progress.
* Any error of a handler becomes an error reply: the run is not affected.
"""

from __future__ import annotations

import json
import math
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from wallaroo.monitoring.status_api.access import ALWAYS_ANSWERED, Access, Admission
from wallaroo.network.connection_budget import Budget, Visitor
from wallaroo.network.listener_threads import Acceptor

REQUESTS_MAX = 32  # in progress at a time
CONNECTIONS_MAX = 2 * REQUESTS_MAX  # including those whose request is not complete yet
STREAMS_MAX = 8
LISTEN_BACKLOG = 128
REQUEST_S_MAX = 10.0  # for a client to send its whole request, or to receive a part of the reply
BUSY = f"{REQUESTS_MAX} requests are under way. Ask again."
JSON_TYPE = "application/json"
# the dashboard loads its own files only, runs no inline script, and cannot be framed
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
        "'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_STATUS = {
    Admission.BAD_HOST: HTTPStatus.BAD_REQUEST,
    Admission.WRONG_NAME: HTTPStatus.FORBIDDEN,
    Admission.NO_TOKEN: HTTPStatus.UNAUTHORIZED,
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    It has the path without a final slash, parameters (last values only) and headers.
    """

    path: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]

    def accepts(self, kind: str) -> bool:
        """Return whether the client names this type itself; ``*/*`` does not count."""
        return kind in self.headers.get("Accept", "")


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply: a body or a stream.

    A stream consists of pieces until the client leaves.
    """

    code: HTTPStatus
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON_TYPE
    stream: Iterator[bytes] | None = None


Handler = Callable[[Request], Reply]


@dataclass(frozen=True, slots=True)
class Route:
    """One path: its answer, in words, and the function that returns it."""

    path: str
    what: str
    handler: Handler
    is_figures: bool = False  # shows no key, no state and no event


class Router:
    """A table of routes; paths that end in ``/*`` match everything below."""

    def __init__(self, routes: tuple[Route, ...]):
        self.routes = routes
        self._figures = {route.path for route in routes if route.is_figures}
        self._exact = {route.path: route.handler for route in routes}
        self._below = {
            route.path.removesuffix("*"): route.handler
            for route in routes
            if route.path.endswith("/*")
        }

    def reply(self, request: Request) -> Reply:
        """Answer a request; unknown paths are answered with the list of paths."""
        handler = self._exact.get(request.path)
        if handler is None:
            below = (h for prefix, h in self._below.items() if request.path.startswith(prefix))
            handler = next(below, self._not_found)
        return handler(request)

    def is_figures(self, path: str) -> bool:
        """Return whether a path's answer shows no key, no state and no event."""
        return path in self._figures

    def paths(self) -> dict[str, str]:
        """Return every path with its answer, in words."""
        return {route.path: route.what for route in self.routes}

    def _not_found(self, request: Request) -> Reply:
        content = {"error": f"there is no {request.path}", "paths": self.paths()}
        return json_reply(content, HTTPStatus.NOT_FOUND)


def json_reply(content: Any, code: HTTPStatus = HTTPStatus.OK) -> Reply:
    return Reply(code, json.dumps(content).encode())


def error_reply(text: str, code: HTTPStatus) -> Reply:
    return json_reply({"error": text}, code)


class HttpServer:
    """A server that passes requests that are allowed to the router."""

    def __init__(
        self,
        host: str,
        port: int,
        router: Router,
        context: ssl.SSLContext | None = None,
        request_s: float = REQUEST_S_MAX,
    ):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=LISTEN_BACKLOG)
        self.server_port: int = listener.getsockname()[1]
        self.is_encrypted = context is not None
        if context is not None:
            listener = context.wrap_socket(
                listener, server_side=True, do_handshake_on_connect=False
            )
        self.router = router
        self.access = Access(True, "", "", False)  # nothing is served before it is set
        self.streams = threading.BoundedSemaphore(STREAMS_MAX)
        self.requests = threading.BoundedSemaphore(REQUESTS_MAX)
        self._listener = listener
        self._acceptor = Acceptor(listener, Budget(CONNECTIONS_MAX), self._serve, request_s)

    def serve(self) -> None:
        """Answer until ``end``: an idle server sleeps."""
        try:
            self._acceptor.run()
        finally:
            self._listener.close()

    def end(self) -> None:
        """Stop answering, and let ``serve`` close the socket."""
        self._acceptor.end()

    def close(self) -> None:
        """Close the socket of a server that has not served."""
        self._listener.close()

    def _serve(self, sock: socket.socket, address: Any, visitor: Visitor) -> None:
        _Handler(sock, address, self, visitor)


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_S_MAX
    server_version = "wallaroo"
    sys_version = ""

    def __init__(self, sock: socket.socket, address: Any, own: HttpServer, visitor: Visitor):
        self._own = own
        self._visitor = visitor
        super().__init__(sock, address, cast(Any, None))  # it never uses its server argument

    def do_GET(self) -> None:
        # the request has arrived; the parts of a reply have their own limit
        self._visitor.within(math.inf)
        self._visitor.prove()
        if self.path.partition("?")[0] in ALWAYS_ANSWERED:
            self._answer()
        elif not self._own.requests.acquire(blocking=False):
            self._send(error_reply(BUSY, HTTPStatus.SERVICE_UNAVAILABLE))
        else:
            try:
                self._answer()
            finally:
                self._own.requests.release()

    def _answer(self) -> None:
        try:
            reply = self._reply()
        except Exception as error:  # noqa: BLE001  # this server's error boundary: the run continues
            reply = error_reply(
                f"{type(error).__name__}: {error}", HTTPStatus.INTERNAL_SERVER_ERROR
            )
        self._send(reply)

    def _reply(self) -> Reply:
        try:
            parts = urlsplit(self.path)
        except ValueError:
            return error_reply("the address cannot be read", HTTPStatus.BAD_REQUEST)
        path = parts.path.rstrip("/") or "/"
        parameters = {name: some[-1] for name, some in parse_qs(parts.query).items()}
        token = parameters.pop("token", "")
        access = self._own.access
        headers = dict(self.headers.items())
        request = Request(path, parameters, headers)
        is_dashboard = path == "/" and request.accepts("text/html")
        is_figures = self._own.router.is_figures(path) and not is_dashboard
        verdict = access.judge(path, token, headers, is_figures=is_figures)
        if verdict is not Admission.ALLOWED:
            return error_reply(verdict.value, _STATUS[verdict])
        if token and is_dashboard:
            return self._without_token()
        return self._own.router.reply(request)

    def _without_token(self) -> Reply:
        """Move a browser's token from the address, which lands in histories, to a cookie."""
        access = self._own.access
        secure = "; Secure" if self._own.is_encrypted else ""
        cookie = f"{access.cookie}={access.token}; Path=/; HttpOnly; SameSite=Strict{secure}"
        headers = {"Location": "/", "Set-Cookie": cookie}
        return Reply(HTTPStatus.SEE_OTHER, b"", headers)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse requests that are not a GET in JSON, too."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            refused = error_reply("only GET is answered", HTTPStatus.METHOD_NOT_ALLOWED)
            self._send(Reply(refused.code, refused.body, {"Allow": "GET"}))
        else:
            self._send(error_reply(message or HTTPStatus(code).phrase, HTTPStatus(code)))

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the terminal belongs to the live table."""

    def _send(self, reply: Reply) -> None:
        if reply.stream is not None:
            self._send_stream(reply, reply.stream)
            return
        self._send_head(reply, {"Content-Length": str(len(reply.body))})
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def _send_stream(self, reply: Reply, stream: Iterator[bytes]) -> None:
        if not self._own.streams.acquire(blocking=False):
            busy = f"{STREAMS_MAX} streams are open. Close a dashboard."
            self._send(error_reply(busy, HTTPStatus.SERVICE_UNAVAILABLE))
            return
        try:
            self._send_head(reply, {})
            for piece in stream:
                self.wfile.write(piece)
                self.wfile.flush()
        except OSError:
            pass  # the client has disconnected
        finally:
            self._own.streams.release()

    def _send_head(self, reply: Reply, more: Mapping[str, str]) -> None:
        self.send_response(reply.code)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Cache-Control", "no-store")
        for name, value in {**SECURITY_HEADERS, **reply.headers, **more}.items():
            self.send_header(name, value)
        self.end_headers()
