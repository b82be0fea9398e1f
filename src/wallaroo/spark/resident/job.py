"""The Spark job of resident tasks: Spark places them and ends them.

Where it runs: driver; ``_stay`` in workers.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from functools import partial

from pyspark import SparkContext, TaskContext

from wallaroo.network.proved_connections import DriverEndpoint
from wallaroo.processes.killed_workers import as_task
from wallaroo.runtime.resident.worker import report_loss, serve
from wallaroo.spark.cluster.layout import Layout
from wallaroo.spark.session.spark_errors import GONE

LEAVE_S = 1.0  # for tasks to end after their driver's socket has closed; then they are killed
CANCEL_S = 10.0
GROUP = "wallaroo-tasks"  # Spark's group of the job


def _stay(endpoint: DriverEndpoint, index: int, rows: Iterable[object]) -> Iterator[int]:
    """Serve as a resident task; Spark's second attempt at one ends its generation."""
    list(rows)  # unread rows keep Spark from using this process again
    context = TaskContext.get()
    if context is None or context.attemptNumber() == 0:
        serve(endpoint, index)
    else:
        report_loss(endpoint, index)
    yield from ()


class ResidentJob:
    """Job of ``count`` tasks, in its own thread; ``layout``: their preferred hosts."""

    def __init__(
        self,
        context: SparkContext,
        endpoint: DriverEndpoint,
        count: int,
        layout: Layout | None = None,
    ):
        self._context = context
        self._error: BaseException | None = None
        self._is_cancelled = False
        rows = layout.base(count) if layout else context.parallelize(range(count), count)
        self._tasks = rows.mapPartitionsWithIndex(partial(as_task, partial(_stay, endpoint)))
        self._thread = threading.Thread(target=self._run, name="wallaroo-tasks", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._context.setJobGroup(GROUP, "resident tasks", True)
            self._tasks.collect()
        except BaseException as error:  # noqa: BLE001  # raised by the thread that polls
            self._error = error

    @property
    def is_over(self) -> bool:
        """Return whether all tasks have ended."""
        return not self._thread.is_alive()

    @property
    def error(self) -> BaseException | None:
        """Return the error with which Spark ended the job; None if it ended by choice."""
        return None if self._is_cancelled else self._error

    def cancel(self) -> None:
        self._is_cancelled = True
        with contextlib.suppress(*GONE):
            self._context.cancelJobGroup(GROUP)

    def wait(self) -> None:
        """Wait for the end of tasks that were asked to end; kill the others."""
        self._thread.join(LEAVE_S)
        if self._thread.is_alive():
            self.cancel()
            self._thread.join(CANCEL_S)
