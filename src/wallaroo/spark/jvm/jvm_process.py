"""The process of Spark's JVM, begun before PySpark is imported.

Each takes a second, so they run in parallel.

It runs in a session of its own and ignores SIGTERM and SIGINT: a signal to the driver's whole
process group asks the driver to stop, and Spark is needed for that.  It ends when its stdin does,
which it watches once it has started; before that the kernel ends it with the driver (Linux).  While
it runs it shares the lock of the run's scratch folder, in which it works.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wallaroo.durable.scratch import Scratch, make_scratch
from wallaroo.options import RunOptions
from wallaroo.processes.environment import spark_home, submit_arguments
from wallaroo.processes.orphans import ending_with_this_process, from_lasting_thread
from wallaroo.spark.jvm.settings import conf_of, prepare_environment, public, settings_of
from wallaroo.spark.jvm.stderr import filtered_stderr

CONNECTION = "_PYSPARK_DRIVER_CONN_INFO_PATH"  # variable: the file with the JVM's port


@dataclass(frozen=True, slots=True)
class JvmProcess:
    """A JVM that is starting, with its folder."""

    process: subprocess.Popen[bytes]
    settings: dict[str, str]
    scratch: Scratch

    @property
    def connection(self) -> Path:
        """Return the file to which the JVM writes its port, once it listens."""
        return _connection_in(self.scratch)

    def discard(self) -> None:
        """End the JVM and remove its folder: there will be no run."""
        self.process.kill()
        self.process.wait()
        self.scratch.remove()


def begin_jvm(application: str, options: RunOptions) -> JvmProcess | None:
    """Start Spark's JVM in the background, as PySpark would.

    None if this process has one already, or PySpark's program for it is missing: then PySpark
    starts it.
    """
    program = _submit_program()
    if program is None or _has_jvm():
        return None
    scratch = make_scratch()
    prepare_environment(options.master)
    settings = settings_of(
        application, options.master, scratch.path, options.log_level, conf_of(options)
    )
    command = [str(program)]
    for name, value in public(settings).items():
        command += ["--conf", f"{name}={value}"]
    command += shlex.split(submit_arguments())
    environment = {
        **os.environ,
        "SPARK_CONNECT_MODE": "0",
        CONNECTION: str(_connection_in(scratch)),
    }
    stderr = filtered_stderr()
    try:
        process = start_detached(
            command, stdin=subprocess.PIPE, stderr=stderr, env=environment, pass_fds=(scratch.lock,)
        )
    finally:
        os.close(stderr)
    return JvmProcess(process, settings, scratch)


def start_detached(command: Any, **keywords: Any) -> subprocess.Popen[bytes]:
    """Start a process that no signal to this one's group reaches, and that ends with this one."""
    keywords |= {"preexec_fn": ending_with_this_process(_ignore_signals), "start_new_session": True}
    return from_lasting_thread(lambda: subprocess.Popen(command, **keywords))


def _ignore_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _connection_in(scratch: Scratch) -> Path:
    return scratch.path / "jvm"


def _has_jvm() -> bool:
    """Return whether a session of this process has started a JVM, or spark-submit has."""
    pyspark = sys.modules.get("pyspark")
    is_given = "PYSPARK_GATEWAY_PORT" in os.environ
    return is_given or (pyspark is not None and pyspark.SparkContext._gateway is not None)


def _submit_program() -> Path | None:
    home = spark_home()
    program = None if home is None else home / "bin" / "spark-submit"
    return program if program is not None and os.access(program, os.X_OK) else None
