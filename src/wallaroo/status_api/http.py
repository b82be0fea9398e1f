"""HTTP for the status server: requests, replies, a table of routes, and the sockets.

Where it runs: driver, in threads of its own.

Why the standard library's server: ``docs/decisions/0012``.

Invariants:

* GET is the one verb.
* At most ``CONNECTIONS_MAX`` requests at a time; more are hung up on.  Of these at most
  ``STREAMS_MAX`` are streams, so that open dashboards never lock out a query.
* Whatever a handler raises becomes an error reply: the run is not affected.
* A TLS handshake is made in the connection's own thread, within ``REQUEST_S_MAX``: a client that
  does not shake hands keeps no other one waiting.
"""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from wallaroo.status_api.access import Access, Verdict

CONNECTIONS_MAX = 32
STREAMS_MAX = 8
LOOK_S = 2.0  # between two looks whether it is to end, should the wake-up fail
REQUEST_S_MAX = 10.0  # for a client to send its request, or to take a piece of the reply
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
    Verdict.BAD_HOST: HTTPStatus.BAD_REQUEST,
    Verdict.WRONG_NAME: HTTPStatus.FORBIDDEN,
    Verdict.NO_TOKEN: HTTPStatus.UNAUTHORIZED,
}


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: a path without a slash at its end, and the last value of each parameter."""

    path: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]

    def accepts(self, kind: str) -> bool:
        """Whether the client names this type itself; ``*/*`` does not count."""
        return kind in self.headers.get("Accept", "")


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back: a body, or a stream of pieces that goes on until the client leaves."""

    code: HTTPStatus
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON_TYPE
    stream: Iterator[bytes] | None = None


Handler = Callable[[Request], Reply]


@dataclass(frozen=True, slots=True)
class Route:
    """One path: what it answers, in words, and the function that does."""

    path: str
    what: str
    handler: Handler


class Router:
    """A table of routes; paths that end in ``/*`` take everything below."""

    def __init__(self, routes: tuple[Route, ...]):
        self.routes = routes
        self._exact = {route.path: route.handler for route in routes}
        self._below = {
            route.path.removesuffix("*"): route.handler
            for route in routes
            if route.path.endswith("/*")
        }

    def reply(self, request: Request) -> Reply:
        """Answer a request; one for a path that is not there gets the list of paths."""
        handler = self._exact.get(request.path)
        if handler is None:
            below = (h for prefix, h in self._below.items() if request.path.startswith(prefix))
            handler = next(below, self._not_found)
        return handler(request)

    def paths(self) -> dict[str, str]:
        """Every path with what it answers."""
        return {route.path: route.what for route in self.routes}

    def _not_found(self, request: Request) -> Reply:
        content = {"error": f"there is no {request.path}", "paths": self.paths()}
        return json_reply(content, HTTPStatus.NOT_FOUND)


def json_reply(content: Any, code: HTTPStatus = HTTPStatus.OK) -> Reply:
    """Return content as JSON."""
    return Reply(code, json.dumps(content).encode())


def error_reply(text: str, code: HTTPStatus) -> Reply:
    """Return an error as JSON."""
    return json_reply({"error": text}, code)


class HttpServer(ThreadingHTTPServer):
    """Listens, and passes requests that are allowed to the router."""

    daemon_threads = True
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, host: str, port: int, router: Router, context: ssl.SSLContext | None = None):
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.router = router
        self.context = context  # of TLS
        self.access = Access(True, "", "")  # nothing is served before it is set
        self.streams = threading.BoundedSemaphore(STREAMS_MAX)
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__((host, port), _Handler)

    def serve(self) -> None:
        """Answer until ``end``: an idle server sleeps."""
        self.serve_forever(LOOK_S)

    def end(self) -> None:
        """Answer no more, and close the socket; ``serve`` is woken by a connection."""
        ending = threading.Thread(target=self.shutdown, daemon=True)
        ending.start()
        with contextlib.suppress(OSError):
            address = str(self.server_address[0]), self.server_port
            socket.create_connection(address, LOOK_S).close()
        ending.join()
        self.server_close()

    def server_bind(self) -> None:
        """Bind without asking a name server for this machine's full name, which may take
        seconds.
        """
        socketserver.TCPServer.server_bind(self)
        self.server_name = str(self.server_address[0])
        self.server_port = int(self.server_address[1])

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; with TLS its first read shakes hands."""
        sock, address = super().get_request()
        if self.context is not None:
            sock = self.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return sock, address

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a client that hangs up is no news to people who watch the run."""


class _Handler(BaseHTTPRequestHandler):
    server: HttpServer
    timeout = REQUEST_S_MAX
    server_version = "wallaroo"
    sys_version = ""

    def do_GET(self) -> None:
        try:
            reply = self._reply()
        except Exception as error:  # noqa: BLE001  # this server's error boundary: the run goes on
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
        access = self.server.access
        headers = dict(self.headers.items())
        verdict = access.judge(path, token, headers)
        if verdict is not Verdict.ALLOWED:
            return error_reply(verdict.value, _STATUS[verdict])
        request = Request(path, parameters, headers)
        if token and path == "/" and request.accepts("text/html"):
            return self._without_token()
        return self.server.router.reply(request)

    def _without_token(self) -> Reply:
        """Move a browser's token from the address, which lands in histories, to a cookie."""
        headers = {"Location": "/"}
        access = self.server.access
        if access.token:
            secure = "; Secure" if self.server.context is not None else ""
            headers["Set-Cookie"] = (
                f"{access.cookie}={access.token}; Path=/; HttpOnly; SameSite=Strict{secure}"
            )
        return Reply(HTTPStatus.SEE_OTHER, b"", headers)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is not a GET in JSON, too."""
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
        if not self.server.streams.acquire(blocking=False):
            busy = f"{STREAMS_MAX} streams are open. Close a dashboard."
            self._send(error_reply(busy, HTTPStatus.SERVICE_UNAVAILABLE))
            return
        try:
            self._send_head(reply, {})
            for piece in stream:
                self.wfile.write(piece)
                self.wfile.flush()
        except OSError:
            pass  # the client has left
        finally:
            self.server.streams.release()

    def _send_head(self, reply: Reply, more: Mapping[str, str]) -> None:
        self.send_response(reply.code)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Cache-Control", "no-store")
        for name, value in {**SECURITY_HEADERS, **reply.headers, **more}.items():
            self.send_header(name, value)
        self.end_headers()
