"""The resident host with plain processes where Spark's workers would be: Spark takes no part
between the start and the end of its tasks, so all but that can be tested without it.
"""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace
from typing import Any

import pytest

from wallaroo.engine.report import TaskReport
from wallaroo.network.proved_connections import DriverEndpoint
from wallaroo.options import RunOptions
from wallaroo.runtime.placement import Member
from wallaroo.runtime.resident.worker import serve
from wallaroo.spark.resident import generations
from wallaroo.spark.resident.host import ResidentHost

TASKS = 2


class ProcessJob:
    """In place of a ``ResidentJob``; ``all`` has every one."""

    all: list[ProcessJob]
    error = None

    def __init__(self, context: Any, endpoint: DriverEndpoint, count: int, layout: None):
        start = multiprocessing.get_context("spawn").Process
        self.processes = [
            start(target=serve, args=(endpoint, index), daemon=True) for index in range(count)
        ]
        for process in self.processes:
            process.start()
        self.all.append(self)

    @property
    def is_over(self) -> bool:
        return not any(process.is_alive() for process in self.processes)

    def cancel(self) -> None:
        for process in self.processes:
            process.kill()

    def wait(self) -> None:
        for process in self.processes:
            process.join(400)
        self.cancel()


def resident_host(monkeypatch: pytest.MonkeyPatch, options: RunOptions) -> ResidentHost:
    """Return a host whose tasks are processes."""
    monkeypatch.setattr(ProcessJob, "all", [], raising=False)
    monkeypatch.setattr(generations, "ResidentJob", ProcessJob)
    context = SimpleNamespace(
        master="local[2]",
        defaultParallelism=TASKS,
        getConf=dict,
        _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False, conf=dict)),
    )
    session: Any = SimpleNamespace(sparkContext=context)
    host = ResidentHost("test", options, session)
    host._session.follow = lambda scratch: None  # type: ignore[method-assign]  # no log to read
    return host


class Hosts:
    """In place of a ``Cluster``: hosts of the cluster, which a test changes."""

    is_empty = False
    is_local = True
    newest: Hosts  # the one of the run under test

    def __init__(self, *arguments: Any):
        self.members = (Member("one", "one", TASKS),)
        Hosts.newest = self

    def tasks_max(self) -> int:
        return sum(member.cores for member in self.members)

    def replicas(self, layout: None) -> tuple[tuple[int, ...], ...]:
        """No copies."""
        return ()

    def layout(self, tasks: int) -> None:
        """Anywhere."""

    def named(self, reports: list[TaskReport]) -> list[TaskReport]:
        return reports

    def failure_on_non_member(self, reports: list[TaskReport]) -> str:
        return ""

    def poll(self) -> None:
        """They change by themselves."""

    def close(self) -> None:
        """Nothing is open."""
