"""Resident task, which runs the driver's epochs.

Where it runs: worker.  The task receives epochs, exchanges blocks with the other tasks, and
reports.  It ends when the driver or another task has ended.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import select
import socket
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from wallaroo.dataflow.plan.model import Plan
from wallaroo.engine.blocks.blocks import Marker
from wallaroo.engine.blocks.keys import Key, groups_of_task
from wallaroo.engine.report import TaskReport
from wallaroo.errors import WallarooError
from wallaroo.instrumentation.tracing import trace_point
from wallaroo.network.proved_connections import (
    CONNECT_S,
    DriverEndpoint,
    TaskListener,
    beside,
    connect,
)
from wallaroo.runtime.resident.framing import (
    AWAITING,
    LOST,
    Ahead,
    Epoch,
    Hello,
    Mesh,
    Welcome,
    receive,
    send,
    unpacked_for_task,
)
from wallaroo.runtime.resident.replica import REPLICA_NOTE, Replica
from wallaroo.runtime.resident.resident_state import ResidentState
from wallaroo.runtime.resident.view_refresh import Views
from wallaroo.runtime.tasks.garbage import Garbage
from wallaroo.runtime.tasks.job import BatchJob, plan_of
from wallaroo.runtime.tasks.staging import drop_staged
from wallaroo.runtime.tasks.task import (
    OpenedState,
    Record,
    failed_report,
    run_level,
    unexpected,
)
from wallaroo.state.log.commits import CommitLog
from wallaroo.state.log.history import History, Version
from wallaroo.state.task_state import TaskState
from wallaroo.state.views.view_updates import CatchUp

Given = list[list[Record]] | None  # by task of the next level; None: there was nothing to do


class RunAhead(NamedTuple):
    """Results of level 0 of a planned epoch.

    They are blocks, or the reports of the only level.
    """

    planned: Ahead
    given: Given = None
    reports: tuple[TaskReport, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Return whether all of the input was processed, without an error."""
        reports = [*self.reports]
        for _, record in self.given[0] if self.given else ():
            if isinstance(record, Marker):
                reports += record.reports
        return not any(report.error is not None or report.cut_short for report in reports)


def serve(endpoint: DriverEndpoint, index: int) -> None:
    """Run task ``index`` of the run whose driver listens at ``endpoint``."""
    with contextlib.suppress(EOFError, OSError):  # the driver or a peer has ended: so does this one
        driver = connect(endpoint)
        with driver:
            with beside(endpoint, driver, index) as listener:
                send(driver, pickle.dumps(Hello(index, listener.address)))
                welcome: Welcome = pickle.loads(receive(driver))
                listener.secure(welcome.pem)
                awaiting = partial(send, driver, pickle.dumps(AWAITING))
                mesh = Mesh(connected_tasks(welcome, index, listener), awaiting)
            common = replace(welcome.job, keeps_own=True)
            replica = welcome.replicas[index] if welcome.replicas else ()
            task = ResidentTask(index, common, mesh, replica)
            try:
                _serve(driver, task)
            finally:
                task.close()


def report_loss(endpoint: DriverEndpoint, index: int) -> None:
    """Report that task ``index`` died before connecting, so that the driver does not wait."""
    # if this fails, the driver already knows that the generation is over
    with contextlib.suppress(EOFError, OSError), connect(endpoint) as driver:
        send(driver, pickle.dumps(Hello(index, LOST)))


def connected_tasks(
    welcome: Welcome, index: int, listener: TaskListener
) -> dict[int, socket.socket]:
    """Return a connection to each other task; later tasks connect to earlier ones."""
    peers: dict[int, socket.socket] = {}
    listener.begin()
    for peer in range(index):
        peers[peer] = connect(replace(listener.endpoint, address=welcome.addresses[peer]))
        send(peers[peer], b"%d" % index)
    while len(peers) < len(welcome.addresses) - 1:
        connection = listener.next(CONNECT_S)
        peers[int(receive(connection))] = connection
    return peers


def _serve(driver: socket.socket, task: ResidentTask) -> None:
    send(driver, pickle.dumps(()))  # ready
    garbage = Garbage()
    arriving = select.poll()
    arriving.register(driver, select.POLLIN)
    while True:
        idle_s = garbage.idle_s
        if not arriving.poll(None if idle_s is None else idle_s * 1e3):
            garbage.collect()
        message = unpacked_for_task(receive(driver), task.index)
        trace_point("task.received")
        if isinstance(message, Ahead):
            task.run_ahead(message)
            trace_point("task.ahead")
            continue
        send(driver, pickle.dumps(task.run(message)))
        trace_point("task.reported")
        garbage.after_batch()


class ResidentTask:
    """A task that runs its part of each epoch.

    ``common`` is a batch without input.

    ``replica`` are other hosts' key groups of which it keeps a copy.
    """

    def __init__(self, index: int, common: BatchJob, mesh: Mesh, replica: Sequence[int] = ()):
        self.index = index
        self._common = common
        self._mesh = mesh
        self._state: ResidentState | None = None
        self._replica: Replica | None = None
        self._replica_groups = replica
        self._caught_up = CatchUp()
        self._located: dict[Key, tuple[int, bytes]] = {}
        self._ahead: RunAhead | None = None

    def run_ahead(self, ahead: Ahead) -> None:
        """Run level 0 of the planned epoch; its results are dropped for any other."""
        job = ahead.job(self._common)
        if job.levels == 1:
            self._ahead = RunAhead(ahead, reports=self._reports(job, ()))
        else:
            self._ahead = RunAhead(ahead, self._given(job, 0, ()))
        if not self._ahead.is_whole:  # the cause may have passed when the epoch comes: it runs then
            self._drop_ahead()

    def run(self, epoch: Epoch) -> tuple[TaskReport, ...]:
        """Run all levels; return this task's reports.  Raises EOFError or OSError."""
        job = epoch.job(self._common)
        error = self._begun(job, epoch.version)
        trace_point("task.begun")
        if error is not None:
            self._mesh.close()  # the others cannot continue without this task
            return (error,)
        received: list[Record] = []
        ahead = self._run_ahead_of(epoch)
        if ahead is not None and job.levels == 1:
            return ahead.reports
        for level in range(job.levels - 1):
            given = ahead.given if ahead and level == 0 else self._given(job, level, received)
            trace_point("task.given")
            received = self._exchanged(job, level, given)
            trace_point("task.exchanged")
        reports = self._reports(job, received)
        self._note_replica(reports)
        trace_point("task.ran")
        return reports

    def _reports(self, job: BatchJob, received: Iterable[Record]) -> tuple[TaskReport, ...]:
        """Run the last level; return its reports, none if it has no part here."""
        last = job.levels - 1
        if self.index >= job.widths[last]:
            return ()
        return tuple(run_level(job, last, self.index, received, self._opened, math.inf))

    def _note_replica(self, reports: Iterable[TaskReport]) -> None:
        held = self._replica.newly_held() if self._replica is not None else None
        if held is not None:
            for report in reports:
                report.notes[REPLICA_NOTE] = float(held)

    def _run_ahead_of(self, epoch: Epoch) -> RunAhead | None:
        """Return, once, the results run ahead for this epoch, or None; drop those of another."""
        ran = self._ahead
        if ran is None or not ran.planned.is_of(epoch):
            self._drop_ahead()
            return None
        self._ahead = None
        return ran

    def _drop_ahead(self) -> None:
        if self._ahead is not None:
            drop_staged(self._common.deployment, self._ahead.reports)
            self._ahead = None

    def _begun(self, job: BatchJob, committed: Version) -> TaskReport | None:
        """Bring the state to the commit that the epoch follows; return an error as a report."""
        try:
            plan = plan_of(job.deployment)
            if job.state_level >= 0:
                state = self._lasting(plan)
                self._caught_up = state.begin(job.batch, committed, job.snapshots_due or ())
                if self._replica is not None:
                    self._replica.follow(committed.batch)
        except WallarooError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001  # the task's error boundary
            return self._failed(unexpected(error))
        return None

    def _failed(self, error: WallarooError) -> TaskReport:
        return failed_report(0, self.index, error)

    def _lasting(self, plan: Plan) -> ResidentState:
        if self._state is None:
            deployment = self._common.deployment
            views = Views(
                deployment.storage, lambda: self._made(plan), self._log_at, deployment.tuning
            )
            self._state = ResidentState(views)
            if self._replica_groups:
                self._replica = Replica(
                    deployment.view_folder(),
                    plan.key_groups,
                    self._replica_groups,
                    deployment.storage,
                    deployment.tuning.refresh_s,
                )
        return self._state

    def _made(self, plan: Plan) -> TaskState:
        deployment = self._common.deployment
        return TaskState(
            deployment.view_folder(),
            plan.key_groups,
            groups_of_task(self.index, self._common.tasks, plan.key_groups),
            self._common.steps,
            deployment.checkpoint_id,
            self._located,
        )

    def _log_at(self, committed: int) -> History:
        storage = self._common.deployment.storage
        return History(storage, (), committed, CommitLog(storage).read)

    def _opened(self, job: BatchJob, plan: Plan, task: int, tasks: int) -> OpenedState:
        assert self._state is not None
        return OpenedState(self._state, self._caught_up, self._state.take_snapshots)

    def _given(self, job: BatchJob, level: int, received: Iterable[Record]) -> Given:
        """Run a level; return its records by next task, None if it has no part here."""
        if self.index >= job.widths[level]:
            return None
        given: list[list[Record]] = [[] for _ in range(job.tasks)]
        for record in run_level(job, level, self.index, received, self._opened, math.inf):
            given[record[0]].append(record)
        return given

    def _exchanged(self, job: BatchJob, level: int, given: Given) -> list[Record]:
        outgoing = {
            peer: pickle.dumps(records, 5)
            for peer, records in enumerate(given or ())
            if peer != self.index
        }
        producers = [peer for peer in range(job.widths[level]) if peer != self.index]
        arrived = self._mesh.exchange(outgoing, producers)
        records = list(given[self.index]) if given else []
        for peer in producers:
            records.extend(pickle.loads(arrived[peer]))
        return records

    def close(self) -> None:
        """Release the state and the connections."""
        self._drop_ahead()
        self._mesh.close()
        if self._replica is not None:
            self._replica.close()
        if self._state is not None:
            self._state.release()
