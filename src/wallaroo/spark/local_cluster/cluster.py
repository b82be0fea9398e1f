"""A Spark cluster on this machine, as an object.

It is one Master and any number of Workers, each a process with a loopback host of its own.

The object holds nothing but the folder: every command reads the record again, so that several
terminals may command one cluster.

    with LocalCluster.start(tmp_path, workers=2) as cluster:  # leaving it stops everything
        run_application(cluster.url)
        cluster.add_worker()
        cluster.kill_worker("worker-1")
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

from wallaroo.errors import PeerError
from wallaroo.processes import table as processes
from wallaroo.processes.table import Process
from wallaroo.spark.local_cluster import state
from wallaroo.spark.local_cluster.daemons import Daemons, PortTakenError
from wallaroo.spark.local_cluster.hosts import Loopback, Places, free_ports, is_free
from wallaroo.spark.local_cluster.leaving import GRACE_S, WorkerRemoval, kill, let_leave
from wallaroo.spark.local_cluster.master_api import ALIVE, ask_master
from wallaroo.spark.local_cluster.secrets import new_secret, publish, withdraw
from wallaroo.spark.local_cluster.state import ClusterRecord, WorkerRecord
from wallaroo.spark.local_cluster.status import ClusterStatus, look

START_S = 90.0  # a daemon needs 2 s; on a busy machine it took 20 s
LEAVE_S = 30.0  # until a worker's executors have finished their tasks
POLL_S = 0.05
PORT_S_MAX = 5.0  # until the port of a killed process is free, which once took a while
PORT_TRIES = 3
MEMORY_DEFAULT = "1g"
KEPT = ("logs", "work")  # after a stop, until the next start, for diagnosis
CLEARED = ("conf", "local", "recovery")
FIX = "End that, or start a new cluster with another --port PORT."


class LocalCluster:
    """The cluster that a folder describes.

    Every method raises PeerError, with the fix.
    """

    def __init__(self, folder: Path, places: Places | None = None, start_s: float = START_S):
        self.folder = folder.resolve()
        self._places = places or Loopback()
        self._start_s = start_s
        self._daemons = Daemons(self.folder)
        # to reap the processes that this one started
        self._children: list[subprocess.Popen[bytes]] = []

    # -- starting and stopping

    @classmethod
    def start(
        cls,
        folder: Path,
        workers: int = 1,
        cores: int | None = None,
        memory: str = MEMORY_DEFAULT,
        port: int = 0,
        places: Places | None = None,
        start_s: float = START_S,
    ) -> Self:
        """Start a Master and Workers and wait until all are registered.

        No process stays if that fails.  ``cores`` and ``memory`` are each Worker's; without
        ``cores`` they share this machine's.  Port 0 is any free one.  ``places`` are their hosts,
        if not loopback addresses.  They have ``start_s`` to come up.
        """
        cluster = cls(folder, places, start_s)
        state.prepare(cluster.folder)
        with state.locked(cluster.folder):
            cluster._refuse_if_running()
            for name in (*KEPT, *CLEARED):
                shutil.rmtree(cluster.folder / name, ignore_errors=True)
            share = cores or max(1, cores_here() // max(1, workers))
            state.write(cluster.folder, ClusterRecord(share, memory))
            try:
                host = cluster._places.master_host
                record = ClusterRecord(share, memory, master_host=host, secret=new_secret())
                cluster._start_master_anywhere(record, port)
                cluster._start_workers(range(1, workers + 1), share, memory)
            except BaseException:
                cluster._end_everything()
                raise
        return cluster

    @classmethod
    def attach(cls, folder: Path) -> Self:
        """Return the cluster that was started in this folder, by any process."""
        cluster = cls(folder)
        cluster._record()
        return cluster

    def stop(self) -> int:
        """End this folder's processes, in any state; return their number.  Logs stay."""
        if not state.is_ours(self.folder) and not processes.marked(*self._daemons.marks):
            return 0
        with state.locked(self.folder):
            return self._end_everything()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    # -- the workers

    @property
    def url(self) -> str:
        """Return the address for ``wallaroo run --master``."""
        return self._record().url

    def workers(self) -> tuple[str, ...]:
        """Return the names of the workers on record, oldest first; dead ones too."""
        return tuple(worker.name for worker in self._record().workers)

    def add_worker(
        self, name: str | None = None, cores: int | None = None, memory: str | None = None
    ) -> str:
        """Start a registered Worker, or the dead one ``name``; return its name."""
        with self._changing() as record:
            self._refuse_if_ended(record)
            if not (record.master and processes.is_running(record.master)):
                raise PeerError(
                    f"The master is dead. {self._command('restart-master')} starts it again at "
                    f"{record.url}."
                )
            number = record.next_number if name is None else self._dead_worker(record, name).number
            self._start_workers((number,), cores or record.cores, memory or record.memory)
            return state.worker_name(number)

    def remove_worker(
        self, name: str | None = None, graceful: bool = True, timeout_s: float = LEAVE_S
    ) -> WorkerRemoval:
        """Remove a worker, the newest if not named, and forget it.

        ``graceful``: Spark decommissions it.  It gets no new tasks, its executors finish theirs and
        leave if their application has ``spark.decommission.enabled``; after ``timeout_s`` they are
        ended.  Otherwise all its processes get SIGKILL.
        """
        with self._changing() as record:
            worker = self._worker(record, name)
            begin = time.monotonic()
            marks = self._daemons.marks_of(worker.name)
            how = let_leave(record, worker, marks, timeout_s) if graceful else kill(worker, marks)
            state.write(self.folder, record.without_worker(worker.name))
            return WorkerRemoval(worker.name, time.monotonic() - begin, how)

    def kill_worker(self, name: str) -> None:
        """Simulate a power failure of the worker's machine.

        The Worker, its executors and their Python processes get SIGKILL.  It stays on record, dead;
        `add_worker` starts it again.
        """
        with self._changing() as record:
            kill(self._worker(record, name), self._daemons.marks_of(name))

    # -- the master

    def kill_master(self) -> None:
        """Kill the Master by SIGKILL; Workers and applications stay and wait for it."""
        with self._changing() as record:
            processes.kill([record.master] if record.master else [])
            until = time.monotonic() + PORT_S_MAX
            while not is_free(record.master_host, record.port) and time.monotonic() < until:
                time.sleep(POLL_S)

    def restart_master(self) -> None:
        """Start the Master again at its port, and wait until it has found the live Workers."""
        with self._changing() as record:
            if record.master and processes.is_running(record.master):
                raise PeerError(f"The master at {record.url} is running.")
            self._start_master(record)
            self._wait_for_workers(
                [worker for worker in record.workers if processes.is_running(worker.process)]
            )

    def status(self) -> ClusterStatus:
        """Return the status; raise PeerError if no process of the cluster runs."""
        record = self._record()
        self._refuse_if_ended(record)
        return look(self.folder, record)

    # -- records

    def _record(self) -> ClusterRecord:
        record = state.read(self.folder)
        if record is None or not record.processes():
            raise PeerError(
                f"There is no cluster in {self.folder}. {self._command('start')} starts one."
            )
        return record

    @contextlib.contextmanager
    def _changing(self) -> Iterator[ClusterRecord]:
        """Hold the lock on the cluster during a change."""
        self._record()
        with state.locked(self.folder):
            yield self._record()
            for child in self._children:
                child.poll()

    def _command(self, verb: str) -> str:
        return state.command(verb, self.folder)

    def _worker(self, record: ClusterRecord, name: str | None) -> WorkerRecord:
        if not record.workers:
            raise PeerError(
                f"The cluster has no workers. {self._command('add-worker')} starts one."
            )
        worker = record.workers[-1] if name is None else record.worker(name)
        if worker is None:
            raise PeerError(
                f"The cluster has no worker '{name}'. It has "
                f"{', '.join(each.name for each in record.workers)}; one that was removed does "
                f"not come back. {self._command('add-worker')} starts a new one."
            )
        return worker

    def _dead_worker(self, record: ClusterRecord, name: str) -> WorkerRecord:
        worker = self._worker(record, name)
        if processes.is_running(worker.process):
            raise PeerError(f"{name} is running.")
        return worker

    # -- preconditions

    def _refuse_if_running(self) -> None:
        record = state.read(self.folder)
        if record and record.is_running():
            raise PeerError(
                f"A cluster is running in {self.folder}, at {record.url}. "
                f"{self._command('add-worker')} makes it larger, {self._command('stop')} ends it; "
                "a second one needs a folder of its own: --dir DIR."
            )
        processes.kill(processes.marked(*self._daemons.marks))  # remains of an earlier cluster

    def _refuse_if_ended(self, record: ClusterRecord) -> None:
        if not record.is_running():
            raise PeerError(
                f"The cluster in {self.folder} is not running: it ended without "
                f"{self._command('stop')}, as when the machine "
                f"is started again. {self._command('start')} starts one."
            )

    # -- processes

    def _start_master_anywhere(self, record: ClusterRecord, port: int) -> None:
        """Start the Master; retry at another port if a program takes a free one first."""
        for tries_left in reversed(range(PORT_TRIES)):
            free, ui_port = free_ports(2)
            try:
                self._start_master(replace(record, port=port or free, ui_port=ui_port))
                return
            except PortTakenError:
                if tries_left == 0 or (port and not is_free(record.master_host, port)):
                    raise

    def _start_master(self, record: ClusterRecord) -> None:
        host = record.master_host
        if not is_free(host, record.port):
            raise PortTakenError(
                f"Another program listens on {host}:{record.port}, where the master was to "
                f"listen. {FIX}"
            )
        started = self._daemons.start_master(host, record.port, record.ui_port, record.secret)
        process = self._adopt("master", started)
        state.write(self.folder, replace(record, master=process))
        publish(record.url, record.secret)
        secret = record.secret
        self._wait(lambda: ask_master(record.ui_port, host, secret), {"master": process}, "answer")

    def _start_workers(self, numbers: Iterable[int], cores: int, memory: str) -> None:
        """Start Workers in parallel and wait for all; if one fails, none of them stays."""
        started: list[WorkerRecord] = []
        try:
            for number in numbers:
                name = state.worker_name(number)
                host = self._places.host_of_worker(number)
                record = self._record()
                child = self._daemons.start_worker(
                    *(name, host, cores, memory, record.url, record.secret),
                    partial(self._places.command_of_worker, number),
                )
                started.append(WorkerRecord(number, host, cores, memory, self._adopt(name, child)))
                state.write(self.folder, record.with_worker(started[-1]))
            self._wait_for_workers(started)
        except BaseException:
            for worker in started:
                kill(worker, self._daemons.marks_of(worker.name))
                state.write(self.folder, self._record().without_worker(worker.name))
            raise

    def _adopt(self, name: str, child: subprocess.Popen[bytes]) -> Process:
        self._children.append(child)
        process = processes.identify(child.pid)
        if process is None:
            raise self._daemons.ended_early(name)
        return process

    def _wait_for_workers(self, workers: Sequence[WorkerRecord]) -> None:
        record = self._record()

        def are_registered() -> bool:
            view = ask_master(record.ui_port, record.master_host, record.secret)
            known = (
                {worker.name for worker in view.workers if worker.state == ALIVE} if view else set()
            )
            return known.issuperset(worker.name for worker in workers)

        self._wait(are_registered, {worker.name: worker.process for worker in workers}, "register")

    def _wait(
        self, condition: Callable[[], object], daemons: dict[str, Process], verb: str
    ) -> None:
        """Wait for daemons at most ``start_s``.  Raises PeerError: too late, or one ended."""
        deadline = time.monotonic() + self._start_s
        while not condition():
            for name, process in daemons.items():
                if not processes.is_running(process):
                    raise self._daemons.ended_early(name)
            if time.monotonic() > deadline:
                logs = self._daemons.log("master").parent
                raise PeerError(
                    f"{', '.join(daemons)} did not {verb} within {self._start_s:.0f} s. The logs "
                    f"are in {logs}."
                )
            time.sleep(POLL_S)

    def _end_everything(self) -> int:
        """End daemons, then other recorded or marked processes; return their number."""
        try:
            record = state.read(self.folder)
        except PeerError:
            record = None  # damaged: only the marks identify processes
        by_pid = {
            process.pid: process
            for process in processes.with_descendants(record.processes() if record else [])
        }
        by_pid.update((process.pid, process) for process in processes.marked(*self._daemons.marks))
        processes.end(record.processes() if record else list(by_pid.values()), GRACE_S)
        processes.kill(list(by_pid.values()))
        processes.kill(processes.marked(*self._daemons.marks))  # started in the meantime
        for child in self._children:
            child.poll()
        if record:
            withdraw(record.url)
        if state.is_ours(self.folder):
            for name in CLEARED:
                shutil.rmtree(self.folder / name, ignore_errors=True)
            state.write(
                self.folder,
                ClusterRecord(record.cores, record.memory)
                if record
                else ClusterRecord(1, MEMORY_DEFAULT),
            )
        return len(by_pid)


def cores_here() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
