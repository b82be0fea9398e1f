"""Tasks whose state stays open from batch to batch, as at low latency, one after the other in this
process; the thread that brings a view up to date is a call, so that the same points are passed
every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

from wallaroo.dataflow.plan.model import Plan
from wallaroo.engine.blocks.keys import Key, groups_of_task
from wallaroo.engine.report import TaskReport
from wallaroo.runtime.in_process import InProcessRunner
from wallaroo.runtime.resident.resident_state import ResidentState
from wallaroo.runtime.resident.view_refresh import Views
from wallaroo.runtime.tasks.job import BatchJob, plan_of
from wallaroo.runtime.tasks.level_driver import run_levels
from wallaroo.runtime.tasks.task import OpenedState, run_level
from wallaroo.state.log.commits import CommitLog
from wallaroo.state.log.history import History
from wallaroo.state.task_state import TaskState
from wallaroo.state.views.view_updates import CatchUp


class CallingExecutor(Executor):
    """An executor without a thread: work is done when it is submitted."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(work(*args, **kwargs))
        return future


class LastingRunner(InProcessRunner):
    """A TaskRunner with a LastingState for each task."""

    def __init__(self, tasks: int):
        super().__init__(tasks)
        self._states: dict[int, ResidentState] = {}

    def run_batch(self, job: BatchJob) -> list[TaskReport]:
        reports: list[TaskReport] = []
        plan = plan_of(job.deployment)
        for task in range(job.tasks):
            if task not in self._states:
                self._states[task] = self._state(job, plan, task)
            self._states[task].begin(job.batch, job.version, job.snapshots_due or ())

        def opened(_: BatchJob, __: Plan, task: int, ___: int) -> OpenedState:
            state = self._states[task]
            return OpenedState(state, CatchUp(), state.take_snapshots)

        def run(level: int, task: int, received: list[Any]) -> Iterator[tuple[int, Any]]:
            for passed in run_level(job, level, task, received, opened):
                if isinstance(passed, TaskReport):
                    reports.append(passed)
                else:
                    yield passed[0], passed

        run_levels([len(job.pieces), *(job.tasks for _ in range(1, job.levels))], run)
        return reports

    def _state(self, job: BatchJob, plan: Plan, task: int) -> ResidentState:
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
        views = Views(storage, make, read_log, tuning, CallingExecutor())
        return ResidentState(views)
