"""The opening, interruption and closing of a host's Spark context."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from wallaroo.options import RunOptions
from wallaroo.spark.jvm.jvm import Jvm
from wallaroo.spark.jvm.jvm_process import JvmProcess
from wallaroo.spark.jvm.settings import conf_of, is_local, is_loopback
from wallaroo.spark.jvm.stderr import quiet_from_now
from wallaroo.spark.session.session import close, open_context, session_in
from wallaroo.spark.session.spark_errors import GONE
from wallaroo.spark.session.task_log import follow_tasks

CLOSE_S = 20.0  # for Spark to stop; then its JVM is killed


class HostSession:
    """The Spark context of a host.

    ``given`` is a session that stays open.
    """

    def __init__(
        self,
        name: str,
        options: RunOptions,
        given: SparkSession | None,
        begun: JvmProcess | None = None,
    ):
        self._name = name
        self._options = options
        self._is_own = given is None
        self._context = given.sparkContext if given else None
        self._session = given
        self._jvm = Jvm(begun)
        self._unfollow: Callable[[], None] = lambda: None
        self.master = str(given.sparkContext.master) if given else options.master

    @property
    def is_local(self) -> bool:
        """Return whether all tasks run on this machine."""
        return is_local(self.master)

    @property
    def serve_on(self) -> str | None:
        """Return the address on which tasks elsewhere reach this process; None if all are here."""
        if self.is_local:
            return None
        # every host of the cluster has to reach it
        return "127.0.0.1" if is_loopback(self.master) else "0.0.0.0"

    @property
    def reachable_as(self) -> str:
        """Return the name by which workers reach this machine, once the session is open."""
        named = None if self.is_local else self.context.getConf().get("spark.driver.host")
        return named or "127.0.0.1"

    @property
    def is_open(self) -> bool:
        """Return whether there is a context by now."""
        return self._context is not None

    @property
    def session(self) -> SparkSession:
        """Return the session, which is opened if it is not."""
        if self._session is None:
            self._session = session_in(self.context)
        return self._session

    @property
    def context(self) -> SparkContext:
        """Return the context, once it is open."""
        assert self._context is not None
        return self._context

    def open(self, scratch: Path) -> None:
        """Start Spark."""
        options = self._options
        self._context = open_context(
            self._name,
            options.master,
            scratch,
            options.log_level,
            conf_of(options),
            self._jvm,
        )

    def follow(self, scratch: Path) -> None:
        """Report workers that end in the session that was given."""
        self._unfollow = follow_tasks(self.context, scratch)

    def interrupt(self, group: str) -> None:
        """End the wait of a start: for Spark, or for a group of jobs."""
        quiet_from_now()
        if self._context is None:
            self._jvm.kill()
            return
        with contextlib.suppress(*GONE):
            self._context.cancelJobGroup(group)

    def quiet(self) -> None:
        """Discard the output of Spark's processes from now on: complaints about their end."""
        quiet_from_now()

    def discard(self) -> None:
        """End a JVM that was started for a context that is not opened."""
        if self._context is None:
            self._jvm.kill()

    def close(self) -> None:
        """Stop Spark, unless the session was given."""
        with contextlib.suppress(*GONE):
            self._unfollow()
        spark = self._session or self._context
        if spark is None or not self._is_own:
            return
        closing = threading.Thread(target=_close, args=(spark,), daemon=True)
        closing.start()
        closing.join(CLOSE_S)
        if closing.is_alive():
            self._jvm.kill()


def _close(spark: SparkContext | SparkSession) -> None:
    with contextlib.suppress(*GONE):  # it has ended already
        close(spark)
