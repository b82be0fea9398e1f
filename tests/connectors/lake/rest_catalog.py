"""A server of Iceberg's REST protocol for tests: pyiceberg's models over its SQLite catalog.

Where it runs: tests, in a process of its own.  ``python -m tests.connectors.lake.rest_catalog PORT
FOLDER``.  A file ``next answer`` in the folder, such as ``502 after`` or ``503 before``, replaces
the answer to the next commit, after the commit is done or in its place.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import (
    ConfigResponse,
    CreateTableRequest,
    NamespaceResponse,
    TableResponse,
)
from pyiceberg.catalog.rest.response import ErrorResponse, ErrorResponseMessage
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import IcebergBaseModel

from tests.connectors.lake.tables import URI, sql_options_of
from tests.server_process import ServerProcess
from wallaroo.spark.local_cluster.hosts import free_ports

ANSWER = "next answer"
CODES: dict[type[Exception], int] = {
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}


class Namespace(IcebergBaseModel):
    """The request for a new namespace."""

    namespace: tuple[str, ...]


class Requests:
    """The protocol's requests, one after the other."""

    def __init__(self, catalog: SqlCatalog, folder: Path):
        self._catalog = catalog
        self._answer = folder / ANSWER
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, str]:
        """Return the status and the JSON of the answer."""
        with self._lock:
            try:
                return self._answered(method, *path.strip("/").split("/")[1:], body=body)
            except tuple(CODES) as error:
                return _failed(CODES[type(error)], error)
            except ValueError as error:
                return _failed(400, error)

    def _answered(self, method: str, *path: str, body: bytes) -> tuple[int, str]:
        match method, *path:
            case "GET", "config":
                return 200, ConfigResponse().model_dump_json()
            case "POST", "namespaces":
                name = Namespace.model_validate_json(body).namespace
                self._catalog.create_namespace(name)
                return 200, NamespaceResponse(namespace=name).model_dump_json()
            case "POST", "namespaces", namespace, "tables":
                absent = dict.fromkeys(("location", "partition-spec", "write-order"))
                request = CreateTableRequest.model_validate(absent | json.loads(body))
                return 200, self._created(namespace, request)
            case "GET", "namespaces", namespace, "tables", table:
                return 200, _shown(self._catalog.load_table((namespace, table)))
            case "POST", "namespaces", namespace, "tables", table:
                return self._committed((namespace, table), body)
        return _failed(404, ValueError(f"{method} {path} is not part of this server"))

    def _created(self, namespace: str, request: CreateTableRequest) -> str:
        create = self._catalog.create_table
        if request.stage_create:
            create = self._catalog._create_staged_table  # type: ignore[assignment]
        if not self._catalog.namespace_exists(namespace):
            raise NoSuchNamespaceError(namespace)
        if self._catalog.table_exists((namespace, request.name)):
            raise TableAlreadyExistsError(request.name)
        return _shown(
            create(
                (namespace, request.name),
                request.table_schema,
                request.location,
                request.partition_spec or UNPARTITIONED_PARTITION_SPEC,
                request.write_order or UNSORTED_SORT_ORDER,
                request.properties,
            )
        )

    def _committed(self, name: tuple[str, str], body: bytes) -> tuple[int, str]:
        code, when = (self._answer.read_text() if self._answer.exists() else "200 after").split()
        self._answer.unlink(missing_ok=True)
        request = CommitTableRequest.model_validate_json(body)
        if when == "after":
            table: Any = SimpleNamespace(name=lambda: name)
            response = self._catalog.commit_table(table, request.requirements, request.updates)
            if code == "200":
                return 200, response.model_dump_json()
        return _failed(int(code), RuntimeError("as the test wants it"))


def _shown(table: Any) -> str:
    response = TableResponse.model_validate(
        {"metadata-location": table.metadata_location, "metadata": table.metadata}
    )
    return response.model_dump_json()


def _failed(code: int, error: Exception) -> tuple[int, str]:
    message = ErrorResponseMessage(message=str(error), type=type(error).__name__, code=code)
    return code, ErrorResponse(error=message).model_dump_json()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    requests: Requests

    def do_GET(self) -> None:
        self._respond()

    do_POST = do_GET

    def _respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlsplit(self.path).path)
        code, text = self.requests.answer(self.command, path, body)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


class RestCatalog(ServerProcess):
    """A server; its catalog survives `kill` and `start`."""

    def start(self) -> None:
        """Start; return when it answers."""
        module = "tests.connectors.lake.rest_catalog"
        self.launch([sys.executable, "-m", module, str(self.port), str(self.folder)])

    def answer_next(self, code: int, when: str) -> None:
        """Replace the answer to the next commit."""
        (self.folder / ANSWER).write_text(f"{code} {when}")

    @property
    def has_answer(self) -> bool:
        """Whether no commit came since `answer_next`."""
        return (self.folder / ANSWER).exists()


@contextmanager
def running_catalog(folder: Path) -> Iterator[RestCatalog]:
    """A server for the table of a folder, as long as the context lasts."""
    (port,) = free_ports(1)
    server = RestCatalog(folder, port)
    (folder / URI).write_text(f"http://127.0.0.1:{port}")
    try:
        server.start()
        yield server
    finally:
        server.kill()


def main(port: str, folder: str) -> None:
    """Serve until killed."""
    catalog = load_catalog("default", **sql_options_of(Path(folder)))
    assert isinstance(catalog, SqlCatalog)
    Handler.requests = Requests(catalog, Path(folder))
    ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
