"""Start of Spark's own Master and Worker.

The daemons get sessions of their own and outlive the terminal.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wallaroo.durable.whole_file import write_whole
from wallaroo.errors import PeerError, install_command
from wallaroo.processes.cds_archive import options_to_use
from wallaroo.processes.environment import SMALL_JAVA
from wallaroo.spark.local_cluster.secrets import pages_with, settings_with

# In the environment of daemons and of all their descendants.
CLUSTER_MARK = "WALLAROO_CLUSTER"
WORKER_MARK = "WALLAROO_WORKER"
HEAP = "256m"
DECOMMISSION_SIGNAL = "PWR" if hasattr(signal, "SIGPWR") else "INFO"  # macOS has no SIGPWR
LOG_TAIL_BYTES = 64 * 1024

MASTER_SETTINGS = {
    "spark.master.rest.enabled": "false",
    "spark.master.ui.decommission.allow.mode": "DENY",
    "spark.deploy.recoveryMode": "FILESYSTEM",
    # the time that a new Master waits for workers that died with the old one
    "spark.deploy.recoveryTimeout": "10s",
    # otherwise Spark ends an application after ten lost executors
    "spark.deploy.maxExecutorRetries": "-1",
}
SETTINGS = {
    # seconds without a heartbeat; a connection that breaks is noticed at once
    "spark.worker.timeout": "20",
    # a port in use is an error, not a reason to listen on the next
    "spark.port.maxRetries": "0",
    "spark.decommission.enabled": "true",
    "spark.worker.decommission.signal": DECOMMISSION_SIGNAL,
}
# Executors use the same file: their work is not logged in detail.
LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""


class PortTakenError(PeerError):
    """An error: another program listens on a daemon's port."""


def find_spark() -> Path:
    """Return SPARK_HOME or the pyspark package, as the driver finds Spark; import nothing."""
    spec = importlib.util.find_spec("pyspark")
    places = [os.environ.get("SPARK_HOME", ""), *((spec and spec.submodule_search_locations) or ())]
    for place in filter(None, places):
        if (Path(place) / "bin" / "spark-class").exists() and (Path(place) / "jars").is_dir():
            return Path(place)
    raise PeerError(
        f"Spark is not installed for this Python. Install it: {install_command('pyspark==4.3.*')}"
    )


Wrap = Callable[[tuple[str, ...]], tuple[str, ...]]


def as_it_is(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command unchanged: it runs on this process's host."""
    return command


class Daemons:
    """The daemons of one folder.

    Each start returns a child of this process at once.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.marks = (f"{CLUSTER_MARK}={folder}",)
        self._begins: dict[str, int] = {}  # by daemon: the offset in its log of its last start

    def marks_of(self, worker: str) -> tuple[str, ...]:
        """Return the marks in the environment of a worker and of its descendants."""
        return (*self.marks, f"{WORKER_MARK}={worker}")

    def log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def start_master(
        self, host: str, port: int, ui_port: int, secret: str = ""
    ) -> subprocess.Popen[bytes]:
        """Start the Master at these ports of its host."""
        settings = {
            **SETTINGS,
            **MASTER_SETTINGS,
            **settings_with(secret),
            **pages_with(secret),
            "spark.deploy.recoveryDirectory": str(self.folder / "recovery"),
        }
        arguments = ("--host", host, "--port", str(port), "--webui-port", str(ui_port))
        return self._started(
            "master", "master.Master", arguments, settings, {"SPARK_LOCAL_IP": host}
        )

    def start_worker(
        self,
        name: str,
        host: str,
        cores: int,
        memory: str,
        url: str,
        secret: str = "",
        wrapped: Wrap = as_it_is,
    ) -> subprocess.Popen[bytes]:
        """Start a Worker, which registers; ``wrapped``: its command on its host."""
        settings = {
            **SETTINGS,
            **settings_with(secret),
            **pages_with(secret),
            "spark.worker.idPattern": f"{name}.%s.%s.%d",
        }
        work = self.folder / "work" / name
        local = self.folder / "local" / name
        ports = ("--host", host, "--port", "0", "--webui-port", "0")
        sizes = ("--cores", str(cores), "--memory", memory)
        environment = {"SPARK_LOCAL_IP": host, "SPARK_LOCAL_DIRS": str(local), WORKER_MARK: name}
        arguments = (*ports, *sizes, "--work-dir", str(work), url)
        return self._started(name, "worker.Worker", arguments, settings, environment, wrapped)

    def _started(self, name: str, *rest: Any) -> subprocess.Popen[bytes]:
        try:
            return self._start(name, *rest)
        except OSError as error:
            raise PeerError(
                f"{name} cannot be started in {self.folder}: {error}. Use a folder of your own: "
                f"--dir DIR."
            ) from error

    def _start(
        self,
        name: str,
        daemon: str,
        arguments: tuple[str, ...],
        settings: dict[str, str],
        environment: dict[str, str],
        wrapped: Wrap = as_it_is,
    ) -> subprocess.Popen[bytes]:
        spark = find_spark()
        conf = self.folder / "conf"
        log = self.log(name)
        conf.mkdir(exist_ok=True)
        log.parent.mkdir(exist_ok=True)
        (conf / "log4j2.properties").write_text(LOG4J, encoding="utf-8")
        properties = conf / f"{name}.properties"
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        write_whole(properties, lines.encode(), is_durable=False, points="cluster")
        program = (str(spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{daemon}")
        with open(log, "ab") as output:
            self._begins[name] = output.tell()
            return subprocess.Popen(
                wrapped((*program, "--properties-file", str(properties), *arguments)),
                env={**_clean_environment(), **self._environment(spark), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C at the terminal does not reach it
            )

    def _environment(self, spark: Path) -> dict[str, str]:
        archive = options_to_use({**os.environ, "SPARK_HOME": str(spark)}, "")
        return {
            "SPARK_HOME": str(spark),
            # does not exist: Java uses no archive of classes if a folder is among the jars
            "SPARK_CONF_DIR": str(self.folder / "no-conf"),
            "LOG4J_CONFIGURATION_FILE": str(self.folder / "conf" / "log4j2.properties"),
            "SPARK_DAEMON_MEMORY": HEAP,
            "SPARK_DAEMON_JAVA_OPTS": f"{SMALL_JAVA} {archive}".rstrip(),
            "SPARK_LAUNCHER_OPTS": SMALL_JAVA,
            CLUSTER_MARK: str(self.folder),
        }

    def ended_early(self, name: str) -> PeerError:
        """Return the error about a daemon that ended during its start."""
        said = _tail(self.log(name), self._begins.get(name, 0))
        if "BindException" in said or "Address already in use" in said:
            return PortTakenError(
                f"The {name} did not start: another program listens on its port. Choose another "
                f"with --port PORT."
            )
        if (
            "JAVA_HOME" in said
            or "UnsupportedClassVersionError" in said
            or "java: not found" in said
        ):
            return PeerError(
                f"{name} did not start: there is no Java that Spark can use. Run `wallaroo doctor`."
            )
        return PeerError(
            f"{name} ended while it started{_reason(said)}. Its log is {self.log(name)}; also run "
            f"`wallaroo doctor`."
        )


def _clean_environment() -> dict[str, str]:
    """Return the environment without settings of Spark, Python or wallaroo."""
    steering = re.compile(r"SPARK_|PYSPARK_|PYTHONPATH$|WALLAROO_")
    return {name: value for name, value in os.environ.items() if not steering.match(name)}


def _tail(log: Path, begin: int) -> str:
    try:
        with open(log, "rb") as file:
            file.seek(max(begin, log.stat().st_size - LOG_TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _reason(said: str) -> str:
    """Return the last error in a log, in parentheses, without its stack; "" if none."""
    matches = re.findall(
        r"^(?:\S+ \S+ ERROR \w+: (.*)|Caused by: (.*)|Exception in thread .*?: (.*)|(Error: .*))$",
        said,
        re.MULTILINE,
    )
    text = next(filter(None, matches[-1]), "") if matches else ""
    return f" ({text[:200].rstrip('.')})" if text else ""
