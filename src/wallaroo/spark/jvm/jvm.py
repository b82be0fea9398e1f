"""Spark's JVM, a child of the driver that ``spark.jvm_process`` starts."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import threading
from typing import Any

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer

from wallaroo.spark.jvm.jvm_process import CONNECTION, JvmProcess, start_detached
from wallaroo.spark.jvm.settings import public

END_S = 1.0  # from the loss of the connection to the end of the process
_launching = threading.Lock()


class Jvm:
    """The one JVM of this process, kept for later sessions.

    ``begun``: one that is starting.
    """

    def __init__(self, begun: JvmProcess | None = None) -> None:
        self._begun = begun
        self._process: subprocess.Popen[bytes] | None = begun.process if begun else None

    @property
    def settings(self) -> dict[str, str] | None:
        """Return the settings with which the JVM was begun; None if it was not."""
        return self._begun.settings if self._begun else None

    def launch(self, conf: SparkConf, stderr: int) -> None:
        """Start the JVM, unless one is alive."""
        _quiet_python_side()
        with _launching:
            gateway = SparkContext._gateway
            if gateway is not None:
                process = getattr(gateway, "proc", None)
                if process is None or process.poll() is None:
                    self._let_go()
                    return
                SparkContext._gateway = None  # the gateway is dead
                SparkContext._jvm = None
            # PySpark decides which signals a JVM ignores, and offers no other way to add to them
            module: Any = java_gateway
            usual = module.Popen
            module.Popen = self._start
            try:
                made = module.launch_gateway(_public(conf), {"stderr": stderr})
            finally:
                module.Popen = usual
            _protect_calls(made)
            SparkContext._ensure_initialized(gateway=made, conf=conf)

    def _let_go(self) -> None:
        """Kill a JVM that is starting if another run of this process was faster."""
        if self._begun is not None:
            self._begun.process.kill()

    def kill(self) -> None:
        """Kill a JVM that was launched here, together with everything that waits for it."""
        if self._process is not None:
            self._process.kill()

    @property
    def killed_by(self) -> int:
        """Return the signal that ended the JVM; 0 if it is alive, or ended otherwise."""
        if self._process is None:
            return 0
        with contextlib.suppress(subprocess.TimeoutExpired):
            return max(0, -self._process.wait(END_S))
        return 0

    @property
    def has_ended(self) -> bool:
        """Return whether the JVM was started here and has ended."""
        return self._process is not None and self._process.poll() is not None

    def _start(self, command: Any, **keywords: Any) -> subprocess.Popen[bytes]:
        if self._begun is not None:
            # it writes its port to a file of its own: PySpark expects the file here
            os.symlink(self._begun.connection, keywords["env"][CONNECTION])
            return self._begun.process
        self._process = start_detached(command, **keywords)
        return self._process


def _protect_calls(gateway: Any) -> None:
    """Let calls from the JVM carry the gateway's token, and refuse others.

    PySpark leaves them open to all who find the port, and Py4J's JVM side forgets the token with a
    new port.
    """
    token = gateway.gateway_parameters.auth_token
    module: Any = java_gateway
    module.ensure_callback_server_started(gateway)
    client: Any = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()
    kind = client.getClass()
    while kind.getName() != "py4j.CallbackClient":
        kind = kind.getSuperclass()
    field = kind.getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(client, token)
    gateway.callback_server_parameters.auth_token = token


def _public(conf: SparkConf) -> SparkConf:
    """Return the settings that may be on a command line; the context gets all of them."""
    shown = SparkConf(loadDefaults=False)
    return shown.setAll(list(public(dict(conf.getAll())).items()))


def _quiet_python_side() -> None:
    """Hide PySpark's tracebacks about the JVM's death, which the driver reports."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_py4js)  # it uses the root logger as well
    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        server.handle_error = _silent  # type: ignore[method-assign,assignment]  # socketserver prints a traceback


def _is_not_py4js(record: logging.LogRecord) -> bool:
    """Distinguish py4j's records from others by the file that created them."""
    return "/py4j/" not in record.pathname


def _silent(*_: object) -> None:
    """Print nothing."""


def is_jvm_gone() -> bool:
    """Return whether this process had a JVM that has ended.

    A killed process closes its sockets a moment before it has ended: one that answers is not gone.
    """
    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None:
        return False
    with contextlib.suppress(Py4JError, OSError):
        gateway.jvm.System.nanoTime()
        return False
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    return process.poll() is not None


def wait_for_exit(seconds: float) -> None:
    """Wait for this process's JVM, without a session, to write its last output and exit."""
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = None
    SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(seconds)


def jvm_ended_by() -> int:
    """Return the signal that ended this process's JVM; 0 if there is none, or it is unknown."""
    process = getattr(SparkContext._gateway, "proc", None)
    return max(0, -(process.poll() or 0)) if process is not None and is_jvm_gone() else 0
