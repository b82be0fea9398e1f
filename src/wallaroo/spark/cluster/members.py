"""The hosts that are there: who has joined, who has left, and where the next batch's tasks are
wanted.

Where it runs: driver.  ``poll`` is called by the watch, many times a second; batches ask for
``tasks`` and ``layout``.

How a host joins: Spark has an executor there; a task is sent to it (its Python starts, imports the
application, sees the checkpoint); then its view is filled with the key groups it is going to own,
while batches go on elsewhere; only then is it a member, and the next batch has a layout with it.  A
host that is gone is no member from the next batch on.  With a local master there is nothing to
place: ``layout`` is None.

A host that cannot take part (no checkpoint, no library) is refused, and asked again now and then.
Should Spark give it a task all the same, the batch is run again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from wallaroo.engine.keys import groups_of_task
from wallaroo.engine.report import TaskReport
from wallaroo.errors import PeerError, WallarooError
from wallaroo.metrics.status import WorkerStatus
from wallaroo.runtime.job import BatchJob, Deployment, worker_name
from wallaroo.runtime.placement import Member, Ownership, spread, tasks_for
from wallaroo.runtime.rebalance import Move, MoveMeter
from wallaroo.spark.cluster.excluded_hosts import Refusals
from wallaroo.spark.cluster.executors import Seen, executors_of
from wallaroo.spark.cluster.joining_hosts import Greeting, Warmed, greet, warm
from wallaroo.spark.cluster.layout import Layout, located
from wallaroo.spark.shuffles import ShuffleCleaner
from wallaroo.spark.spark_errors import reason_of

LOOK_S = 0.5  # between two looks at Spark's executors
GREETERS = 16  # hosts greeted at once, when a run starts
GREETING_S = 60.0  # for a host that Spark has to take its first task
# after so many batches in a row with a task elsewhere than wanted the layout is made anew
STRAYS = (8, 64, 512)
_log = logging.getLogger("wallaroo.run")
WARMINGS = 2  # the second one catches up with what was committed during the first


@dataclass(frozen=True, slots=True)
class Place:
    """How the tasks of a run are to be placed."""

    is_local: bool  # one process on this host: nothing to place
    tasks: int | None = None  # of every batch; None: as many as there are cores
    is_sticky: bool = True  # False: Spark places tasks as it likes (to compare)


class Cluster:
    """Members and layouts; see the module's head."""

    def __init__(
        self,
        context: SparkContext,
        deployment: Deployment,
        key_groups: int,
        place: Place,
        cleaner: ShuffleCleaner,
        state_job: Callable[[], BatchJob],
    ):
        self._context, self._deployment, self._key_groups = context, deployment, key_groups
        self.is_local, self._pinned, self._is_sticky = place.is_local, place.tasks, place.is_sticky
        self._cleaner, self._state_job = cleaner, state_job
        self._lock = threading.Lock()
        self._members: tuple[Member, ...] = ()
        if place.is_local:
            self._members = (Member("localhost", worker_name(), int(context.defaultParallelism)),)
        self._seen: dict[str, Seen] = {}  # of the members, by host
        self._layouts: dict[int, Layout] = {}
        # of members that were; the batch under way may still use them
        self._retired: list[Layout] = []
        self._ownership = Ownership(key_groups)
        # owners of key groups when all tasks last ran where they were wanted
        self._settled: dict[int, str] = {}
        self._strays = 0  # batches in a row of which a task ran elsewhere than wanted
        self._joining: Future[None] | None = None
        self._refusals = Refusals(context)
        self._looked_at = 0.0
        self._moves = MoveMeter(key_groups)
        self._tasks_by_worker: dict[str, int] = {}
        self._is_started = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="wallaroo-cluster")
        self._greeters = ThreadPoolExecutor(GREETERS, thread_name_prefix="wallaroo-greeter")

    # -- asked by batches
    # ----------------------------------------------------------------------------------------------

    def tasks_max(self) -> int:
        """Return how many tasks a batch may have: one per core, unless a number was asked for; at
        most one per key group.
        """
        return self._tasks_of(self._members)

    def _tasks_of(self, members: Iterable[Member]) -> int:
        cores = self._pinned or sum(member.cores for member in members)
        return max(1, min(cores, self._key_groups))

    def tasks(self, wanted: int) -> int:
        """Return how many tasks a batch gets that would like ``wanted``."""
        if self._pinned:
            return self.tasks_max()
        return tasks_for(wanted, self._members, self.tasks_max())

    def layout(self, tasks: int) -> Layout | None:
        """Return where tasks are wanted; None: anywhere."""
        with self._lock:
            self._moves.batch_begins()
            members, layout = self._members, self._layouts.get(tasks)
        if self.is_local or not self._is_sticky or not members:
            return None
        return layout or self._prepared(tasks, members)

    def _prepared(self, tasks: int, members: tuple[Member, ...]) -> Layout:
        """Make a layout and fill it while the hosts' cores are free: where an anchor is once, it
        stays.
        """
        layout = self._laid_out(tasks, members)
        layout.prepare()  # without the lock: it waits where no host is left
        with self._lock:
            if self._members == members:
                self._layouts[tasks] = layout
            else:
                self._retired.append(layout)  # good for this batch
        return layout

    def batch_done(
        self, job: BatchJob, reports: Iterable[TaskReport], seconds: float
    ) -> Move | None:
        """Note where a batch's tasks ran; return what moved, once a batch that began after a change
        of the cluster is over.
        """
        reports = list(reports)
        with self._lock:
            workers = {
                report.task: report.worker
                for report in reports
                if report.level == max(job.state_level, 0)
            }
            self._ownership.ran(job.tasks, workers, job.committed)
            if self._is_as_wanted(job.tasks, workers):
                self._settled, self._strays = dict(self._ownership.owners), 0
            else:
                self._strays += 1
            if self._strays in STRAYS:
                self._retired.append(self._layouts.pop(job.tasks))
            self._tasks_by_worker = Counter(report.worker for report in reports)
            for layout in self._retired:
                self._cleaner.forget(layout.forget())
            self._retired = []
            cold = int(sum(report.notes.get("cold_bytes", 0.0) for report in reports))
            return self._moves.batch_done(self._ownership.owners, cold, seconds, self._workers())

    def _is_as_wanted(self, tasks: int, workers: Mapping[int, str]) -> bool:
        """Whether tasks ran on the hosts of the layout: not where one is leaving and takes no more,
        before that is noticed.
        """
        layout = self._layouts.get(tasks)
        names = {member.host: member.worker for member in self._members}
        return layout is None or all(
            names.get(layout.hosts[task]) == worker for task, worker in workers.items()
        )

    def _workers(self) -> frozenset[str]:
        return frozenset(member.worker for member in self._members)

    def status(self) -> tuple[WorkerStatus, ...]:
        """Return the members as ``wallaroo status`` shows them."""
        with self._lock:
            groups = self._ownership.by_worker()
            found = [
                WorkerStatus(
                    member.worker,
                    member.host,
                    member.cores,
                    self._tasks_by_worker.get(member.worker, 0),
                    groups.get(member.worker, ()),
                )
                for member in self._members
            ]
        return tuple(sorted(found, key=lambda worker: worker.name))

    # -- driven by the watch
    # ----------------------------------------------------------------------------------------------

    def start(self, is_waiting: Callable[[], bool]) -> None:
        """Wait for the first hosts and let them join.  Raises PeerError where none can; returns
        early when ``is_waiting`` turns false.
        """
        if self.is_local:
            return
        told_at, is_told = time.monotonic() + 5.0, False
        seen = executors_of(self._context)
        while is_waiting():
            if not seen and not is_told and time.monotonic() > told_at:
                is_told = True
                _log.warning(
                    "waiting for workers: Spark's master has given this application none yet"
                )
            time.sleep(LOOK_S)
            before, seen = seen, executors_of(self._context)
            if seen and seen == before:
                break
        greetings = [self._greeters.submit(self._greeted, host) for host in seen.values()]
        joined = [
            self._joined(host, greeting.result)
            for host, greeting in zip(seen.values(), greetings, strict=True)
        ]
        errors = [error for error in joined if error is not None]
        if errors and self.is_empty:
            raise errors[0]
        self._is_started, self._moves = True, MoveMeter(self._key_groups)

    def poll(self) -> None:
        """Look who has come and who has gone."""
        if self.is_local or time.monotonic() - self._looked_at < LOOK_S:
            return
        seen = self.look_now()
        if self._joining is not None:
            if not self._joining.done():
                return
            self._joining.result()
        newcomers = [
            host
            for name, host in seen.items()
            if name not in self._seen and self._refusals.may_join(name)
        ]
        self._joining = self._thread.submit(self._join, newcomers) if newcomers else None

    def look_now(self) -> dict[str, Seen]:
        """Take hosts whose executors have gone off the members; return those that are there."""
        seen = executors_of(self._context)
        self._looked_at = time.monotonic()
        self._drop([host for host, known in self._seen.items() if seen.get(host) != known])
        self._refusals.keep(seen)
        return seen

    def failure_on_non_member(self, reports: Iterable[TaskReport]) -> str:
        """Return what a task reports that ran on a host that is no member, "" if none failed
        there.
        """
        if self.is_local:
            return ""
        members = self._workers()
        failed = (
            f"{report.worker}: {report.error}"
            for report in reports
            if report.error and report.worker not in members
        )
        return next(failed, "")

    @property
    def is_empty(self) -> bool:
        """Whether no host is there to run tasks."""
        return not self._members

    def close(self) -> None:
        """Stop looking after newcomers."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._greeters.shutdown(wait=False, cancel_futures=True)

    def _drop(self, hosts: list[str]) -> None:
        if not hosts:
            return
        with self._lock:
            self._moves.changed(self._workers(), self._settled)
            self._members = tuple(member for member in self._members if member.host not in hosts)
            for host in hosts:
                self._seen.pop(host, None)
            self._retire_layouts()

    def _retire_layouts(self) -> None:
        self._retired.extend(self._layouts.values())
        self._layouts, self._strays = {}, 0

    # -- joining, in a thread of its own
    # -----------------------------------------------------------------------------------------

    def _join(self, newcomers: list[Seen]) -> None:
        for seen in newcomers:
            try:
                self._joined(seen, partial(self._greeted, seen))
            except Py4JError:
                return  # the JVM has gone, which the run's own thread tells

    def _joined(self, seen: Seen, greeting: Callable[[], Greeting]) -> WallarooError | None:
        """Let a host join; say and return why it cannot."""
        try:
            self._admit(seen, greeting())
        except WallarooError as known:
            error = known
        except Py4JJavaError as failed:  # a task on it did
            error = _cannot(seen, reason_of(failed))
        else:
            return None
        if self._refusals.add(seen.host, str(error)):
            _log.warning(str(error))
        return error

    def _admit(self, seen: Seen, greeting: Greeting) -> None:
        """Fill the view of a host that is not among the first ones, make it a member."""
        names = {member.worker for member in self._members if member.host != seen.host}
        # two hosts of one name
        worker = f"{greeting.worker}/{seen.host}" if greeting.worker in names else greeting.worker
        member = Member(seen.host, worker, seen.cores)
        members = self._with(member)
        layout: Layout | None = None
        if self._is_sticky and self._is_started:
            layout = self._laid_out(self._tasks_of(members), members)
            layout.prepare()
            self._warm(layout, member)
        with self._lock:
            self._moves.changed(self._workers(), self._settled)
            self._members, self._seen[seen.host] = self._with(member), seen
            self._retire_layouts()
            if layout is not None and self._members == members:  # nobody left meanwhile
                self._layouts[len(layout.hosts)] = layout
        self._refusals.drop(seen.host)

    def _with(self, member: Member) -> tuple[Member, ...]:
        others = (other for other in self._members if other.host != member.host)
        return tuple(sorted((*others, member), key=lambda some: some.host))

    def _greeted(self, seen: Seen) -> Greeting:
        """Ask a host who it is.  Raises PeerError, or Py4JJavaError where the task fails."""
        until = time.monotonic() + GREETING_S
        while True:
            rows = located(self._context, (seen.host,))
            (greeting,) = rows.mapPartitionsWithIndex(partial(greet, self._deployment)).collect()
            if greeting.host in ("", seen.host):
                if greeting.error is not None:
                    raise _cannot(seen, greeting.error)
                return greeting
            if time.monotonic() > until:
                raise PeerError(f"worker {seen.host} takes no task")
            # it ran elsewhere: Spark knows the host, but its executor is not up yet
            time.sleep(LOOK_S)

    def _laid_out(self, tasks: int, members: tuple[Member, ...]) -> Layout:
        batch = self._state_job().committed + 1
        return Layout(
            self._context, spread(tasks, self._key_groups, members, self._ownership.copies, batch)
        )

    def _warm(self, layout: Layout, member: Member) -> None:
        """Bring the joiner's view of what it is going to own up to date, while batches go on."""
        tasks = len(layout.hosts)
        for _ in range(WARMINGS):
            job = self._state_job()
            if job.state_level < 0 or job.committed < 0:
                return
            wanted = tuple(task for task, host in enumerate(layout.hosts) if host == member.host)
            rows = located(self._context, tuple(layout.hosts[task] for task in wanted))
            found: list[Warmed] = rows.mapPartitionsWithIndex(
                partial(warm, job, tasks, wanted)
            ).collect()
            with self._lock:
                for warmed in found:
                    if warmed.error is not None:
                        # such as a file that went with its commit meanwhile; what is wrong for
                        # good, a batch will tell
                        continue
                    groups = range(*groups_of_task(warmed.task, tasks, self._key_groups))
                    self._ownership.warmed(warmed.worker, groups, job.committed)
                    self._moves.warmed(warmed.bytes_read)


def _cannot(seen: Seen, why: object) -> PeerError:
    return PeerError(f"worker {seen.host} cannot take part: {why}")
