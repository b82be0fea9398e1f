"""The in-process host, whose tasks run in the driver's own process.

The tasks of a batch run one by one. Spool, state, sinks and commit protocol are the real ones; only
Spark is missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from wallaroo.engine.report import TaskReport
from wallaroo.runtime.batch.admission import Admission, Ends
from wallaroo.runtime.batch.batch_loop import BatchLoop
from wallaroo.runtime.batch.batches import Batches, WarmUp
from wallaroo.runtime.batch.trigger import Trigger
from wallaroo.runtime.host import Enter, OnThisMachine, RunFolders
from wallaroo.runtime.tasks.garbage import Garbage
from wallaroo.runtime.tasks.job import BatchJob
from wallaroo.runtime.tasks.level_driver import run_levels
from wallaroo.runtime.tasks.task import run_level
from wallaroo.state.views.environments import release_environments


class InProcessRunner(OnThisMachine):
    """A TaskRunner with a fixed number of tasks."""

    def __init__(self, tasks: int):
        self._tasks = tasks
        self._view: Path | None = None
        self._garbage = Garbage(freezes=False)  # the run may share the process

    @property
    def tasks_max(self) -> int:
        return self._tasks

    def tasks(self, requested: int) -> int:
        return self._tasks

    def readers(self, requested: int) -> int:
        return self._tasks

    def run_batch(self, job: BatchJob) -> list[TaskReport]:
        reports: list[TaskReport] = []
        job = replace(job, keeps_own=True)
        self._view = job.deployment.view_folder()

        def run(level: int, task: int, received: list[Any]) -> Iterator[tuple[int, Any]]:
            for passed in run_level(job, level, task, received, collect_after_ms=math.inf):
                if isinstance(passed, TaskReport):
                    reports.append(passed)
                else:
                    yield passed[0], passed

        run_levels(job.widths, run)
        self._garbage.after_batch()
        return reports


class InProcessHost(InProcessRunner):
    """Host in the driver's process: one batch thread, ``pause_s`` after each batch."""

    def __init__(self, tasks: int = 1, pause_s: float = 0.0):
        super().__init__(tasks)
        self._pause_s = pause_s
        self._trigger = Trigger()
        self._loop: BatchLoop | None = None

    @property
    def waiting_for(self) -> str:
        return self._trigger.waiting_for

    def open(self, site: RunFolders, enter: Enter) -> None:
        self._trigger.open(site.wake)

    def start(self, batches: Batches, enter: Enter) -> WarmUp:
        enter("warming up")
        warm_up = batches.warm_up()

        def run(ends: Ends) -> None:
            batches.run(ends)
            self._trigger.pause(self._pause_s)

        self._loop = BatchLoop(self._trigger, batches, run)
        self._loop.start("wallaroo-batches")
        return warm_up

    def poll(self) -> None:
        if self._loop is not None:
            self._loop.poll()

    def admit(self, admission: Admission) -> None:
        self._trigger.admit(admission)

    def stuck(self, batch: int) -> tuple[str, ...]:
        return ()

    def finish(self, seconds: float) -> bool:
        return self._loop is None or self._loop.finish(seconds)

    def interrupt(self) -> None:
        self._trigger.end()

    def close(self) -> None:
        self._trigger.close()
        if self._view is not None:
            release_environments(self._view)
