"""Removal of workers: decommissioning by Spark, or SIGKILL for all processes.

A decommissioned Worker gets no new executors, and each of its executors is informed, through the
driver, to take no new tasks and to end when it has none; the Worker's own process stays forever,
so it is ended here when its last executor is gone.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass

from wallaroo.errors import PeerError
from wallaroo.processes import table as processes
from wallaroo.processes.table import Process
from wallaroo.spark.local_cluster.daemons import DECOMMISSION_SIGNAL
from wallaroo.spark.local_cluster.master_api import DECOMMISSIONED, ask_master, ask_worker
from wallaroo.spark.local_cluster.state import ClusterRecord, WorkerRecord

GRACE_S = 10.0  # between SIGTERM and SIGKILL
POLL_S = 0.05
KILL_ROUNDS = 5  # to find processes started while the others were killed


@dataclass(frozen=True, slots=True)
class WorkerRemoval:
    name: str
    seconds: float
    how: str  # "finished" its tasks, "timed out", "killed", "dead" before


def let_leave(
    record: ClusterRecord, worker: WorkerRecord, marks: tuple[str, ...], timeout_s: float
) -> str:
    """Decommission a worker, await its executors, end it.  PeerError: there is no Master."""
    if not processes.is_running(worker.process):
        # executors end with their worker by themselves, if they can
        processes.kill(process_tree(worker, marks))
        return "dead"
    view = ask_master(record.ui_port, record.master_host, record.secret)
    if view is None:
        raise PeerError(
            f"{worker.name} cannot leave in order: the master at {record.url} does not answer. "
            f"--kill needs none."
        )
    known = view.worker(worker.name)
    processes.send(worker.process, getattr(signal, f"SIG{DECOMMISSION_SIGNAL}"))
    is_done = known is None or _wait_for_executors(record, worker, known.page, timeout_s)
    processes.end([worker.process], GRACE_S)  # it ends the remaining executors
    processes.kill(process_tree(worker, marks))
    return "finished" if is_done else "timed out"


def kill(worker: WorkerRecord, marks: tuple[str, ...]) -> str:
    """Kill a worker and its descendants by SIGKILL; return ``WorkerRemoval.how``."""
    was_running = processes.send(worker.process, signal.SIGSTOP)  # it starts no more processes
    for _ in range(KILL_ROUNDS):
        found = process_tree(worker, marks)
        if not found:
            break
        processes.kill(found)
    return "killed" if was_running else "dead"


def process_tree(worker: WorkerRecord, marks: tuple[str, ...]) -> list[Process]:
    """Return worker, executors and their Pythons, by descent and by mark."""
    found = [*processes.with_descendants([worker.process]), *processes.marked(*marks)]
    return list({process.pid: process for process in found}.values())


def _wait_for_executors(
    record: ClusterRecord, worker: WorkerRecord, page: str, timeout_s: float
) -> bool:
    deadline = time.monotonic() + timeout_s
    while processes.is_running(worker.process):
        view = ask_master(record.ui_port, record.master_host, record.secret)
        known = view.worker(worker.name) if view else None
        # asked in this order: once decommissioned it gets no more executors
        if known and known.state == DECOMMISSIONED and ask_worker(page, record.secret) == ():
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
