"""The hosts of a run: its cluster's members and task placement.

``poll`` is called by the watch, many times a second; batches ask for ``tasks`` and ``layout``.

A host joins as follows: Spark has an executor there; a task is sent to it (its Python starts,
imports the application, sees the checkpoint); then its view is filled with the key groups that it
will own, while batches continue elsewhere; only then is it a member, and the next batch has a
layout with it.  A host that has left is not a member from the next batch on.  With a local master
there is nothing to place: ``layout`` is None.

A host that cannot take part (no checkpoint, no library, no folder for its files) is excluded, and
probed again at intervals.  So is a member that fails its probe after a batch failed there.
If Spark sends it a task nevertheless, the batch is rerun.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from py4j.protocol import Py4JError
from pyspark import SparkContext

from wallaroo.engine.blocks.keys import groups_of_task
from wallaroo.engine.report import TaskReport
from wallaroo.errors import PeerError, WallarooError
from wallaroo.monitoring.metrics.status import WorkerStatus
from wallaroo.processes.killed_workers import as_task, note_idle_deaths
from wallaroo.runtime.placement import Member, Replicas, replicas, spread, tasks_for
from wallaroo.runtime.rebalance import Move
from wallaroo.runtime.tasks.job import BatchJob, Deployment, worker_name
from wallaroo.spark.cluster.excluded_hosts import ExcludedHosts
from wallaroo.spark.cluster.joining_hosts import HostProbe, Prober, WarmUpResult, warm
from wallaroo.spark.cluster.layout import Layout, Layouts, located
from wallaroo.spark.cluster.membership import ExecutorHost, Membership, executors_of
from wallaroo.spark.session.shuffles import ShuffleCleaner
from wallaroo.spark.session.spark_errors import TASK_FAILED, reason_of

LOOK_S = 0.5  # between two polls of Spark's executors
SILENT_S = 5.0  # without any host, until it is logged
OTHERS_S = 10.0  # for more hosts, if those that came first cannot participate
# a run waits for them
NO_WORKERS = (
    "workers: Spark's master gives this application none now (a master that was started again "
    "without recovery mode does not know it: then run the same command again)"
)
_log = logging.getLogger("wallaroo.run")
WARMINGS = 2  # the second one catches up with the commits made during the first


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of a run's tasks."""

    is_local: bool  # one process on this host: nothing to place
    tasks: int | None = None  # per batch; None: as many as there are cores
    is_sticky: bool = True  # False: Spark places tasks as it likes (to compare)
    # whether tasks are resident, each with its own core, and exchange blocks without Spark
    are_resident: bool = False
    members_min: int = 1  # a start waits for this many hosts
    has_replicas: bool = False  # whether hosts keep copies of others' key groups


def _name(member: Member) -> str:
    return f"{member.worker} ({member.host})"


class Cluster:
    """The members and layouts of a run; see the module's docstring."""

    def __init__(
        self,
        context: SparkContext,
        deployment: Deployment,
        key_groups: int,
        place: Placement,
        cleaner: ShuffleCleaner,
        state_job: Callable[[], BatchJob],
    ):
        self._context = context
        self._key_groups = key_groups
        self._place = place
        self._state_job = state_job
        self._lock = threading.Lock()
        self._membership = Membership(key_groups)
        self._layouts = Layouts(cleaner)
        self._excluded = ExcludedHosts(context)
        self._prober = Prober(context, deployment)
        self._looked_at = 0.0
        self._is_started = False
        if place.is_local:
            cores = int(context.defaultParallelism)
            self._membership.members = (Member("localhost", worker_name(), cores),)

    # -- asked by batches

    @property
    def is_local(self) -> bool:
        """Return whether there is only one process, on this host."""
        return self._place.is_local

    @property
    def members(self) -> tuple[Member, ...]:
        """Return the hosts that currently participate."""
        return self._membership.members

    def tasks_max(self) -> int:
        """Return the most tasks of a batch: as requested, else cores; never above key groups."""
        return self._tasks_of(self._membership.members)

    def _tasks_of(self, members: Iterable[Member]) -> int:
        cores = sum(member.cores for member in members)
        tasks = self._place.tasks or cores
        if self._place.are_resident:
            tasks = min(tasks, cores)
        return max(1, min(tasks, self._key_groups))

    def tasks(self, requested: int) -> int:
        """Return how many tasks a batch gets if it asks for ``requested``."""
        if self._place.tasks:
            return self.tasks_max()
        return tasks_for(requested, self._membership.members, self.tasks_max())

    def layout(self, tasks: int) -> Layout | None:
        """Return the hosts that tasks prefer; None: any."""
        with self._lock:
            self._membership.moves.batch_begins()
            members = self._membership.members
            layout = self._layouts.get(tasks)
        if self.is_local or not self._place.is_sticky or not members:
            return None
        return layout or self._prepared(tasks, members)

    def _prepared(self, tasks: int, members: tuple[Member, ...]) -> Layout:
        """Return a new layout, created while cores are free; cached anchors stay in place."""
        layout = self._laid_out(tasks, members)
        self._prepare(layout)  # outside the lock: it waits if no host is left
        with self._lock:
            if self._membership.members == members:
                self._layouts.put(layout)
            else:
                self._layouts.retire(layout)  # good for this batch
        return layout

    def _prepare(self, layout: Layout) -> None:
        if not self._place.are_resident:
            layout.prepare()

    def replicas(self, layout: Layout | None) -> tuple[tuple[int, ...], ...]:
        """Return, by task, the key groups that its host should keep a copy of from now on."""
        groups: tuple[tuple[int, ...], ...] = ()
        with self._lock:
            membership = self._membership
            if self._place.has_replicas and layout is not None:
                groups = replicas(
                    layout.hosts,
                    self._key_groups,
                    membership.members,
                    self._tasks_of,
                    membership.ownership.copies,
                    self._state_job().committed,
                )
            membership.replicas = Replicas(groups)
        return groups

    def batch_done(
        self, job: BatchJob, reports: Iterable[TaskReport], seconds: float
    ) -> Move | None:
        """Note a batch's hosts; describe what moved once a change of the cluster is over."""
        reports = list(reports)
        for report in reports:
            note_idle_deaths(report.worker, report.idle_deaths)
        with self._lock:
            workers = self._membership.ran(job, reports)
            layout = self._layouts.get(job.tasks)
            is_as_preferred = layout is None or self._membership.are_at(layout.hosts, workers)
            if is_as_preferred:
                self._membership.settle()
            self._layouts.batch_done(job.tasks, is_as_preferred)
            cold = int(sum(report.notes.get("cold_bytes", 0.0) for report in reports))
            return self._membership.moved(cold, seconds)

    def status(self) -> tuple[WorkerStatus, ...]:
        """Return the members as ``wallaroo status`` shows them."""
        with self._lock:
            return self._membership.status()

    def names(self, hosts: Iterable[str]) -> str:
        """Return the workers on these hosts as messages name them; by host, if they have left."""
        names = {member.host: _name(member) for member in self.members}
        return ", ".join(names.get(host, host) for host in sorted(hosts))

    # -- driven by the watch

    def start(self, is_waiting: Callable[[], bool]) -> None:
        """Wait for as many hosts as the start needs, or ``is_waiting`` to end.

        Raises PeerError if the only hosts cannot join.
        """
        if self.is_local:
            return
        errors = self._asked(self._first_hosts(is_waiting))
        until = time.monotonic() + OTHERS_S
        logged = -1
        while is_waiting() and (joined := len(self.members)) < self._place.members_min:
            if errors and self.is_empty and time.monotonic() > until:
                raise errors[0]
            if not self.is_empty and joined != logged:
                logged = joined
                _log.warning(
                    f"waiting for workers: {joined} of at least {self._place.members_min} "
                    f"(--min-workers) {'has' if joined == 1 else 'have'} joined"
                )
            time.sleep(LOOK_S)
            errors += self._asked(self._others(self.look_now()))
        self._is_started = True
        self._membership.started()

    def _asked(self, hosts: list[ExecutorHost]) -> list[WallarooError]:
        """Let hosts join; return why some cannot."""
        joined = [self._joined(host, answer) for host, answer in self._prober.ask_all(hosts)]
        return [error for error in joined if error is not None]

    def _first_hosts(self, is_waiting: Callable[[], bool]) -> list[ExecutorHost]:
        """Return the available hosts, once no more arrive."""
        report_at = time.monotonic() + SILENT_S
        seen = executors_of(self._context)
        while is_waiting():
            if not seen and time.monotonic() > report_at:
                report_at = float("inf")
                _log.warning(
                    "waiting for workers: Spark's master has given this application none yet"
                )
            time.sleep(LOOK_S)
            before = seen
            seen = executors_of(self._context)
            if seen and seen == before:
                break
        return list(seen.values())

    def poll(self) -> None:
        """Detect hosts that have arrived or gone."""
        if self.is_local or time.monotonic() - self._looked_at < LOOK_S:
            return
        seen = self.look_now()
        if self._prober.is_busy:
            return
        joining = self._others(seen)
        if joining:
            self._prober.join(partial(self._join, joining))

    def look_now(self) -> dict[str, ExecutorHost]:
        """Remove members whose executors are gone; return the available hosts."""
        seen = executors_of(self._context)
        self._looked_at = time.monotonic()
        known = self._membership.seen
        gone = [host for host, executors in known.items() if seen.get(host) != executors]
        if gone:
            for member in self._membership.members:
                if member.host in gone:
                    _log.warning("%s has left: its Spark executor has ended", member.worker)
            with self._lock:
                self._membership.drop(gone)
                self._layouts.retire_all()
        self._excluded.keep(seen)
        return seen

    def named(self, reports: Iterable[TaskReport]) -> list[TaskReport]:
        """Return reports with the names of the members; two workers may have the same one."""
        names = {member.host: member.worker for member in self.members}
        named = ((report, names.get(report.host, report.worker)) for report in reports)
        return [
            report if report.worker == name else replace(report, worker=name)
            for report, name in named
        ]

    def failure_on_non_member(self, reports: Iterable[TaskReport]) -> str:
        """Return the error of a task on a host that is not a member, or ""."""
        if self.is_local:
            return ""
        members = self._membership.workers
        failed = (
            f"{report.worker}: {report.error}"
            for report in reports
            if report.error and report.worker not in members
        )
        return next(failed, "")

    def ask_others(self) -> None:
        """Let other hosts join, or exclude them.

        Spark gave one of them a task that failed there.  Anchors of tasks may have been put there
        too: layouts are replaced.
        """
        others = self._others(self.look_now())
        self._asked(others)
        with self._lock:
            self._layouts.retire_all()

    def exclude_unfit(self) -> WallarooError | None:
        """Probe the members; exclude those that fail, and return why the first of them does."""
        failures: dict[str, WallarooError] = {}
        with self._excluded.patient():
            for seen, answer in self._prober.ask_all(list(self._membership.seen.values())):
                try:
                    answer()
                except WallarooError as known:
                    failures[seen.host] = known
                except TASK_FAILED as failed:
                    failures[seen.host] = PeerError(reason_of(failed))
        self.look_now()  # which drops those that have left meanwhile
        errors = [
            self._exclude(member.host, failures[member.host], _name(member))
            for member in self.members
            if member.host in failures
        ]
        with self._lock:
            self._membership.drop(failures)
            self._layouts.retire_all()
        return errors[0] if errors else None

    def _others(self, seen: Mapping[str, ExecutorHost]) -> list[ExecutorHost]:
        """Return the hosts that are not members and may be asked."""
        return [
            host
            for name, host in seen.items()
            if name not in self._membership.seen and self._excluded.may_join(name)
        ]

    @property
    def is_empty(self) -> bool:
        """Return whether there is no host to run tasks."""
        return not self._membership.members

    def close(self) -> None:
        """Stop looking for joining hosts."""
        self._prober.close()

    # -- joining, in a thread of its own

    def _join(self, hosts: list[ExecutorHost]) -> None:
        for seen in hosts:
            try:
                self._joined(seen, partial(self._prober.ask, seen))
            except Py4JError:
                return  # the JVM has ended, which the run's own thread reports

    def _joined(self, seen: ExecutorHost, answer: Callable[[], HostProbe]) -> WallarooError | None:
        """Let a host join; log and return why it cannot."""
        try:
            self._admit(seen, answer())
        except WallarooError as known:
            error = known
        except TASK_FAILED as failed:
            error = PeerError(reason_of(failed))
        else:
            return None
        return self._exclude(seen.host, error, f"worker {seen.host}")

    def _exclude(self, host: str, why: WallarooError, name: str) -> WallarooError:
        error = PeerError(f"{name} cannot take part: {why}")
        if self._excluded.add(host, str(why)):
            _log.warning(str(error))
        return error

    def _admit(self, seen: ExecutorHost, answer: HostProbe) -> None:
        """Fill the view of a host that is not among the first ones; make it a member."""
        member = self._membership.named(seen, answer.worker)
        members = self._membership.having(member)
        layout: Layout | None = None
        if self._place.is_sticky and self._is_started:
            layout = self._laid_out(self._tasks_of(members), members)
            self._prepare(layout)
            self._warm(layout, member)
        with self._lock:
            self._membership.add(member, seen)
            self._layouts.retire_all()
            if layout is not None and self._membership.members == members:  # none left meanwhile
                self._layouts.put(layout)
        self._excluded.drop(seen.host)

    def _laid_out(self, tasks: int, members: tuple[Member, ...]) -> Layout:
        batch = self._state_job().committed + 1
        copies = self._membership.ownership.copies
        return Layout(self._context, spread(tasks, self._key_groups, members, copies, batch))

    def _warm(self, layout: Layout, member: Member) -> None:
        """Bring a joining host's view up to date for its key groups while batches run."""
        tasks = len(layout.hosts)
        for _ in range(WARMINGS):
            job = self._state_job()
            if job.state_level < 0 or job.committed < 0:
                return
            own_tasks = tuple(task for task, host in enumerate(layout.hosts) if host == member.host)
            rows = located(self._context, tuple(layout.hosts[task] for task in own_tasks))
            found: list[WarmUpResult] = rows.mapPartitionsWithIndex(
                partial(as_task, partial(warm, job, tasks, own_tasks))
            ).collect()
            with self._lock:
                for warmed in found:
                    if warmed.error is not None:
                        # such as a file that was removed with its commit meanwhile; a batch will
                        # report a permanent fault
                        continue
                    groups = range(*groups_of_task(warmed.task, tasks, self._key_groups))
                    self._membership.ownership.warmed(member.worker, groups, job.committed)
                    self._membership.moves.warmed(warmed.bytes_read)
