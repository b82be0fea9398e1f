"""Reports of the Master and the Workers at their web pages' ``/json/``.

Asking changes nothing.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from wallaroo.spark.local_cluster.hosts import MASTER_HOST
from wallaroo.spark.local_cluster.secrets import bearer

ANSWER_S = 15.0  # a JVM on a busy machine
# Spark's terms
ALIVE = "ALIVE"
DECOMMISSIONED = "DECOMMISSIONED"


@dataclass(frozen=True, slots=True)
class Registered:
    """A worker in the Master's report."""

    name: str
    # Spark's term: ALIVE, DECOMMISSIONED, DEAD, UNKNOWN (until it answers a restarted Master)
    state: str
    page: str  # the address of its own web page


@dataclass(frozen=True, slots=True)
class MasterView:
    """The Master's report."""

    state: str  # Spark's term: ALIVE, RECOVERING
    workers: tuple[Registered, ...]
    applications: tuple[str, ...]  # names of those that run or wait for workers

    def worker(self, name: str) -> Registered | None:
        """Return the worker of that name, the living one if several, or None."""
        known = [worker for worker in self.workers if worker.name == name]
        return next(
            (worker for worker in known if worker.state == ALIVE), known[-1] if known else None
        )


@dataclass(frozen=True, slots=True)
class Executor:
    """An executor that runs on a worker."""

    application: str
    memory_mb: int  # its heap


def ask_master(ui_port: int, host: str = MASTER_HOST, secret: str = "") -> MasterView | None:
    """Return the Master's report; None if it does not answer (yet)."""
    answer = _get(host, ui_port, secret)
    if answer is None:
        return None
    workers = tuple(
        Registered(worker["id"].split(".", 1)[0], worker["state"], worker["webuiaddress"])
        for worker in answer["workers"]
    )
    return MasterView(
        answer["status"],
        workers,
        tuple(application["name"] for application in answer["activeapps"]),
    )


def ask_worker(page: str, secret: str = "") -> tuple[Executor, ...] | None:
    """Return a worker's executors; None if it does not answer."""
    address = urlsplit(page)
    answer = _get(address.hostname or MASTER_HOST, address.port or 0, secret)
    return None if answer is None else tuple(_executors(answer))


def _executors(answer: dict[str, Any]) -> Iterator[Executor]:
    for executor in answer["executors"]:
        yield Executor(executor["appdesc"]["name"], executor["memory"])


def _get(host: str, port: int, secret: str) -> dict[str, Any] | None:
    """Return a page's JSON, never through a proxy; None if it is not JSON yet."""
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
    try:
        connection.request("GET", "/json/", headers=bearer(secret))
        answer = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return answer if isinstance(answer, dict) else None
