"""The status of a cluster, for people and for ``--json``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wallaroo.processes.table import is_running
from wallaroo.spark.local_cluster.master_api import Executor, MasterView, ask_master, ask_worker
from wallaroo.spark.local_cluster.state import ClusterRecord, WorkerRecord


@dataclass(frozen=True, slots=True)
class ClusterWorker:
    name: str
    host: str
    cores: int
    memory: str
    pid: int
    state: str  # "alive", "decommissioned", "unknown" (to the Master), "dead" (no process)
    executors: tuple[Executor, ...] | None  # None: unknown, no daemon answers


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    folder: str
    url: str
    page: str  # the Master's web page
    pid: int  # the Master's
    state: str  # the Master's: "alive", "recovering", "silent" (runs and does not answer), "dead"
    workers: tuple[ClusterWorker, ...]
    applications: tuple[str, ...] | None  # those that the Master knows; None: it does not answer


def look(folder: Path, record: ClusterRecord) -> ClusterStatus:
    """Return the status, from all daemons on record."""
    is_up = record.master is not None and is_running(record.master)
    view = ask_master(record.ui_port, record.master_host, record.secret) if is_up else None
    state = view.state.lower() if view else "silent" if is_up else "dead"
    return ClusterStatus(
        folder=str(folder),
        url=record.url,
        page=f"http://{record.master_host}:{record.ui_port}",
        pid=record.master.pid if record.master else 0,
        state=state,
        workers=tuple(_worker_status(worker, view, record.secret) for worker in record.workers),
        applications=view.applications if view else None,
    )


def _worker_status(worker: WorkerRecord, view: MasterView | None, secret: str) -> ClusterWorker:
    state = "dead"
    executors: tuple[Executor, ...] | None = ()
    if is_running(worker.process):
        known = view.worker(worker.name) if view else None
        state = known.state.lower() if known else "unknown"
        executors = ask_worker(known.page, secret) if known else None
    return ClusterWorker(
        worker.name,
        worker.host,
        worker.cores,
        worker.memory,
        worker.process.pid,
        state,
        executors,
    )
