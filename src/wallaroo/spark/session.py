"""The Spark session: the settings that matter, each measured, and a JVM that keeps quiet.

Where it runs: driver.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark import SparkConf
from pyspark.sql import SparkSession

from wallaroo.class_archive import options_to_use
from wallaroo.errors import PeerError
from wallaroo.package import PACKAGE_ROOT
from wallaroo.spark.jvm import Jvm
from wallaroo.spark.stderr import filtered_stderr, quiet_from_now, quiet_python_side

LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark %p %c{{1}}: %m%n%ex{{{trace}}}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
"""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # a Python stage costs 25 ms less than over TCP
    "spark.python.unix.domain.socket.enabled": "true",
    # offset and commit log: 110 ms -> 40 ms on local disks
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # the offset log of a run is disposable (docs/decisions/0002): no .crc files beside it
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "8",
    "spark.sql.streaming.numRecentProgressUpdates": "8",
    # shuffle files of old batches go when the JVM collects; without traffic there is nothing to
    # collect
    "spark.cleaner.periodicGC.interval": "2min",
    # above so many tasks one sorted file per task; below, a file per pair of tasks (a batch of 32 x
    # 32 tasks: 2.0 s of CPU -> 0.8 s)
    "spark.shuffle.sort.bypassMergeThreshold": "8",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    # local scheduling: a task that waits for a better place waits longer than it runs
    "spark.locality.wait": "0s",
    "spark.driver.memory": "1g",
}


ON_THIS_MACHINE = {
    # a worker is forked with everything imported (half a second of computing each)
    "spark.python.daemon.module": "wallaroo.spark.worker_daemon",
}
ON_CLUSTERS = {
    "spark.executor.memory": "1g",  # of the JVM; Python workers come on top
    # a worker that leaves finishes its tasks and takes no more; else it is ended after 30 s
    "spark.decommission.enabled": "true",
    # a task whose host is busy for a moment (a joining host's probe) waits rather than read its
    # state elsewhere
    "spark.locality.wait": "100ms",
    # a host that is gone or silent: a batch hangs for seconds, not for minutes
    "spark.shuffle.io.retryWait": "1s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.connectionTimeout": "10s",
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "2s",
    "spark.executor.heartbeatInterval": "3s",
}
# the JVM passes bytes on: its second compiler takes a quarter of a core in the first minute, and
# nothing gets quicker (docs/decisions/0008)
COMPILER = "-XX:TieredStopAtLevel=1"
# Spark's own default on clusters; on local masters it would give up at the first lost worker
TASK_ATTEMPTS = 4
# ours -> Spark's
LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR", "off": "OFF"}


def is_local(master: str) -> bool:
    """Whether a master is one process on this host.

    >>> is_local("local"), is_local("local[2,4]"), is_local("local-cluster[2,1,1024]"), is_local("spark://host:7077")
    (True, True, False, False)
    """
    return master == "local" or master.startswith("local[")


def is_loopback(master: str) -> bool:
    """Whether a master is on this very host, and so everything else is.

    >>> masters = ("local[*]", "spark://127.0.0.1:7077", "spark://host:7077", "yarn")
    >>> tuple(map(is_loopback, masters))
    (True, True, False, False)
    """
    host = master.partition("://")[2].rpartition(":")[0]
    return master.startswith("local") or host == "localhost" or host.startswith("127.")


def open_session(
    application: str,
    master: str,
    scratch: Path,
    log_level: str,
    settings: tuple[tuple[str, str], ...],
    jvm: Jvm | None = None,
) -> SparkSession:
    """Start Spark.  Raises PeerError, with the fix, where Java or the master cannot be had.

    ``jvm`` is for who wants to end it in the middle of that.
    """
    log4j = scratch / "log4j2.properties"
    trace = "full" if log_level in ("debug", "info") else "none"
    log4j.write_text(LOG4J.format(level=LEVELS[log_level].lower(), trace=trace))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_loopback(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # workers and the planner import this very package, installed or not
    package = str(PACKAGE_ROOT.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (package, os.environ.get("PYTHONPATH", "")))
    )
    own = {"spark.local.dir": str(scratch), **ON_THIS_MACHINE} if is_local(master) else ON_CLUSTERS
    chosen = {**SETTINGS, **own, **dict(settings)}
    # the whole heap from the start: otherwise it grows to its bound over minutes, which looks like
    # a leak and may fail at 3 a.m.
    driver = "spark.driver.extraJavaOptions"
    archive = options_to_use(os.environ, chosen.get(driver, ""))
    heap = f"-XX:+UseParallelGC -Xms{chosen['spark.driver.memory']} -XX:+AlwaysPreTouch"
    _put_in_front(
        chosen,
        driver,
        f"-Dlog4j2.configurationFile=file:{log4j} {heap} {COMPILER} {archive}".rstrip(),
    )
    _put_in_front(chosen, "spark.executor.extraJavaOptions", COMPILER)
    conf = SparkConf(loadDefaults=False)
    conf.setMaster(_retrying(master)).setAppName(application)
    conf.setAll(list(chosen.items()))
    quiet_python_side()
    stderr = filtered_stderr()
    try:
        (jvm or Jvm()).launch(conf, stderr)
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as error:  # the JVM's own words do not help: it is Java, or the master
        raise PeerError(
            f"Spark did not start with master '{master}': {type(error).__name__}. "
            "Run `wallaroo doctor`: Java 17 or newer must be installed (or JAVA_HOME set), and "
            "the master must be reachable."
        ) from error
    finally:
        os.close(stderr)
    session.sparkContext.setLogLevel(LEVELS[log_level])
    return session


def _put_in_front(settings: dict[str, str], name: str, options: str) -> None:
    """Let what the user gave come last: of two options that contradict each other Java takes the
    last one.

    >>> settings = {"driver": "-Xss2m"}
    >>> given = [_put_in_front(settings, who, "-Xss1m") for who in ("driver", "executor")]
    >>> (*given, settings)
    (None, None, {'driver': '-Xss1m -Xss2m', 'executor': '-Xss1m'})
    """
    settings[name] = f"{options} {settings.get(name, '')}".rstrip()


def _retrying(master: str) -> str:
    """Let a local Spark run a task again whose worker was killed, as a cluster does; errors of
    tasks are reports, never retried.

    >>> _retrying("local[2]"), _retrying("local"), _retrying("local[2,1]"), _retrying("spark://host:7077")
    ('local[2,4]', 'local[1,4]', 'local[2,1]', 'spark://host:7077')
    """
    if master == "local":
        return f"local[1,{TASK_ATTEMPTS}]"
    is_plain = master.startswith("local[") and "," not in master
    return f"{master[:-1]},{TASK_ATTEMPTS}]" if is_plain else master


def close_session(session: SparkSession) -> None:
    """Stop Spark.  What its processes print from here on is not passed on."""
    quiet_from_now()
    session.stop()
