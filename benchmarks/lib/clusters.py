"""A cluster on this machine under measurement: its Spark session, and the processor time of its
processes.  Linux only.

Where it runs: the benchmark's process, which is the driver.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from pyspark.sql import SparkSession

from benchmarks.lib.processes import descendants
from benchmarks.lib.runs import DRIVER_MEMORY
from wallaroo.runtime.tasks.job import VIEW_DIR
from wallaroo.spark.local_cluster import LocalCluster
from wallaroo.spark.session.host_session import open_context, session_in
from wallaroo.spark.session.shipping import ship

EXECUTOR_MEMORY = "512m"  # several executors on one machine
TICKS = os.sysconf("SC_CLK_TCK")  # of a second, in /proc/<pid>/stat


@contextmanager
def cluster_of(
    folder: Path,
    workers: int,
    cores: int = 1,
    more: Iterable[tuple[str, str]] = (),
    memory: str = EXECUTOR_MEMORY,
) -> Iterator[tuple[LocalCluster, SparkSession]]:
    """A master and workers with ``cores`` cores each, as many as are asked for, and a session on
    them: of the product's settings, and ``more``."""
    signal.signal(signal.SIGTERM, _leave)
    with LocalCluster.start(folder / "cluster", workers, cores, memory) as cluster:
        scratch = folder / "spark"
        scratch.mkdir()
        settings = (
            ("spark.driver.memory", DRIVER_MEMORY),
            ("spark.executor.memory", memory),
            (f"spark.executorEnv.{VIEW_DIR}", str(folder / "views")),
            *more,
        )
        session = session_in(open_context("benchmark", cluster.url, scratch, "error", settings))
        try:
            with _shipped_once():
                yield cluster, session
        finally:
            session.stop()


def _leave(number: int, frame: FrameType | None) -> None:
    """End as if by an error: the cluster's processes are not this one's to leave behind."""
    sys.exit(128 + number)


@contextmanager
def _shipped_once() -> Iterator[None]:
    """Let only the first run of a session ship its code: that of the others is the same, and the
    executors have it.
    """
    is_shipped = False

    def ship_first(*args: Any) -> None:
        nonlocal is_shipped
        if not is_shipped:
            ship(*args)
        is_shipped = True

    with mock.patch("wallaroo.spark.base_host.ship", ship_first):
        yield


def driver_pids(session: SparkSession) -> list[int]:
    """This process, and Spark's JVM beside it."""
    gateway = session.sparkContext._gateway
    assert gateway is not None
    return [os.getpid(), *descendants(gateway.proc.pid)]


def executor_pids(cluster: LocalCluster, application_id: str = "") -> list[int]:
    """The workers, their executors and all Python workers; those of one application if it is
    named.
    """
    pids = [pid for worker in cluster.status().workers for pid in descendants(worker.pid)]
    if not application_id:
        return pids
    executors = [pid for pid in pids if application_id in _command(pid)]
    return sorted({pid for executor in executors for pid in descendants(executor)})


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def cpu_s(pids: Iterable[int]) -> float:
    """Processor time that processes have had, in seconds; one that has gone had none."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # utime, stime: of the process itself, not of its children
        total += int(fields[11]) + int(fields[12])
    return total / TICKS
