"""A small schema registry for tests: a real HTTP server that speaks the part of Confluent's
documented REST interface which the package uses, on loopback.

Where it runs: tests.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from wallaroo.spark.local_cluster.hosts import free_ports

TYPE = "application/vnd.schemaregistry.v1+json"


class Registry:
    """Schemas by id, and ids by subject; they survive `stop` and `start`."""

    def __init__(self, port: int, login: str):
        self.port = port
        self.login = login
        self.schemas: list[dict[str, Any]] = []  # ids begin at 1
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.refused = ""  # the subject that takes no schema
        self._server: Any = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def place(self) -> str:
        """What the package's errors call it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(None)

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                self.answer(json.loads(self.rfile.read(length)))

            def answer(self, body: Any) -> None:
                status, content = registry.answer(
                    self.command, self.path, body, self.headers.get("Authorization", "")
                )
                encoded = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", TYPE)
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

            def log_message(self, *_: Any) -> None:
                """Requests are kept, not printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def add(self, subject: str, schema: str, kind: str = "AVRO") -> int:
        """Register a schema; return its id."""
        own = {"schema": schema, "schemaType": kind}
        if own not in self.schemas:
            self.schemas.append(own)
        number = self.schemas.index(own) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: Any, login: str) -> tuple[int, Any]:
        """Answer a request."""
        parts = [unquote(part) for part in path.partition("?")[0].strip("/").split("/")]
        self.requests.append(f"{method} /{'/'.join(parts)}")
        wanted = f"Basic {base64.b64encode(self.login.encode()).decode()}"
        if self.login and login != wanted:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if method == "GET" and parts[:2] == ["schemas", "ids"]:
            return self._by_id(int(parts[2]))
        if parts[0] == "subjects" and method == "POST":
            if parts[1] == self.refused:
                return 409, {"error_code": 409, "message": "Schema is incompatible"}
            return 200, {"id": self.add(parts[1], body["schema"], body.get("schemaType", "AVRO"))}
        if parts[0] == "subjects" and parts[2:] == ["versions", "latest"]:
            return self._latest(parts[1])
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_id(self, number: int) -> tuple[int, Any]:
        if not 1 <= number <= len(self.schemas):
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, self.schemas[number - 1]

    def _latest(self, subject: str) -> tuple[int, Any]:
        versions = self.subjects.get(subject)
        if not versions:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        own = self.schemas[versions[-1] - 1]
        return 200, {"subject": subject, "version": len(versions), "id": versions[-1], **own}


@contextmanager
def running_registry(login: str = "") -> Iterator[Registry]:
    """A registry for as long as the context lasts."""
    (port,) = free_ports(1)
    registry = Registry(port, login)
    registry.start()
    try:
        yield registry
    finally:
        registry.stop()
