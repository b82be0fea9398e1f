"""The streaming query of a run, which begins its batches: started, watched, stopped at a boundary,
and what its end means.

Where it runs: driver.  Spark calls ``BatchQuery`` for each of its batches, from one thread.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from wallaroo.durable.disk_errors import disk_error_of
from wallaroo.errors import InternalError, PeerError, WallarooError
from wallaroo.runtime.batches import Batches
from wallaroo.runtime.host import Site
from wallaroo.sources.log import to_stored
from wallaroo.spark.heartbeat import HEARTBEAT
from wallaroo.spark.offsets import read_offsets
from wallaroo.spark.planner import Planner
from wallaroo.spark.planner_logs import LOGS, write_logs
from wallaroo.spark.source import FORMAT, UNSTARTED, LogSource
from wallaroo.spark.spark_errors import reason_of

IDLE_TRIGGERS = 2  # looks at an idle query before it is taken for stopped at a boundary
LOOK_S = 0.02
# what a call into a JVM raises that has gone, and with it whatever was to be done
GONE = (Py4JError, ConnectionError, EOFError)
# between two questions to the planner Spark may start processes, which takes long on a busy machine
PATIENCE = 3
# of the query, within these seconds: not reached where each start takes the ten seconds for which
# Spark waits until a Python process begins, as happens on a busy machine
STARTS_MAX = 8
STARTS_S = 60.0
# what Spark says where a Python process died that it asked about the source, or did not begin in
# time; a task's death is Spark's to repeat
LOST = re.compile("Python worker (exited unexpectedly|failed to connect back)")
_log = logging.getLogger("wallaroo.run")
STOP_S = 5.0  # for Spark to end a query; it goes on by itself after that
JVM_GONE = (
    "Spark's JVM has gone. What was committed stays: run the same command again to go on "
    "from there."
)


class BatchQuery:
    """One streaming query over all sources of a run."""

    def __init__(
        self, session: SparkSession, name: str, site: Site, batches: Batches, hung_s: float
    ):
        self._session = session
        self._name = name
        self._site = site
        self._batches = batches
        self._query: StreamingQuery | None = None
        self._has_begun = threading.Event()
        self._failure: BaseException | None = None
        self._planner = Planner(site.scratch / HEARTBEAT)
        self._hung_s = hung_s
        self._number = 0
        self._starts: deque[float] = deque(maxlen=STARTS_MAX)  # monotonic seconds
        self._is_interrupted = threading.Event()

    def __call__(self, frame: DataFrame, spark_batch: int) -> None:
        """Spark's entry.  Raises to keep Spark from going on."""
        try:
            if spark_batch == 0:
                self._has_begun.set()  # the batch without events that every query begins with
            else:
                self._batches.run(read_offsets(self._folder, spark_batch))
        except BaseException as error:
            self._failure = error
            raise

    def failed(self, error: BaseException) -> None:
        """Note what kept the query from starting."""
        self._failure = error

    def failure(self, error: BaseException) -> WallarooError:
        """Return what a start failed with, in the user's words."""
        return failure_of(self._query, error)

    @property
    def _folder(self) -> Path:
        """Where Spark notes what it did; of no use after the run (docs/decisions/0002)."""
        return self._site.scratch / f"spark-{self._number}"

    def start(self) -> None:
        """Start the query where the last commit ended; again where a Python process died that
        Spark asks about the source.
        """
        while True:
            try:
                self._start()
            except Py4JJavaError as error:
                is_lost = LOST.search(str(error.java_exception)) is not None
                if self._is_interrupted.is_set() or not is_lost or not self._may_start_again():
                    raise failure_of(None, error) from error
                _log.warning("Spark lost a Python process while the batches began; again")
            else:
                return

    def _start(self) -> None:
        self._planner.expect()
        self._starts.append(time.monotonic())
        self._number += 1  # a query that begins needs a folder without another one's notes
        self._session.dataSource.register(LogSource)
        initial = self._batches.ends
        setup = self._batches.setup
        logs_file = self._site.scratch / LOGS
        write_logs(logs_file, setup.logs_by_name, setup.deployment.module_paths)
        stream = (
            self._session.readStream.format(FORMAT)
            .option("initial", json.dumps(to_stored(initial) | UNSTARTED))
            .option("control", str(self._site.scratch / "control"))
            .load()
        )
        self._query = (
            stream.writeStream.queryName(self._name)
            .foreachBatch(self)
            # this host's disk, whatever Spark's default is
            .option("checkpointLocation", self._folder.as_uri())
            .trigger(processingTime="0 seconds")
            .start()
        )

    def wait_begun(self, is_waiting: Callable[[], bool]) -> None:
        """Wait for its first batch, the one without events."""
        while is_waiting() and not self._has_begun.wait(LOOK_S):
            self.poll()

    def poll(self) -> None:
        """Raise what ended the query, if it has ended."""
        query = self._query
        if self._failure is not None:
            raise failure_of(query, self._failure)
        if query is None:
            return
        if _is_active(query):
            self._look_after_planner()
        elif (self._planner.is_gone or _has_lost_process(query)) and self._may_start_again():
            _log.warning("Spark's planner process has gone; starting it again")
            self.start()
        else:
            raise failure_of(query, None)

    def _look_after_planner(self) -> None:
        is_asked = self._has_begun.is_set() and self._batches.under_way is None
        bound_s = PATIENCE * self._hung_s
        if self._planner.silent_s(is_asked) > bound_s:
            _log.warning(
                "Spark's planner process has shown no sign of life for %.0f s; killing it", bound_s
            )
            self._planner.kill()

    def interrupt(self) -> None:
        """Have a start that goes on trying give up."""
        self._is_interrupted.set()

    def _may_start_again(self) -> bool:
        """Not where it ends again and again."""
        if len(self._starts) < STARTS_MAX:
            return True
        return time.monotonic() - self._starts[0] > STARTS_S

    def finish(self, seconds: float, keep_alive: Callable[[], bool]) -> bool:
        """Wait until no batch is under way, and stop; return whether that was in time.

        ``keep_alive`` is called meanwhile; where it returns False no batch can go on.
        """
        until = time.monotonic() + seconds
        idle = 0
        query = self._query
        assert query is not None
        while idle < IDLE_TRIGGERS and keep_alive():
            self.poll()
            if time.monotonic() > until:
                self.cancel()
                return False
            idle = idle + 1 if query.status["message"] == "Waiting for data to arrive" else 0
            time.sleep(LOOK_S)
        self.cancel()
        return True

    def cancel(self) -> None:
        """Stop the query, with the batch under way; never waits for long."""
        query = self._query
        self._query = None
        if query is not None:
            stopping = threading.Thread(target=_stop, args=(query,), daemon=True)
            stopping.start()
            stopping.join(STOP_S)


def _stop(query: StreamingQuery) -> None:
    with contextlib.suppress(*GONE):
        query.stop()


def _has_lost_process(query: StreamingQuery) -> bool:
    try:
        return LOST.search(str(query.exception())) is not None
    except GONE as error:
        raise PeerError(JVM_GONE) from error


def _is_active(query: StreamingQuery) -> bool:
    try:
        return bool(query.isActive)
    except GONE as error:
        raise PeerError(JVM_GONE) from error


def failure_of(query: StreamingQuery | None, failure: BaseException | None) -> WallarooError:
    """Return what ended a query, in the user's words; ``failure`` is what a batch raised."""
    if isinstance(failure, WallarooError):
        return failure
    if isinstance(failure, Py4JNetworkError | ConnectionError):
        return PeerError(JVM_GONE)
    if failure is not None and not isinstance(failure, Py4JError):
        return disk_error_of(failure) or InternalError(
            "a batch failed in a way that this program does not expect: "
            f"{type(failure).__name__}: {failure}"
        )
    try:
        reason = failure or (query.exception() if query else None)
    except GONE:
        return PeerError(JVM_GONE)
    text = "no reason given"
    if isinstance(reason, Py4JJavaError):
        text = reason_of(reason)
    elif reason is not None:
        text = str(reason).strip().split("\n")[0][:500]
    return PeerError(
        f"Spark ended the run: {text}. What was committed stays; run again to go on from there."
    )
