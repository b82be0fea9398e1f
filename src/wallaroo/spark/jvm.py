"""Spark's JVM as a child of the driver.

Where it runs: driver.

It lives in a session of its own and ignores SIGTERM and SIGINT: a signal to the driver's whole
process group asks the driver to stop, and Spark is needed for that.  It ends when its stdin does,
so with the driver, however that dies.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from typing import Any

from pyspark import SparkConf, SparkContext, java_gateway

_launching = threading.Lock()


class Jvm:
    """The JVM of this process; one at a time, which stays for later sessions."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, conf: SparkConf, stderr: int) -> None:
        """Start it, unless there is one that lives."""
        with _launching:
            gateway = SparkContext._gateway
            if gateway is not None:
                process = getattr(gateway, "proc", None)
                if process is None or process.poll() is None:
                    return
                SparkContext._gateway = None  # a dead one
                SparkContext._jvm = None
            # PySpark decides what a JVM ignores, and offers no other way to add to it
            module: Any = java_gateway
            usual = module.Popen
            module.Popen = self._start
            try:
                made = module.launch_gateway(conf, {"stderr": stderr})
            finally:
                module.Popen = usual
            SparkContext._ensure_initialized(gateway=made, conf=conf)

    def kill(self) -> None:
        """End one that was launched here, with whatever waits for it."""
        if self._process is not None:
            self._process.kill()

    def _start(self, command: Any, **keywords: Any) -> subprocess.Popen[bytes]:
        keywords |= {"preexec_fn": _ignore_signals, "start_new_session": True}
        self._process = subprocess.Popen(command, **keywords)
        return self._process


def _ignore_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def wait_for_exit(seconds: float) -> None:
    """End the JVM of this process, as its own end would, and wait until it has written what it
    writes at exit.  There must be no session.
    """
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = None
    SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(seconds)
