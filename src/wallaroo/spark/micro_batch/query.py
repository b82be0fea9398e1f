"""Streaming query in which a run's batches run.

It is started, watched and stopped at a boundary here.

Spark calls ``BatchQuery`` for each of its batches, from one thread.

The query's source is one of Spark's own that always has a row, which is never read: a batch waits
in its call until our sources have something (docs/decisions/0042).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from wallaroo.errors import WallarooError
from wallaroo.runtime.batch.batch_loop import BatchLoop
from wallaroo.runtime.batch.batches import Batches
from wallaroo.runtime.batch.trigger import Trigger
from wallaroo.spark.session.spark_errors import GONE, TASK_FAILED, failure_of, jvm_gone, loss_of

SOURCE = "rate-micro-batch"  # a row for every batch, as soon as Spark polls
LOOK_S = 0.02
# between two checks with the JVM that an active query is still active: they are most of an idle
# run's work
ASK_S = 1.0
STOP_S = 5.0  # for Spark to stop a query; it finishes on its own after that


class BatchQuery:
    """One streaming query that runs the batches of a run."""

    def __init__(
        self,
        session: SparkSession,
        name: str,
        folder: Path,
        batches: Batches,
        trigger: Trigger,
        ask_s: float = ASK_S,
    ):
        """Prepare the query, which is not started yet.

        ``folder``: Spark's own notes, of no use after the run (docs/decisions/0002).  ``ask_s``:
        between two questions whether the query is active.
        """
        self._ask_s = ask_s
        self._session = session
        self._name = name
        self._folder = folder
        self._trigger = trigger
        self._loop = BatchLoop(trigger, batches, explain=self.failure)
        self._query: StreamingQuery | None = None
        self._has_begun = threading.Event()
        self._has_ended = threading.Event()
        self._active_at = -ask_s  # time of the last question to the JVM; monotonic seconds

    def __call__(self, frame: DataFrame, spark_batch: int) -> None:
        """Run one batch, as Spark's entry point.  Raises to prevent another one."""
        if not self._has_begun.is_set():
            self._has_begun.set()  # the first batch is empty, so the next one starts quickly
            return
        if not self._loop.step():
            self._has_ended.set()

    def failed(self, error: BaseException) -> None:
        """Note the error that prevented the start of the query."""
        self._loop.fail(error)

    def failure(self, error: BaseException) -> WallarooError:
        """Return the error of a failed start or batch, in the user's words."""
        return failure_of(self._query, error, self._session.sparkContext)

    def start(self) -> None:
        """Start the query; batches begin where the last commit ended.  Raises PeerError."""
        try:
            rows = self._session.readStream.format(SOURCE).option("rowsPerBatch", 1).load()
            self._query = (
                rows.writeStream.queryName(self._name)
                .foreachBatch(self)
                # this host's disk, regardless of Spark's default
                .option("checkpointLocation", self._folder.as_uri())
                .trigger(processingTime="0 seconds")
                .start()
            )
        except TASK_FAILED as error:
            raise self.failure(error) from error

    def wait_begun(self, is_waiting: Callable[[], bool]) -> None:
        """Wait for the query's first batch, which has no events."""
        while is_waiting() and not self._has_begun.wait(LOOK_S):
            self.poll()

    def poll(self) -> None:
        """Raise the error that ended the query, if it has ended."""
        self._loop.poll()
        query = self._query
        now = time.monotonic()
        if query is None or now - self._active_at < self._ask_s:
            return
        self._active_at = now
        context = self._session.sparkContext
        # a batch that waits keeps the query of a stopped context active
        if (loss := loss_of(context)) is not None:
            raise loss
        if not _is_active(query):
            raise failure_of(query, None, context)

    def finish(self, seconds: float, keep_alive: Callable[[], bool]) -> bool:
        """Let the current batch end, and stop; return whether that was in time.

        ``keep_alive`` is called meanwhile; if it returns False no batch can continue.
        """
        until = time.monotonic() + seconds
        self._trigger.end()
        while keep_alive() and not self._has_ended.wait(LOOK_S):
            self.poll()
            if time.monotonic() > until:
                self.cancel()
                return False
        self.cancel()
        return True

    def cancel(self) -> None:
        """Stop the query with the current batch; never waits for long."""
        self._trigger.end()
        query = self._query
        self._query = None
        if query is not None:
            stopping = threading.Thread(target=_stop, args=(query,), daemon=True)
            stopping.start()
            stopping.join(STOP_S)


def _stop(query: StreamingQuery) -> None:
    with contextlib.suppress(*GONE):
        query.stop()


def _is_active(query: StreamingQuery) -> bool:
    try:
        return bool(query.isActive)
    except GONE as error:
        raise jvm_gone() from error
