"""The cluster's members, their work on key groups, and effects of changes.

Guarded by the cluster's lock; Spark's executors are read host by host (`executors_of`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark import SparkContext

from wallaroo.engine.report import TaskReport
from wallaroo.monitoring.metrics.status import WorkerStatus
from wallaroo.runtime.placement import Member, Ownership, Replicas
from wallaroo.runtime.rebalance import Move, MoveMeter
from wallaroo.runtime.resident.replica import REPLICA_NOTE
from wallaroo.runtime.tasks.job import BatchJob


@dataclass(frozen=True, slots=True)
class ExecutorHost:
    host: str
    executors: tuple[str, ...]
    cores: int


def executors_of(context: SparkContext) -> dict[str, ExecutorHost]:
    """Return, in about 10 ms, the hosts of executors that accept our tasks, by name."""
    spark = context._jsc.sc()
    listed = spark.statusStore().executorList(True)
    scheduler = spark.schedulerBackend()
    hosts: dict[str, ExecutorHost] = {}
    for number in range(listed.size()):
        executor = listed.apply(number)
        name = str(executor.id())
        cores = int(executor.totalCores())
        # not active: gone, or asked to leave
        if name == "driver" or not cores or not scheduler.isExecutorActive(name):
            continue
        host = str(executor.hostPort()).rsplit(":", 1)[0]
        known = hosts.get(host, ExecutorHost(host, (), 0))
        hosts[host] = ExecutorHost(
            host, tuple(sorted((*known.executors, name))), known.cores + cores
        )
    return hosts


def running_hosts(context: SparkContext) -> set[str]:
    """Return the hosts of executors that run tasks now."""
    return listed_hosts(context, tasks_min=1)


def listed_hosts(context: SparkContext, tasks_min: int = 0) -> set[str]:
    """Return the hosts of executors, also those that accept no more tasks.

    Each runs ``tasks_min`` tasks now, or more.
    """
    listed = context._jsc.sc().statusTracker().getExecutorInfos()
    return {str(one.host()) for one in listed if one.numRunningTasks() >= tasks_min}


class Membership:
    """The members, and the known facts about each."""

    def __init__(self, key_groups: int):
        self._key_groups = key_groups
        self.members: tuple[Member, ...] = ()
        self.seen: dict[str, ExecutorHost] = {}  # the members' hosts, by name
        self.ownership = Ownership(key_groups)
        self.replicas = Replicas(())
        self.moves = MoveMeter(key_groups)
        # owners of key groups when all tasks last ran where they were preferred
        self._settled: dict[int, str] = {}
        self._tasks_by_worker: dict[str, int] = {}

    @property
    def workers(self) -> frozenset[str]:
        return frozenset(member.worker for member in self.members)

    def named(self, seen: ExecutorHost, worker: str) -> Member:
        """Return a host as a member; one whose name another has, by its host, too."""
        names = {member.worker for member in self.members if member.host != seen.host}
        return Member(seen.host, f"{worker}/{seen.host}" if worker in names else worker, seen.cores)

    def having(self, member: Member) -> tuple[Member, ...]:
        """Return the members with one more, which replaces an older one of that host."""
        others = (other for other in self.members if other.host != member.host)
        return tuple(sorted((*others, member), key=lambda some: some.host))

    def add(self, member: Member, seen: ExecutorHost) -> None:
        self.moves.changed(self.workers, self._settled)
        self.members = self.having(member)
        self.seen[seen.host] = seen

    def drop(self, hosts: Iterable[str]) -> None:
        """Remove members whose hosts are gone."""
        self.moves.changed(self.workers, self._settled)
        for host in hosts:
            self.seen.pop(host, None)
        self.members = tuple(member for member in self.members if member.host in self.seen)

    def started(self) -> None:
        """Note that the first members are there: later ones are a change."""
        self.moves = MoveMeter(self._key_groups)

    def ran(self, job: BatchJob, reports: list[TaskReport]) -> dict[int, str]:
        """Note where a batch's tasks ran; return the workers of those that own state."""
        level = max(job.state_level, 0)
        workers = {report.task: report.worker for report in reports if report.level == level}
        self.ownership.ran(job.tasks, workers, job.committed)
        for report in reports:
            if REPLICA_NOTE in report.notes:
                self.replicas.note(report.task, report.worker)
        for worker, groups in self.replicas.groups_by_worker.items():
            self.ownership.warmed(worker, groups, job.committed)
        self._tasks_by_worker = Counter(report.worker for report in reports)
        return workers

    def settle(self) -> None:
        """Note that all tasks ran where they were preferred."""
        self._settled = dict(self.ownership.owners)

    def moved(self, cold_bytes: int, seconds: float) -> Move | None:
        """Return what a change moved, once it is complete."""
        return self.moves.batch_done(self.ownership.owners, cold_bytes, seconds, self.workers)

    def are_at(self, hosts: tuple[str, ...], workers: Mapping[int, str]) -> bool:
        """Return whether tasks ran on these hosts.

        A host that was asked to leave accepts no more tasks some time before it is dropped; its
        tasks are elsewhere then.
        """
        names = {member.host: member.worker for member in self.members}
        return all(names.get(hosts[task]) == worker for task, worker in workers.items())

    def status(self) -> tuple[WorkerStatus, ...]:
        """Return the members as ``wallaroo status`` shows them."""
        groups = self.ownership.by_worker()
        statuses = [
            WorkerStatus(
                name=member.worker,
                host=member.host,
                cores=member.cores,
                tasks=self._tasks_by_worker.get(member.worker, 0),
                key_groups=groups.get(member.worker, ()),
                replica_groups=self.replicas.groups_by_worker.get(member.worker, ()),
            )
            for member in self.members
        ]
        return tuple(sorted(statuses, key=lambda worker: worker.name))
