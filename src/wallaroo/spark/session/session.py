"""Spark's context and session: opened, with a quiet JVM, and closed.

Resident tasks need a context alone: a session loads Spark SQL, 0.9 s of the 2.7 s of processor time
that the JVM takes for a start.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from wallaroo.errors import PeerError
from wallaroo.spark.jvm.jvm import Jvm
from wallaroo.spark.jvm.settings import DRIVER_MEMORY, LEVELS, prepare_environment, settings_of
from wallaroo.spark.jvm.stderr import filtered_stderr, quiet_from_now, reason_of_end


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
    _know_installed_sources(session)
    return session


def _know_installed_sources(session: SparkSession) -> None:
    """Keep Spark from starting a Python process to ask which data sources are installed.

    This package registers its own.  If Spark's internals have changed, it asks.
    """
    jvm: Any = session._jvm
    with contextlib.suppress(Py4JError, TypeError):
        datasources = jvm.org.apache.spark.sql.execution.datasources
        manager = _object_of(datasources, "DataSourceManager")
        none = _object_of(jvm.scala.collection.immutable, "Map").empty()
        getattr(manager, "dataSourceBuilders_$eq")(jvm.scala.Option.apply(none))


def _object_of(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def close(spark: SparkContext | SparkSession) -> None:
    """Stop Spark.  The output of its processes is not passed on from now on."""
    quiet_from_now()
    spark.stop()
