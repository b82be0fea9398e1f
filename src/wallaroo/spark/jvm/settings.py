"""The settings that Spark is started with, each measured.

Nothing here needs PySpark: a JVM begins to start before that is imported.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from wallaroo.network.urls import SECRETS
from wallaroo.options import RunOptions
from wallaroo.processes.cds_archive import options_to_use
from wallaroo.processes.environment import PACKAGE_ROOT, SMALL_JAVA
from wallaroo.spark.local_cluster.secrets import AUTHENTICATED, secret_of, settings_with

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
# Attempts of failed tasks, at any level; `wallaroo.spark.jvm.stderr` reads their lines.
LOST_TASKS = """\
rootLogger.appenderRef.stderr.level = {level}
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = {tasks}
logger.tasks.appenderRef.tasks.ref = tasks
appender.tasks.type = Console
appender.tasks.name = tasks
appender.tasks.target = SYSTEM_ERR
appender.tasks.layout.type = PatternLayout
appender.tasks.layout.pattern = {pattern}
"""
# the logger above, and its messages in one line each, without the stack below
TASKS_LOGGER = "org.apache.spark.scheduler.TaskSetManager"
TASKS_PATTERN = r"wallaroo tasks: %replace{%m}{[\r\n]+}{ }%n%ex{none}"

DRIVER_MEMORY = "spark.driver.memory"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # a Python stage costs 25 ms less than over TCP
    "spark.python.unix.domain.socket.enabled": "true",
    # offset and commit log: 110 ms -> 40 ms on local disks
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # the offset log of a run is disposable (docs/decisions/0002): no .crc files for it
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "8",
    "spark.sql.streaming.numRecentProgressUpdates": "8",
    # shuffle files of old batches go when the JVM collects; without traffic there is nothing to
    # collect
    "spark.cleaner.periodicGC.interval": "2min",
    # above this many tasks one sorted file per task; below, a file per pair of tasks (a batch of
    # 32 x 32 tasks: 2.0 s of CPU -> 0.8 s)
    "spark.shuffle.sort.bypassMergeThreshold": "8",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    # local scheduling: a task that waits for a better place waits longer than it runs
    "spark.locality.wait": "0s",
    DRIVER_MEMORY: "1g",
}
# Resident tasks on one machine are all that the JVM starts: no event passes it, and 45 MB live
# (docs/decisions/0074).  Spark refuses a heap below 1.5 times what it reserves: 300 MB.
SMALL_JVM = ((DRIVER_MEMORY, "128m"), ("spark.testing.reservedMemory", str(32 * 2**20)))
# Without shuffles there is nothing to remove, and the thread that would wakes ten times a second.
# Heartbeats go to the JVM itself; Spark wants them more often than its timeout.
NETWORK_TIMEOUT = "spark.network.timeout"
IDLE_JVM = (
    ("spark.cleaner.referenceTracking", "false"),
    ("spark.executor.heartbeatInterval", "60s"),
)


ON_THIS_MACHINE = {
    # a worker is forked with everything imported (half a second of computing each)
    "spark.python.daemon.module": "wallaroo.spark.session.worker_daemon",
    **AUTHENTICATED,  # Spark creates a secret of its own: other users of this machine get nothing
}
ON_CLUSTERS = {
    "spark.executor.memory": "1g",  # the JVM's; Python workers come on top
    # a worker that leaves finishes its tasks and accepts no more; else it is ended after 30 s
    "spark.decommission.enabled": "true",
    # a task whose host is busy for a moment (a joining host's probe) waits rather than read its
    # state elsewhere
    "spark.locality.wait": "100ms",
    # a host that is lost or silent: a batch hangs for seconds, not for minutes
    "spark.shuffle.io.retryWait": "1s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.connectionTimeout": "10s",
    NETWORK_TIMEOUT: "30s",
    "spark.network.timeoutInterval": "2s",
    "spark.executor.heartbeatInterval": "3s",
}
# the JVM passes bytes on: its second compiler uses a quarter of a core in the first minute, and
# nothing gets faster (docs/decisions/0008)
COMPILER = "-XX:TieredStopAtLevel=1"
# for a JVM that decodes rows itself, as that of a Spark source does; Java uses the last option
BOTH_COMPILERS = "-XX:TieredStopAtLevel=4"
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
# tools that list JVMs read it; Java wakes twenty times a second to write it
NO_SAMPLES = "-XX:-UsePerfData"
# what a JVM prints when it cannot start, too: stdout is for the application's outputs
TO_STDERR = "-XX:+DisplayVMOutputToStderr"
COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
# Spark's own default on clusters; on local masters it would give up at the first lost worker
TASK_ATTEMPTS = 4
# The longest folder of Unix sockets: a name has 42 characters, an address 107.
SOCKET_FOLDER_LENGTH_MAX = 64
# our levels, and those of Spark
LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR", "off": "OFF"}


def is_local(master: str) -> bool:
    """Return whether a master is one process on this host.

    >>> is_local("local"), is_local("local[2,4]"), is_local("local-cluster[2,1,1024]"), is_local("spark://host:7077")
    (True, True, False, False)
    """
    return master == "local" or master.startswith("local[")


def is_loopback(master: str) -> bool:
    """Return whether a master is on this very host, and so everything else is.

    >>> masters = ("local[*]", "spark://127.0.0.1:7077", "spark://host:7077", "yarn")
    >>> tuple(map(is_loopback, masters))
    (True, True, False, False)
    """
    host = master.partition("://")[2].rpartition(":")[0]
    return master.startswith("local") or host == "localhost" or host.startswith("127.")


def conf_of(options: RunOptions) -> tuple[tuple[str, str], ...]:
    """Return a run's settings: the user's, with a small JVM if sufficient for its host.

    >>> conf_of(RunOptions(master="local[2]").on(is_shared=False))[0]
    ('spark.driver.memory', '128m')
    """
    if not options.is_resident or not is_local(options.master):
        return options.spark_conf
    chosen = dict(options.spark_conf)
    small = () if DRIVER_MEMORY in chosen else SMALL_JVM
    idle = () if NETWORK_TIMEOUT in chosen else IDLE_JVM
    return (*small, *idle, *options.spark_conf)


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def settings_of(
    application: str, master: str, scratch: Path, log_level: str, given: tuple[tuple[str, str], ...]
) -> dict[str, str]:
    """Return a new Spark's settings, ``given`` over ours; write its log's file."""
    log4j = scratch / "log4j2.properties"
    trace = "full" if log_level in ("debug", "info") else "none"
    log4j.write_text(_log4j(LEVELS[log_level].lower(), trace, master))
    own = _of_this_machine(scratch) if is_local(master) else _of_cluster(master)
    chosen = {**SETTINGS, **own, **dict(given)}
    theirs = chosen.get(DRIVER_OPTIONS, "")
    archive = options_to_use(os.environ, theirs)
    heap = heap_options(chosen[DRIVER_MEMORY])
    if COLLECTOR.search(theirs):  # Java does not start with two collectors
        heap = COLLECTOR.sub("", heap).strip()
    of_java = f"{TO_STDERR} {heap} {COMPILER} {NO_SAMPLES}"
    put_in_front(
        chosen,
        DRIVER_OPTIONS,
        f"-Dlog4j2.configurationFile=file:{log4j} {of_java} {archive}".rstrip(),
    )
    executor = "spark.executor.extraJavaOptions"
    archive = options_to_use(os.environ, chosen.get(executor, "")) if is_loopback(master) else ""
    put_in_front(chosen, executor, f"{COMPILER} {archive}".rstrip())
    return {"spark.master": _retrying(master), "spark.app.name": application, **chosen}


def _of_this_machine(scratch: Path) -> dict[str, str]:
    own = {"spark.local.dir": str(scratch), **ON_THIS_MACHINE}
    if len(str(scratch)) <= SOCKET_FOLDER_LENGTH_MAX:
        own["spark.python.unix.domain.socket.dir"] = str(scratch)  # private under any umask
    return own


def _log4j(level: str, trace: str, master: str) -> str:
    common = LOG4J.format(level=level, trace=trace)
    if is_local(master):
        return common
    tasks = "warn" if level in ("error", "off") else level
    return common + LOST_TASKS.format(level=level, tasks=tasks, pattern=TASKS_PATTERN)


def _of_cluster(master: str) -> dict[str, str]:
    return {**ON_CLUSTERS, **settings_with(secret_of(master))}


def public(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings without secrets.

    Other users see command lines, so secrets reach the JVM by its connection.

    >>> public({"spark.app.name": "App", "spark.authenticate.secret": "x"})
    {'spark.app.name': 'App'}
    """
    return {name: text for name, text in settings.items() if not SECRETS.search(name)}


def prepare_environment(master: str) -> None:
    """Set the environment of Spark's processes."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # the program that finds the JVM's command line
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", SMALL_JAVA)
    if is_loopback(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # workers import this very package, installed or not
    package = str(PACKAGE_ROOT.parent)
    paths = os.environ.get("PYTHONPATH", "")
    if paths.split(os.pathsep)[0] != package:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (package, paths)))


def heap_options(size: str, huge_pages: Path = HUGE_PAGES) -> str:
    """Return options that allocate the whole heap at the start.

    Otherwise it grows to its bound over minutes, which looks like a leak and may fail at 3 a.m.  In
    huge pages that takes a third of the time.
    """
    heap = f"-XX:+UseParallelGC -Xms{size} -XX:+AlwaysPreTouch"
    try:
        has_huge_pages = "[never]" not in huge_pages.read_text()
    except OSError:
        has_huge_pages = False
    return f"{heap} -XX:+UseTransparentHugePages" if has_huge_pages else heap


def put_in_front(settings: dict[str, str], name: str, options: str) -> None:
    """Put our options before the user's.

    If two options contradict each other, Java uses the last one.

    >>> settings = {"driver": "-Xss2m"}
    >>> given = [put_in_front(settings, who, "-Xss1m") for who in ("driver", "executor")]
    >>> (*given, settings)
    (None, None, {'driver': '-Xss1m -Xss2m', 'executor': '-Xss1m'})
    """
    settings[name] = f"{options} {settings.get(name, '')}".rstrip()


def _retrying(master: str) -> str:
    """Return a master whose local Spark retries a task if its worker was killed, as a cluster does.

    Errors of tasks are reports, never retried.

    >>> _retrying("local[2]"), _retrying("local"), _retrying("local[2,1]"), _retrying("spark://host:7077")
    ('local[2,4]', 'local[1,4]', 'local[2,1]', 'spark://host:7077')
    """
    if master == "local":
        return f"local[1,{TASK_ATTEMPTS}]"
    is_plain = master.startswith("local[") and "," not in master
    return f"{master[:-1]},{TASK_ATTEMPTS}]" if is_plain else master
