"""The probes of hosts before they join."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from pyspark import SparkContext

from wallaroo.errors import PeerError
from wallaroo.processes.idle_workers import as_task
from wallaroo.runtime.tasks.job import Deployment
from wallaroo.spark.cluster.executors import ExecutorHost
from wallaroo.spark.cluster.joining_hosts import HostProbe, probe
from wallaroo.spark.cluster.layout import located
from wallaroo.spark.session.spark_errors import jvm_gone

PROBES = 16  # hosts probed at once, when a run starts
PROBE_S = 60.0  # for a host until Spark sends it its first task
LOOK_S = 0.5  # between two tries

Answer = Callable[[], HostProbe]


class Prober:
    """The thread that admits hosts after they have run a probe task."""

    def __init__(self, context: SparkContext, deployment: Deployment):
        self._context = context
        self._deployment = deployment
        self._joining = ThreadPoolExecutor(1, thread_name_prefix="wallaroo-cluster")
        self._probing = ThreadPoolExecutor(PROBES, thread_name_prefix="wallaroo-probe")
        self._under_way: Future[None] | None = None

    def ask_all(self, hosts: Iterable[ExecutorHost]) -> list[tuple[ExecutorHost, Answer]]:
        """Probe hosts side by side; return, for each, a function that returns its answer."""
        return [(host, self._probing.submit(self.ask, host).result) for host in hosts]

    def ask(self, seen: ExecutorHost) -> HostProbe:
        """Ask for a host's identity.  Raises PeerError, or one of TASK_FAILED."""
        until = time.monotonic() + PROBE_S
        while True:
            rows = located(self._context, (seen.host,))
            task = partial(as_task, partial(probe, self._deployment))
            answers: list[HostProbe] = rows.mapPartitionsWithIndex(task).collect()
            if not answers:  # PySpark mistakes the JVM's death for the end of the rows
                raise jvm_gone()
            answer = answers[0]
            if answer.host in ("", seen.host):
                if answer.error is not None:
                    raise cannot_join(seen, answer.error)
                return answer
            if time.monotonic() > until:
                raise PeerError(f"worker {seen.host} takes no task")
            # it ran elsewhere: Spark lists the host, but its executor is not up yet
            time.sleep(LOOK_S)

    @property
    def is_busy(self) -> bool:
        """Return whether hosts are joining.  Raises the error with which that failed."""
        if self._under_way is None:
            return False
        if not self._under_way.done():
            return True
        done = self._under_way
        self._under_way = None
        done.result()
        return False

    def join(self, work: Callable[[], None]) -> None:
        """Let hosts join, in a thread of its own."""
        self._under_way = self._joining.submit(work)

    def close(self) -> None:
        """Cancel the probes that have not begun, without waiting."""
        self._joining.shutdown(wait=False, cancel_futures=True)
        self._probing.shutdown(wait=False, cancel_futures=True)


def cannot_join(seen: ExecutorHost, why: object) -> PeerError:
    """Return the log entry for a host that cannot join."""
    return PeerError(f"worker {seen.host} cannot take part: {why}")
