"""The HTTP server of a running application: its status and Wallaroo's queries, as JSON.

Where it runs: driver, in threads of its own.

The laws of this server:

* It only reads: GET is its one verb, and nothing that it is asked changes the run.
* It listens on the loopback address unless told otherwise, and then answers only who calls it by a
  loopback name: a web page that makes its own name point here reads nothing.
* At most ``CONNECTIONS_MAX`` requests at a time; more are hung up on.
* An error is told to whoever asked, never to the run.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from wallaroo.errors import PeerError, WallarooError
from wallaroo.metrics.status import RunStatus
from wallaroo.plan.model import Plan
from wallaroo.status_api import queries
from wallaroo.status_api.discovery import Announcement, Presence, announce
from wallaroo.status_api.entities import EntityReader

CONNECTIONS_MAX = 32
REQUEST_S_MAX = 10.0  # for a client to say what it wants
CLOSE_S = 0.1  # how soon the server notices that it is closed
LIMIT_DEFAULT, LIMIT_MAX = 10_000, 100_000  # keys of each state step in one answer
TRUNCATED = "X-Wallaroo-Truncated"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
STATUS_PATH = "/status"
PATHS = {"/": "this list", STATUS_PATH: "the whole status of the run"} | {
    f"/{query}": what for query, what in queries.QUERIES.items()
}


class Running(Protocol):
    """What a server must know of the run."""

    @property
    def plan(self) -> Plan: ...

    @property
    def root(self) -> Path:
        """The checkpoint's folder."""

    def status(self) -> RunStatus: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back: JSON."""

    code: HTTPStatus
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class StatusServer:
    """Answers for one run from ``start`` to ``close``; between them ``run.json`` in the checkpoint
    says where.
    """

    def __init__(self, handle: Running, host: str = "127.0.0.1", port: int = 0):
        self._handle, self._host, self._port = handle, host, port
        self._server: _Server | None = None
        self._announcement: Announcement | None = None
        self._thread: threading.Thread | None = None
        self._entities = EntityReader(handle.root, handle.plan.state_steps)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens; the port is known once it has started."""
        return self._host, self._port

    def start(self) -> None:
        """Listen and say so.  Raises PeerError where the address cannot be had or the checkpoint
        cannot be written.
        """
        try:
            server = _Server(self._host, self._port, self.reply)
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise PeerError(
                f"the status server cannot listen on {where}: {error.strerror or error}. Choose "
                f"another port; 0 takes a free one."
            ) from error
        self._port = server.server_address[1]
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, args=(CLOSE_S,), name="wallaroo-status", daemon=True
        )
        self._thread.start()
        try:
            self._announcement = announce(self._handle.root, self._presence())
        except PeerError:
            self.close()
            raise

    def close(self) -> None:
        """Stop answering; the files that led here go first.  Safe to repeat."""
        if self._announcement is not None:
            self._announcement.withdraw()
        self._entities.close()
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def reply(self, target: str) -> Reply:
        """Answer a path with its parameters."""
        parts = urlsplit(target)
        path = parts.path.rstrip("/") or "/"
        if path == "/":
            return _json({"application": self._handle.plan.application, "paths": PATHS})
        if path == STATUS_PATH:
            return _json(queries.status_json(self._handle.status()))
        query = queries.query_of(path[1:])
        if query is None:
            return _json({"error": f"there is no {path}", "paths": PATHS}, HTTPStatus.NOT_FOUND)
        if query in queries.FROM_STATUS:
            return _json(queries.answer(query, self._handle.plan, self._handle.status()))
        return self._from_state(query, parse_qs(parts.query).get("limit", [str(LIMIT_DEFAULT)])[-1])

    def _from_state(self, query: str, limit: str) -> Reply:
        if not _is_limit(limit):
            what = (
                f"limit={limit} is not a number from 1 to {LIMIT_MAX}. `wallaroo state export` "
                f"writes all entries."
            )
            return _json({"error": what}, HTTPStatus.BAD_REQUEST)
        try:
            found = self._entities.read(query, int(limit))
        except WallarooError as error:
            return _json({"error": str(error)}, HTTPStatus.SERVICE_UNAVAILABLE)
        return Reply(HTTPStatus.OK, found.body, {TRUNCATED: "true"} if found.is_truncated else {})

    def _presence(self) -> Presence:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return Presence(
            pid=os.getpid(),
            http=f"{host}:{self._port}",
            application=self._handle.plan.application,
            started_at=self._handle.status().started_at,
            host=socket.gethostname(),
            checkpoint=str(self._handle.root),
        )


def _json(content: Any, code: HTTPStatus = HTTPStatus.OK) -> Reply:
    return Reply(code, json.dumps(content).encode())


def _is_limit(text: str) -> bool:
    return (
        text.isascii()
        and text.isdigit()
        and len(text) <= len(str(LIMIT_MAX))
        and 1 <= int(text) <= LIMIT_MAX
    )


class Answering(Protocol):
    def __call__(self, target: str, /) -> Reply: ...


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, host: str, port: int, reply: Answering):
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.reply = reply
        self.is_loopback = host in LOOPBACK
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind without asking a name server for this machine's full name, which may take
        seconds.
        """
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = (
            str(self.server_address[0]),
            int(self.server_address[1]),
        )

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
        """Say nothing: a client that hangs up is no news to whoever watches the run."""


WRONG_NAME = _json(
    {"error": "ask by the name localhost or the address 127.0.0.1"}, HTTPStatus.FORBIDDEN
)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_S_MAX
    server_version, sys_version = "wallaroo", ""

    def do_GET(self) -> None:
        try:
            reply = self.server.reply(self.path) if self._is_welcome() else WRONG_NAME
        except Exception as error:  # noqa: BLE001  # this server's error gate: the run goes on
            reply = _json(
                {"error": f"{type(error).__name__}: {error}"}, HTTPStatus.INTERNAL_SERVER_ERROR
            )
        self._send(reply)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is not a GET in JSON, too."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._send(
                _json({"error": "only GET is answered"}, HTTPStatus.METHOD_NOT_ALLOWED),
                {"Allow": "GET"},
            )
        else:
            self._send(_json({"error": message or HTTPStatus(code).phrase}, HTTPStatus(code)))

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal belongs to the live table."""

    def _is_welcome(self) -> bool:
        called = self.headers.get("Host", "localhost")
        return not self.server.is_loopback or urlsplit(f"//{called}").hostname in LOOPBACK

    def _send(self, reply: Reply, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(reply.code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("Cache-Control", "no-store")
        for name, value in {**reply.headers, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)
