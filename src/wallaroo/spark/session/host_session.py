"""Spark's context and session: opened, interrupted and closed."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from wallaroo.errors import PeerError
from wallaroo.options import RunOptions
from wallaroo.spark.jvm.jvm import Jvm
from wallaroo.spark.jvm.jvm_process import JvmProcess
from wallaroo.spark.jvm.settings import (
    DRIVER_MEMORY,
    LEVELS,
    conf_of,
    is_local,
    is_loopback,
    prepare_environment,
    settings_of,
)
from wallaroo.spark.jvm.stderr import filtered_stderr, quiet_from_now, reason_of_end
from wallaroo.spark.session.spark_errors import GONE
from wallaroo.spark.session.task_log import follow_tasks


def open_context(
    application: str,
    master: str,
    scratch: Path,
    log_level: str,
    settings: tuple[tuple[str, str], ...],
    jvm: Jvm | None = None,
) -> SparkContext:
    """Start Spark.

    Raises PeerError, with the fix, if Java or the master is unavailable.

    ``jvm`` may be on its way already; with it, it can be ended in the middle of that.

    Resident tasks need a context alone: a session loads Spark SQL, 0.9 s of the 2.7 s of processor
    time that the JVM takes for a start.
    """
    jvm = jvm or Jvm()
    chosen = jvm.settings
    if chosen is None:
        prepare_environment(master)
        chosen = settings_of(application, master, scratch, log_level, settings)
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(chosen.items()))
    try:
        context = _launched(jvm, conf)
    except Exception as error:  # PySpark's message does not help: the cause is Java or the master
        if number := jvm.killed_by:
            raise PeerError(
                f"Spark's JVM was killed (signal {number}) while it started, by a user or by the "
                "system for lack of memory (see its log). Free memory, or ask for less than "
                f"{chosen[DRIVER_MEMORY]} with --conf {DRIVER_MEMORY}=SIZE, then run again."
            ) from error
        if jvm.has_ended and (reason := reason_of_end()):
            raise PeerError(
                f"Spark's JVM did not start: {reason.rstrip('.')}. Correct the setting (--conf, "
                "spark-defaults.conf or JAVA_TOOL_OPTIONS), then run again; if no setting is "
                "wrong, run `wallaroo doctor`."
            ) from error
        raise PeerError(
            f"Spark did not start with master '{master}': {type(error).__name__}. "
            "Run `wallaroo doctor`: Java 17 or newer must be installed (or JAVA_HOME set), and "
            "the master must be reachable."
        ) from error
    context.setLogLevel(LEVELS[log_level])
    return context


def _launched(jvm: Jvm, conf: SparkConf) -> SparkContext:
    stderr = filtered_stderr()
    try:
        jvm.launch(conf, stderr)
        return SparkContext.getOrCreate(conf)
    finally:
        os.close(stderr)


def session_in(context: SparkContext) -> SparkSession:
    """Return the session of a context, which is created if there is none."""
    session = SparkSession(context)
    jvm: Any = session._jvm
    # otherwise Spark starts a Python process to ask which data sources are installed; if Spark's
    # internals have changed, it does
    with contextlib.suppress(Py4JError, TypeError):
        datasources = jvm.org.apache.spark.sql.execution.datasources
        manager = _object_of(datasources, "DataSourceManager")
        none = _object_of(jvm.scala.collection.immutable, "Map").empty()
        getattr(manager, "dataSourceBuilders_$eq")(jvm.scala.Option.apply(none))
    return session


def _object_of(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def close(spark: SparkContext | SparkSession) -> None:
    """Stop Spark.  The output of its processes is not passed on from now on."""
    quiet_from_now()
    spark.stop()


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
            self._name, options.master, scratch, options.log_level, conf_of(options), self._jvm
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
