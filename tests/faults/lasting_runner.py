"""Tasks whose state stays open from batch to batch, as at low latency, one after the other in this
process; the thread that brings a view up to date is a call, so that the same points are passed
every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from wallaroo.engine.keys import Key, groups_of_task
from wallaroo.engine.report import TaskReport
from wallaroo.plan.model import Plan
from wallaroo.runtime.feeding import run_levels
from wallaroo.runtime.in_process import InProcessRunner
from wallaroo.runtime.job import BatchJob, plan_of
from wallaroo.runtime.resident.lasting_state import LastingState
from wallaroo.runtime.resident.refreshing import Background, Refreshed, Views
from wallaroo.runtime.task import run_level
from wallaroo.state.applying import CatchUp
from wallaroo.state.commits import CommitLog
from wallaroo.state.history import History
from wallaroo.state.task_state import TaskState


class CalledRefresh:
    """In place of a ``Refresh``."""

    def __init__(self, work: Callable[[], Refreshed], background: Background):
        self._done = work()

    def result(self) -> Refreshed:
        return self._done

    def close(self) -> None:
        self._done.state.close()


class LastingRunner(InProcessRunner):
    """A TaskRunner with a LastingState for each task."""

    def __init__(self, tasks: int):
        super().__init__(tasks)
        self._states: dict[int, LastingState] = {}

    def run_batch(self, job: BatchJob) -> list[TaskReport]:
        reports: list[TaskReport] = []
        plan = plan_of(job.deployment)
        for task in range(job.tasks):
            if task not in self._states:
                self._states[task] = self._state(job, plan, task)
            self._states[task].begin(job.batch, job.version)

        def opened(_: BatchJob, __: Plan, task: int, ___: int) -> tuple[LastingState, CatchUp]:
            return self._states[task], CatchUp()

        def run(level: int, task: int, received: list[Any]) -> Iterator[tuple[int, Any]]:
            for passed in run_level(job, level, task, received, opened):
                if isinstance(passed, TaskReport):
                    reports.append(passed)
                else:
                    yield passed[0], passed

        run_levels([len(job.pieces), *(job.tasks for _ in range(1, job.levels))], run)
        return reports

    def _state(self, job: BatchJob, plan: Plan, task: int) -> LastingState:
        deployment = job.deployment
        located: dict[Key, tuple[int, bytes]] = {}

        def make() -> TaskState:
            return TaskState(
                deployment.view_folder(),
                plan.key_groups,
                groups_of_task(task, job.tasks, plan.key_groups),
                job.steps,
                deployment.checkpoint_id,
                located,
            )

        def read_log(committed: int) -> History:
            storage = deployment.storage
            return History(storage, (), committed, CommitLog(storage).read)

        storage = deployment.storage
        tuning = deployment.tuning
        views = Views(plan.key_groups, storage, make, read_log, tuning, CalledRefresh)
        return LastingState(views)
