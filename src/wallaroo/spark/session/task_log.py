"""The log of Spark's scheduler, of a session that the program has opened.

Where it runs: driver.  Of its own Spark the driver reads stderr (`wallaroo.spark.jvm.stderr`); this
one's belongs to the program, as do its levels and appenders, which stay as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from wallaroo.spark.jvm.settings import ON_THIS_MACHINE, TASKS_LOGGER, TASKS_PATTERN
from wallaroo.spark.jvm.stderr import forward

DAEMON = "spark.python.daemon.module"
APPENDER = "wallaroo-tasks"
PIPE = "tasks.log"


def follow_tasks(context: SparkContext, folder: Path) -> Callable[[], None]:
    """Read the scheduler's lines about failed tasks, through a pipe in ``folder``.

    Return what ends it.  A session with several runs is followed for the first of them.
    """
    jvm: Any = context._jvm
    log4j = jvm.org.apache.logging.log4j
    logs = log4j.LogManager.getContext(False)
    if not hasattr(logs, "getConfiguration"):
        return lambda: None  # the program logs with another library
    configuration = logs.getConfiguration()
    present = configuration.getLoggerConfig(TASKS_LOGGER)
    is_ours = context.getConf().get(DAEMON) == ON_THIS_MACHINE[DAEMON]  # stderr has its deaths
    if is_ours or present.getName() == TASKS_LOGGER:
        return lambda: None  # the latter is another run's, or the program's own
    pipe = folder / PIPE
    os.mkfifo(pipe, 0o600)
    read = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # a writer would wait for it
    core = log4j.core
    layout = core.layout.PatternLayout.newBuilder().withPattern(TASKS_PATTERN).build()
    building = core.appender.FileAppender.newBuilder().setName(APPENDER).setLayout(layout)
    appender = building.withFileName(str(pipe)).build()
    appender.start()
    os.set_blocking(read, True)
    forward(read)
    warnings = log4j.Level.WARN
    logger = core.config.LoggerConfig(TASKS_LOGGER, warnings, False)
    logger.addAppender(appender, warnings, None)
    for theirs in present.getAppenders().values():
        logger.addAppender(theirs, present.getLevel(), None)
    configuration.addLogger(TASKS_LOGGER, logger)
    logs.updateLoggers()

    def unfollow() -> None:
        configuration.removeLogger(TASKS_LOGGER)
        logs.updateLoggers()
        appender.stop()

    return unfollow
