"""The resident host with plain processes where Spark's workers would be: Spark takes no part
between the start and the end of its tasks, so all but that can be tested without it.
"""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace
from typing import Any

import pytest

from wallaroo.options import RunOptions
from wallaroo.runtime.resident.worker import serve
from wallaroo.spark.resident import generations
from wallaroo.spark.resident.host import ResidentHost

TASKS = 2


class ProcessJob:
    """In place of a ``ResidentJob``; ``all`` has every one."""

    all: list[ProcessJob]

    def __init__(self, context: Any, address: str, secret: bytes, count: int):
        start = multiprocessing.get_context("spawn").Process
        self.processes = [
            start(target=serve, args=(address, secret, index), daemon=True)
            for index in range(count)
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
            process.join(180)
        self.cancel()


def resident_host(monkeypatch: pytest.MonkeyPatch, options: RunOptions) -> ResidentHost:
    """Return a host whose tasks are processes."""
    monkeypatch.setattr(ProcessJob, "all", [], raising=False)
    monkeypatch.setattr(generations, "ResidentJob", ProcessJob)
    context = SimpleNamespace(
        master="local[2]",
        defaultParallelism=TASKS,
        _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False)),
    )
    session: Any = SimpleNamespace(sparkContext=context)
    return ResidentHost("test", options, session)
