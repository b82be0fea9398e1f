"""A run to ask, without Spark: a real plan, a real checkpoint, a status with two workers."""

from __future__ import annotations

import http.client
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.cli.run.fakes import STATUS
from wallaroo.cli.application.loading import load_application
from wallaroo.dataflow.plan.model import Plan
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.status import ErrorCount, RunStatus, WorkerStatus
from wallaroo.monitoring.status_api.discovery import running

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
WORD_COUNT = str(EXAMPLES / "word_count" / "word_count.py")
COUNTER = "count word"  # its state step
WORKERS = (
    WorkerStatus("worker-1", "127.0.0.2", 1, 3, tuple(range(96))),
    WorkerStatus("worker-2", "127.0.0.3", 1, 1, tuple(range(96, 128))),
)
MOVED = "key groups moved: 32 of 128, state moved: 31 MB, pause 0.4 s"
RUNNING = replace(
    STATUS,
    application="Word Count",
    tasks=2,
    workers=WORKERS,
    moved=MOVED,
    errors=(ErrorCount("split into words", 3, 0, "x"),),
)


def word_count() -> Plan:
    """The plan of the example, as ``wallaroo run`` makes it."""
    return load_application(
        WORD_COUNT, ["--in", "Lines@127.0.0.1:7010", "--out", "127.0.0.1:7002"]
    ).plan


class FakeRun:
    """What a server asks of a run."""

    def __init__(self, plan: Plan, root: Path, status: RunStatus = RUNNING):
        self.plan = plan
        self.root = root
        self.now = status
        self.meter = RunMeter(plan.application, status.started_at)

    def status(self) -> RunStatus:
        return self.now


def authorization(address: tuple[str, int]) -> dict[str, str]:
    """Return what a user's own client sends: the token is in the user's private folder."""
    tokens = [record.token for record in running() if record.address == address]
    return {"Authorization": f"Bearer {tokens[0]}"} if tokens else {}


def get(
    address: tuple[str, int],
    path: str,
    *,
    method: str = "GET",
    host: str | None = None,
    token: str | None = None,
) -> tuple[int, Any, dict[str, str]]:
    """Ask over a real connection, as its user does unless a token is given; return code, what the
    JSON says, and headers.
    """
    connection = http.client.HTTPConnection(*address, timeout=400)
    try:
        headers = {"Host": host} if host else {}
        if token is None:
            headers |= authorization(address)
        elif token:
            headers["Authorization"] = f"Bearer {token}"
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        body = reply.read()
        return reply.status, json.loads(body) if body else None, dict(reply.headers)
    finally:
        connection.close()
