"""The paths of the status server and their answers.

Where it runs: driver, in the server's threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from wallaroo.dataflow.plan.model import Plan
from wallaroo.errors import WallarooError
from wallaroo.monitoring.dashboard import INDEX, read_file
from wallaroo.monitoring.metrics.history import COLUMNS, SPANS
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.status import RunState, RunStatus
from wallaroo.monitoring.status_api import queries
from wallaroo.monitoring.status_api.entities import EntityReader
from wallaroo.monitoring.status_api.http import Reply, Request, Route, error_reply, json_reply
from wallaroo.monitoring.status_api.live import LiveView, graph_of

STREAM_EVERY_S = 1.0
SILENCE_S_MAX = 60.0  # a live run polls its sources many times a second
OBJECT_COMMITS_MAX = 16  # newest commits in which a key's object is looked up


class Running(Protocol):
    """The part of a run that its server needs."""

    @property
    def plan(self) -> Plan: ...

    @property
    def root(self) -> Path:
        """Return the checkpoint's folder."""

    @property
    def meter(self) -> RunMeter: ...

    def status(self) -> RunStatus: ...


def routes(
    handle: Running, entities: EntityReader, is_closed: threading.Event
) -> tuple[Route, ...]:
    """Return the table of one run's server."""
    handlers = _Handlers(handle, entities, is_closed)
    table = (
        Route("/", "the dashboard in a browser; else this list", handlers.root, is_figures=True),
        Route("/ui/*", "files of the dashboard", handlers.file),
        Route(
            "/healthz", "200 while the process works, else 503", handlers.health, is_figures=True
        ),
        Route(
            "/readyz", "200 while input is accepted, else 503", handlers.readiness, is_figures=True
        ),
        Route("/metrics", "metrics for Prometheus", handlers.metrics, is_figures=True),
        Route(queries.STATUS_PATH, "the whole status of the run", handlers.status, is_figures=True),
        Route(
            "/graph",
            "the pipeline's sources, steps and sinks, and what connects them",
            handlers.graph,
            is_figures=True,
        ),
        Route("/details", "steps, edges, hot keys, workers, batches, recovery", handlers.details),
        Route("/errors", "the newest events that failed without stopping the run", handlers.errors),
        Route("/history", "samples over ?span=10m, 4h or 24h", handlers.history, is_figures=True),
        Route("/stream", "status and details every second, as server-sent events", handlers.stream),
        Route(
            "/state-search", "keys of ?step= that contain ?text=, at most ?limit=", handlers.search
        ),
        Route("/state-object", "the object of ?step= and ?key= by commit", handlers.state_object),
        *(
            Route(f"/{name}{suffix}", what, handlers.query, is_figures=name in queries.FROM_STATUS)
            for name, what in queries.QUERIES.items()
            for suffix in ("", queries.SUFFIX)
        ),
    )
    handlers.paths = {
        route.path: route.what for route in table if not route.path.endswith(queries.SUFFIX)
    }
    return table


class _Handlers:
    def __init__(self, handle: Running, entities: EntityReader, is_closed: threading.Event):
        self._handle = handle
        self._entities = entities
        self._is_closed = is_closed
        self._live = LiveView(handle.plan)
        self.paths: dict[str, str] = {}  # the root's list

    def root(self, request: Request) -> Reply:
        if request.accepts("text/html"):
            return self.file(Request(f"/ui/{INDEX}", {}, request.headers))
        return json_reply({"application": self._handle.plan.application, "paths": self.paths})

    def file(self, request: Request) -> Reply:
        found = read_file(request.path.removeprefix("/ui/"))
        if found is None:
            return error_reply(f"there is no {request.path}", HTTPStatus.NOT_FOUND)
        return Reply(HTTPStatus.OK, found.content, content_type=found.content_type)

    def health(self, request: Request) -> Reply:
        state = self._handle.status().state
        silent_s = time.time() - self._handle.meter.flow.observed_at
        if state is RunState.FAILED:
            return error_reply("the run has failed", HTTPStatus.SERVICE_UNAVAILABLE)
        if state is RunState.RUNNING and silent_s > SILENCE_S_MAX:
            what = f"the run has not looked at its sources for {silent_s:.0f} s"
            return error_reply(what, HTTPStatus.SERVICE_UNAVAILABLE)
        return json_reply({"state": state})

    def readiness(self, request: Request) -> Reply:
        status = self._handle.status()
        is_ready = status.state is RunState.RUNNING
        code = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return json_reply({"state": status.state, "doing": status.doing}, code)

    def metrics(self, request: Request) -> Reply:
        from wallaroo.monitoring.status_api import prometheus

        handle = self._handle
        body = prometheus.exposition(handle.plan, handle.status(), handle.meter.details())
        return Reply(HTTPStatus.OK, body, content_type=prometheus.CONTENT_TYPE_LATEST)

    def status(self, request: Request) -> Reply:
        return json_reply(queries.status_json(self._handle.status()))

    def graph(self, request: Request) -> Reply:
        return json_reply(graph_of(self._handle.plan))

    def details(self, request: Request) -> Reply:
        details = self._live.details(self._handle.status(), self._handle.meter.details())
        return json_reply(details)

    def errors(self, request: Request) -> Reply:
        return json_reply(self._live.errors(self._handle.meter.details()))

    def history(self, request: Request) -> Reply:
        span = request.parameters.get("span", SPANS[0].name)
        rows = self._handle.meter.history(span)
        if rows is None:
            names = ", ".join(span.name for span in SPANS)
            return error_reply(f"span={span} is none of {names}.", HTTPStatus.BAD_REQUEST)
        return json_reply({"span": span, "columns": COLUMNS, "rows": rows})

    def stream(self, request: Request) -> Reply:
        return Reply(HTTPStatus.OK, content_type="text/event-stream", stream=self._events())

    def _events(self) -> Iterator[bytes]:
        """Yield one message a second until the client leaves or the run ends."""
        while True:
            is_last = self._is_closed.is_set()
            message = self._live.message(self._handle.status(), self._handle.meter)
            yield b"data: " + message + b"\n\n"
            if is_last:
                return
            self._is_closed.wait(STREAM_EVERY_S)

    def query(self, request: Request) -> Reply:
        query = queries.query_of(request.path[1:])
        assert query is not None
        if query in queries.FROM_STATUS:
            return json_reply(queries.answer(query, self._handle.plan, self._handle.status()))
        limit = request.parameters.get("limit", str(queries.LIMIT_DEFAULT))
        return self._from_state(query, limit, {})

    def search(self, request: Request) -> Reply:
        wanted = {name: request.parameters.get(name, "") for name in ("step", "text")}
        return self._from_state(queries.SEARCH, request.parameters.get("limit", "50"), wanted)

    def state_object(self, request: Request) -> Reply:
        if "key" not in request.parameters:
            return error_reply("key= is missing", HTTPStatus.BAD_REQUEST)
        wanted = {name: request.parameters.get(name, "") for name in ("step", "key")}
        return self._from_state(queries.OBJECT, str(OBJECT_COMMITS_MAX), wanted)

    def _from_state(self, query: str, limit: str, wanted: dict[str, Any]) -> Reply:
        if not (
            limit.isascii()
            and limit.isdigit()
            and len(limit) <= len(str(queries.LIMIT_MAX))
            and 1 <= int(limit) <= queries.LIMIT_MAX
        ):
            what = (
                f"limit={limit} is not a number from 1 to {queries.LIMIT_MAX}. `wallaroo state "
                f"export` writes all entries."
            )
            return error_reply(what, HTTPStatus.BAD_REQUEST)
        try:
            found = self._entities.read(query, int(limit), wanted)
        except WallarooError as error:
            return error_reply(str(error), HTTPStatus.SERVICE_UNAVAILABLE)
        headers = {queries.TRUNCATED: "true"} if found.is_truncated else {}
        return Reply(HTTPStatus.OK, found.body, headers)
