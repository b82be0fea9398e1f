"""The in-process host, whose tasks run in the driver's own process.

Where it runs: driver.  The tasks of a batch run one after the other.  Spool, state, sinks and
commit protocol are the real ones; only Spark is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from wallaroo.durable.disk_errors import disk_error_of
from wallaroo.engine.report import TaskReport
from wallaroo.errors import InternalError, WallarooError
from wallaroo.runtime.batches import Batches, WarmUp
from wallaroo.runtime.feeding import run_levels
from wallaroo.runtime.host import Enter, OnThisMachine, Site
from wallaroo.runtime.intake import Admission
from wallaroo.runtime.job import BatchJob
from wallaroo.runtime.task import run_level
from wallaroo.runtime.trigger import Trigger


class InProcessRunner(OnThisMachine):
    """A TaskRunner with a fixed number of tasks."""

    def __init__(self, tasks: int):
        self._tasks = tasks

    @property
    def tasks_max(self) -> int:
        return self._tasks

    def tasks(self, requested: int) -> int:
        return self._tasks

    def readers(self, requested: int) -> int:
        return self._tasks

    def run_batch(self, job: BatchJob) -> list[TaskReport]:
        reports: list[TaskReport] = []

        def run(level: int, task: int, received: list[Any]) -> Iterator[tuple[int, Any]]:
            for passed in run_level(job, level, task, received):
                if isinstance(passed, TaskReport):
                    reports.append(passed)
                else:
                    yield passed[0], passed

        run_levels([len(job.pieces), *(job.tasks for _ in range(1, job.levels))], run)
        return reports


class InProcessHost(InProcessRunner):
    """A Host (see ``wallaroo.runtime.host``) in the driver's process.

    Its thread plans one batch after the other, and pauses for ``pause_s`` after each.
    """

    def __init__(self, tasks: int = 1, pause_s: float = 0.0):
        super().__init__(tasks)
        self._pause_s = pause_s
        self._thread: threading.Thread | None = None
        self._batches: Batches | None = None
        self._trigger = Trigger()
        self._failure: BaseException | None = None

    @property
    def waiting_for(self) -> str:
        return self._trigger.waiting_for

    def open(self, site: Site, enter: Enter) -> None:
        self._trigger.open(site.wake)

    def start(self, batches: Batches, enter: Enter) -> WarmUp:
        enter("warming up")
        warm_up = batches.warm_up()
        self._batches = batches
        self._thread = threading.Thread(target=self._work, name="wallaroo-batches", daemon=True)
        self._thread.start()
        return warm_up

    def _work(self) -> None:
        assert self._batches is not None
        try:
            while (ends := self._trigger.next(self._batches)) is not None:
                self._batches.run(ends)
                self._trigger.pause(self._pause_s)
        except BaseException as error:  # noqa: BLE001  # raised by the thread that polls
            self._failure = error

    def poll(self) -> None:
        if isinstance(self._failure, WallarooError):
            raise self._failure
        if self._failure is not None:
            raise disk_error_of(self._failure) or InternalError(
                f"a batch failed in a way that this program does not expect: {self._failure!r}"
            ) from self._failure

    def admit(self, admission: Admission) -> None:
        self._trigger.admit(admission)

    def stuck(self, batch: int) -> tuple[str, ...]:
        return ()

    def finish(self, seconds: float) -> bool:
        self._trigger.end()
        if self._thread is not None:
            self._thread.join(seconds)
            self.poll()
        return self._thread is None or not self._thread.is_alive()

    def interrupt(self) -> None:
        self._trigger.end()

    def close(self) -> None:
        self._trigger.close()
