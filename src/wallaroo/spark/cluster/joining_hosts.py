"""Probes of hosts before they join, and their work before they own anything.

Where it runs: worker.  Only values leave this module, as in ``runtime.tasks.task``.
"""

from __future__ import annotations

import json
import mmap
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from wallaroo.errors import PeerError, WallarooError
from wallaroo.processes.killed_workers import as_task
from wallaroo.runtime.tasks.job import (
    BatchJob,
    Deployment,
    executor_host,
    no_view,
    plan_of,
    worker_name,
)
from wallaroo.runtime.tasks.task import state_from_view, unexpected
from wallaroo.spark.cluster.layout import located
from wallaroo.spark.cluster.membership import ExecutorHost, executors_of
from wallaroo.spark.session.spark_errors import jvm_gone
from wallaroo.state.log.layout import FORMAT
from wallaroo.state.log.storage import LocalStorage


@dataclass(frozen=True, slots=True)
class HostProbe:
    worker: str
    host: str  # the executor's, as Spark names it; "" if that cannot be seen
    error: WallarooError | None = None


@dataclass(frozen=True, slots=True)
class WarmUpResult:
    """Result of a warm-up task.

    Its part of the view is up to date, or there was an error.
    """

    worker: str
    task: int
    bytes_read: int
    error: WallarooError | None = None


def probe(deployment: Deployment, index: int, rows: Iterable[Any]) -> Iterator[HostProbe]:
    deque(rows, maxlen=0)  # unread rows keep Spark from using this process again
    error: WallarooError | None = None
    try:
        plan_of(deployment)
        _see_checkpoint(deployment)
        _write_view(deployment)
    except Exception as caught:  # noqa: BLE001  # the worker's error boundary
        error = _as_wallaroo_error(caught)
    yield HostProbe(worker_name(), executor_host(), error)


def warm(
    job: BatchJob, tasks: int, own_tasks: tuple[int, ...], index: int, rows: Iterable[Any]
) -> Iterator[WarmUpResult]:
    """Bring the view of some of ``tasks`` tasks to the job's last commit."""
    deque(rows, maxlen=0)
    task = own_tasks[index]
    bytes_read = 0
    error: WallarooError | None = None
    try:
        state, caught_up = state_from_view(job, plan_of(job.deployment), task, tasks)
        state.close()
        bytes_read = caught_up.bytes_read
    except Exception as caught:  # noqa: BLE001  # the worker's error boundary
        error = _as_wallaroo_error(caught)
    yield WarmUpResult(worker_name(), task, bytes_read, error)


def _as_wallaroo_error(error: Exception) -> WallarooError:
    return error if isinstance(error, WallarooError) else unexpected(error)


def _see_checkpoint(deployment: Deployment) -> None:
    if not isinstance(deployment.storage, LocalStorage):
        deployment.storage.read(FORMAT)
        return
    file = Path(deployment.storage.root, FORMAT)
    try:
        identity = json.loads(file.read_text())["id"]
    except OSError as error:
        raise PeerError(
            f"it does not see the checkpoint folder {deployment.storage.root} ({error.strerror}). "
            "Give --checkpoint a folder on a disk that all hosts share."
        ) from error
    if identity != deployment.checkpoint_id:
        raise PeerError(
            f"its folder {deployment.storage.root} differs from this host's. "
            "Give --checkpoint a folder on a disk that all hosts share."
        )


def _write_view(deployment: Deployment) -> None:
    folder = deployment.view_folder()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(mmap.PAGESIZE))
    except OSError as error:
        raise no_view(folder, error) from error


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
                    raise answer.error
                return answer
            if time.monotonic() > until or seen.host not in executors_of(self._context):
                raise PeerError("it takes no task")
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
