"""Common parts of Spark hosts: session, application, cluster, trigger."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from wallaroo.options import RunOptions
from wallaroo.processes.killed_workers import killed
from wallaroo.runtime.batch.admission import Admission
from wallaroo.runtime.batch.batches import Batches
from wallaroo.runtime.batch.trigger import Trigger
from wallaroo.runtime.host import Enter, RunFolders
from wallaroo.runtime.tasks.busy_workers import describe_workers
from wallaroo.runtime.tasks.job import Deployment, plan_of
from wallaroo.spark.cluster.allocation import (
    allocation_of,
    end_workers,
    request_workers,
    yield_workers,
)
from wallaroo.spark.cluster.cluster import NO_WORKERS, Cluster, Placement
from wallaroo.spark.cluster.membership import running_hosts
from wallaroo.spark.session.host_session import HostSession
from wallaroo.spark.session.shipping import ship
from wallaroo.spark.session.shuffles import ShuffleCleaner
from wallaroo.spark.session.spark_errors import GONE, failure_of

# so that an import-only task lasts long enough for others to get their own processes
WARM_TASK_S = 0.2
_log = logging.getLogger("wallaroo.run")


@dataclass(slots=True)
class Work:
    """The objects that exist between the start of batches and the end."""

    batches: Batches
    cleaner: ShuffleCleaner
    cluster: Cluster


SomeWork = TypeVar("SomeWork", bound=Work)


def _import_application(deployment: Deployment, rows: Iterable[object]) -> None:
    list(rows)  # unread rows keep Spark from using this process again
    plan_of(deployment)
    time.sleep(WARM_TASK_S)


class SparkHost(Generic[SomeWork]):
    """The members of ``wallaroo.runtime.host.Host`` that do not depend on how batches run."""

    def __init__(self, options: RunOptions, session: HostSession, trigger: Trigger):
        self._options = options
        self._session = session
        self._trigger = trigger
        self._site: RunFolders | None = None
        self._work: SomeWork | None = None
        self._killed_before = killed()

    @property
    def is_local(self) -> bool:
        return self._session.is_local

    @property
    def serve_on(self) -> str | None:
        return self._session.serve_on

    @property
    def reachable_as(self) -> str:
        return self._session.reachable_as

    @property
    def allocation(self) -> str:
        return allocation_of(self._session.context)

    @property
    def waiting_for(self) -> str:
        if self._work is not None and self._work.cluster.is_empty:
            return NO_WORKERS
        return self._trigger.waiting_for

    @property
    def workers_killed(self) -> int:
        return killed() - self._killed_before

    @property
    def tasks_max(self) -> int:
        return self._working.cluster.tasks_max()

    def open(self, site: RunFolders, enter: Enter) -> None:
        self._site = site
        self._trigger.open(site.wake)
        if not self._session.is_open:
            enter("starting Spark")
            self._session.open(site.scratch)
        else:
            self._session.follow(site.scratch)
        if not self.is_local:
            enter("shipping the application to the workers")
            try:
                ship(self._session.context, self._options.module_paths, site.scratch)
            except GONE as error:
                raise failure_of(None, error, self._session.context) from error

    def request_workers(self, former: str) -> None:
        end_workers(self._session.context, former)
        if self._options.standby_after_s is not None:
            request_workers(self._session.context)

    def keep_warm(self, deployment: Deployment) -> None:
        context = self._session.context
        if not self.is_local:
            yield_workers(context)
            return
        tasks = context.defaultParallelism
        try:
            rows = context.parallelize(range(tasks), tasks)
            rows.foreachPartition(partial(_import_application, deployment))
        except GONE as error:
            raise failure_of(None, error, self._session.context) from error

    def _cluster(self, batches: Batches, cleaner: ShuffleCleaner, are_resident: bool) -> Cluster:
        """Return the hosts that batches run on; ``are_resident`` as in ``Placement``."""
        options = self._options
        return Cluster(
            self._session.context,
            batches.setup.deployment,
            batches.setup.plan.key_groups,
            Placement(
                self.is_local,
                options.tasks,
                options.is_sticky,
                are_resident,
                options.min_workers,
                options.replicas > 0,
            ),
            cleaner,
            batches.empty_job,
        )

    def _poll_cluster(self) -> None:
        try:
            self._working.cluster.poll()
        except GONE as error:
            raise failure_of(None, error, self._session.context) from error

    def admit(self, admission: Admission) -> None:
        self._trigger.admit(admission)

    def stuck(self, batch: int) -> tuple[str, ...]:
        lines = describe_workers(self._here.stacks, _log.warning)
        late = self._late_workers(0.0)
        return (*((f"its tasks on {late} have not ended",) if late else ()), *lines)

    def _late_workers(self, seconds: float) -> str:
        """Return the workers for whose tasks a batch has waited this long; "" if unknown."""
        if self.is_local or self._work is None:
            return ""
        return self._work.cluster.names(self._late_hosts(seconds))

    def _late_hosts(self, seconds: float) -> set[str]:
        """Return the hosts on which tasks of a batch run; levels run one after the other."""
        try:
            return running_hosts(self._session.context)
        except GONE:  # the next poll reports it
            return set()

    def discard(self) -> None:
        self._session.discard()

    @property
    def _here(self) -> RunFolders:
        assert self._site is not None
        return self._site

    @property
    def _working(self) -> SomeWork:
        assert self._work is not None
        return self._work
