"""The record of a cluster in its folder, and its lock.

``cluster.json`` holds processes, ports and sizes.

Invariant: a process is on record before it is waited for, and a record is removed only after its
process has ended.  The file is replaced in one piece.  A folder that holds files but no record is
never written to: it belongs to another user or program.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

import msgspec

from wallaroo.durable.folders import make_private, user_folder
from wallaroo.durable.locks import LockedError, lock_file
from wallaroo.durable.whole_file import write_whole
from wallaroo.errors import PeerError
from wallaroo.processes.table import Process, is_running
from wallaroo.spark.local_cluster.hosts import MASTER_HOST

FORMAT = 1
RECORD = "cluster.json"
LOCK = "lock"
LOCK_WAIT_S = 200.0  # longer than any command takes on a slow machine


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A Spark Worker that was started."""

    number: int
    host: str
    cores: int
    memory: str
    process: Process

    @property
    def name(self) -> str:
        return worker_name(self.number)


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """A cluster in its folder's record."""

    cores: int  # a new worker's
    memory: str  # a new worker's, in Spark's notation
    port: int = 0  # the Master's; kept when it is restarted
    ui_port: int = 0
    master_host: str = MASTER_HOST
    next_number: int = 1  # numbers are never reused: a name means one folder of state
    master: Process | None = None
    workers: tuple[WorkerRecord, ...] = ()
    secret: str = field(default="", repr=False)  # required by its processes

    @property
    def url(self) -> str:
        return f"spark://{self.master_host}:{self.port}"

    def processes(self) -> list[Process]:
        """Return all processes on record, running or not."""
        return [
            *([self.master] if self.master else []),
            *(worker.process for worker in self.workers),
        ]

    def is_running(self) -> bool:
        return any(is_running(process) for process in self.processes())

    def worker(self, name: str) -> WorkerRecord | None:
        """Return the worker of that name; None if there is none."""
        return next((worker for worker in self.workers if worker.name == name), None)

    def with_worker(self, worker: WorkerRecord) -> Self:
        """Return a record with a worker, which replaces the one of that number if there is one."""
        others = [other for other in self.workers if other.number != worker.number]
        workers = tuple(sorted((*others, worker), key=lambda each: each.number))
        return replace(self, workers=workers, next_number=max(self.next_number, worker.number + 1))

    def without_worker(self, name: str) -> Self:
        return replace(
            self, workers=tuple(worker for worker in self.workers if worker.name != name)
        )


def worker_name(number: int) -> str:
    """Return the name of a worker by its number.

    >>> worker_name(1)
    'worker-1'
    """
    return f"worker-{number}"


def default_folder() -> Path:
    """Return the user's folder for a cluster, under XDG_STATE_HOME, else under ~/.local/state."""
    return user_folder("XDG_STATE_HOME", ".local/state") / "wallaroo" / "cluster"


def command(verb: str, folder: Path) -> str:
    """Return the command line of ``verb`` for the cluster of a folder, to be shown."""
    where = f" --dir {shlex.quote(str(folder))}"
    with contextlib.suppress(PeerError):  # the user may have no home directory
        where = "" if folder == default_folder().resolve() else where
    return f"`wallaroo cluster {verb}{where}`"


def read(folder: Path) -> ClusterRecord | None:
    """Return the record in a folder, or None.  Raises PeerError if unreadable."""
    path = folder / RECORD
    try:
        fields = json.loads(path.read_bytes())
        if fields.pop("format") != FORMAT:
            raise ValueError("another version's format")
        return msgspec.convert(fields, ClusterRecord)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, msgspec.ValidationError) as error:
        raise PeerError(
            f"{path} cannot be read ({type(error).__name__}). {command('stop', folder)} ends what "
            f"runs in that folder and forgets it."
        ) from error


def write(folder: Path, record: ClusterRecord) -> None:
    """Replace the record in one piece; raise PeerError if it cannot be written."""
    try:
        content = json.dumps({"format": FORMAT, **asdict(record)}, indent=1) + "\n"
        write_whole(folder / RECORD, content.encode(), is_durable=False, points="cluster")
    except OSError as error:
        raise PeerError(
            f"{folder / RECORD} cannot be written: {error.strerror}. Make room, or make it "
            f"writable."
        ) from error


def is_ours(folder: Path) -> bool:
    """Return whether the folder is, or was, a cluster's."""
    return (folder / RECORD).exists()


def prepare(folder: Path) -> None:
    """Create a cluster's folder.  Raises PeerError if impossible, or if it holds other files."""
    try:
        make_private(folder)
        names = {path.name for path in folder.iterdir()} - {LOCK}
    except OSError as error:
        raise PeerError(
            f"{folder}: {error.strerror}. Name another folder for the cluster with --dir DIR."
        ) from error
    if names and RECORD not in names:
        raise PeerError(
            f"{folder} holds files and no cluster. Empty it, or name another folder for the "
            f"cluster with --dir DIR."
        )


@contextlib.contextmanager
def locked(folder: Path, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Let one command change a cluster at a time.  Raises PeerError after ``wait_s``."""
    deadline = time.monotonic() + wait_s
    while (descriptor := _lock(folder)) is None:
        if time.monotonic() > deadline:
            raise PeerError(
                f"Another command has been changing the cluster in {folder} for long. End that one."
            )
        time.sleep(0.05)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(folder: Path) -> int | None:
    """Lock the folder; return None if another command holds the lock."""
    try:
        # it may have been removed while the cluster runs
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return lock_file(folder / LOCK)
    except LockedError:
        return None
    except OSError as error:
        raise PeerError(
            f"{folder / LOCK} cannot be opened: {error.strerror}. Use a folder of your own: --dir "
            f"DIR."
        ) from error
