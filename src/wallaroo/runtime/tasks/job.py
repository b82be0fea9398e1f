"""The job of a batch's tasks: one frozen value, pickled for Spark.

Where it runs: created by the driver, read by workers.
"""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import socket
import sys
import tempfile
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from wallaroo.dataflow.plan.model import Plan
from wallaroo.durable.folders import make_private
from wallaroo.engine.stores.background_upgrades import Portion
from wallaroo.engine.time.watermarks import NO_TIME, BatchTime
from wallaroo.errors import PeerError, WallarooError
from wallaroo.instrumentation.tuning import DEFAULT, Tuning
from wallaroo.processes.killed_workers import report_idle_deaths
from wallaroo.processes.orphans import end_with_daemon
from wallaroo.runtime.tasks.stacks import listen
from wallaroo.runtime.user_output.settings import UserOutput
from wallaroo.sources.log import Range, SourceLog
from wallaroo.state.log.commits import Commit
from wallaroo.state.log.history import Version
from wallaroo.state.log.storage import LocalStorage, Storage
from wallaroo.state.views.view_folders import use_view
from wallaroo.steps.kinds import Step
from wallaroo.user_code.compact_pickles import pickled_by_values
from wallaroo.user_code.references import pack_session, pickle_by_name, unpack_session
from wallaroo.user_code.user_frames import user_frames
from wallaroo.user_code.worker_mark import UNDER_MAIN, forbid_runs
from wallaroo.user_code.worker_modules.edited import Stamps, forget_changed, is_installed, stamps
from wallaroo.user_code.worker_modules.setup_values import put_in_place

DEPENDENCIES = "Install what it imports on every host, or ship it: docs/scaling.md, 'Dependencies'."
NOT_SHIPPED = (
    "Workers have neither this shell's environment (--conf spark.executorEnv.NAME=VALUE) nor its "
    "working folder: docs/scaling.md, 'What is shipped automatically'."
)
IMPORTED_HERE = f"Workers import it, too. {UNDER_MAIN}"
IN_WORKER = "CONTEXT_ONLY_VALID_ON_DRIVER"  # PySpark's name for a session in a worker


def import_error(error: Exception, host: str, is_local: bool) -> PeerError | None:
    """Return the error to report, with the application's line; None if it is not an import's.

    ``is_local``: whether the worker is on the driver's machine.
    """
    files = [(frame.filename, frame.lineno) for frame in user_frames(error.__traceback__)]
    lines = [
        f"{file}:{line}: " for file, line in files if not (file[:1] == "<" or is_installed(file))
    ]
    cause = f"{type(error).__name__}: {error}".rstrip(".")
    if isinstance(error, ImportError) or (isinstance(error, AttributeError) and not lines):
        fix = DEPENDENCIES
    elif not lines:
        return None
    elif IN_WORKER in cause:
        cause = "a SparkSession was opened while a worker imported this module"
        fix = UNDER_MAIN
    else:
        fix = IMPORTED_HERE if is_local else NOT_SHIPPED
    place = lines[-1] if lines else ""
    return PeerError(f"the application cannot be imported on host '{host}': {place}{cause}. {fix}")


@pickled_by_values
@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a source's log for one task of level 0."""

    source: int
    range: Range


Pieces = tuple[tuple[Piece, ...], ...]  # by task of level 0


class CarriedLogs:
    """Logs of a run by source, as sent to tasks.

    They are unpickled at their first use, which is after the plan's: the class of a user's source
    may be in a neighbouring module of the application, which is importable only then.
    """

    __slots__ = ("_logs", "_packed")

    def __init__(self, logs: tuple[SourceLog, ...], packed: bytes = b""):
        self._logs = logs
        self._packed = packed

    def __reduce__(self) -> tuple[type[CarriedLogs], tuple[tuple[SourceLog, ...], bytes]]:
        return CarriedLogs, ((), self._packed or pickle_by_name(self._logs))

    def __getitem__(self, source: int) -> SourceLog:
        if not self._logs:
            self._logs = pickle.loads(self._packed)
        return self._logs[source]


@dataclass(frozen=True, slots=True)
class Deployment:
    """The part of a job that is the same for all batches."""

    plan: bytes  # pickled Plan
    plan_id: str
    module_paths: tuple[str, ...]  # put on sys.path before the plan is unpickled
    logs: CarriedLogs  # as workers read them
    view_root: str  # "": each host has its own folder
    outbox_root: str  # "": staged output goes to the storage
    storage: Storage
    checkpoint_id: str
    is_durable: bool
    stacks: str = ""  # the folder for tasks' stacks on request; "": none
    tuning: Tuning = DEFAULT
    user_output: UserOutput | None = None  # destination of user code's output; None: unchanged
    view: str = ""  # the name of hosts' views, if it is not the checkpoint's id
    session: bytes = b""  # classes of an interactive session (``wallaroo.user_code.references``)
    modules: Stamps = field(default_factory=dict)  # the application's modules in the driver
    setup_values: bytes = b""  # values that ``application_setup`` set in them

    @staticmethod
    def of(
        plan: Plan,
        module_paths: tuple[str, ...],
        root: Path,
        logs: tuple[SourceLog, ...],
        view_root: str,
        checkpoint_id: str,
        is_durable: bool,
        stacks: str = "",
    ) -> Deployment:
        """Return the deployment of a run under the checkpoint folder ``root``."""
        packed = pickle_by_name(replace(plan, setup_values=b""))
        storage = LocalStorage(str(root), is_durable)
        modules = stamps()
        content = packed + plan.setup_values + repr(sorted(modules.items())).encode()
        digest = hashlib.blake2b(content, digest_size=8).hexdigest()
        return Deployment(
            plan=packed,
            plan_id=digest,
            module_paths=module_paths,
            logs=CarriedLogs(logs),
            view_root=view_root,
            outbox_root=str(root / "outbox"),
            storage=storage,
            checkpoint_id=checkpoint_id,
            is_durable=is_durable,
            stacks=stacks,
            session=pack_session(),
            modules=modules,
            setup_values=plan.setup_values,
        )

    @property
    def is_in_driver(self) -> bool:
        """Return whether this process is the driver, in which a host runs tasks without workers."""
        return self.user_output is not None and self.user_output.driver_pid == os.getpid()

    def view_folder(self) -> Path:
        """Return this host's view folder; not in a checkpoint that hosts share."""
        if self.view_root:
            return Path(self.view_root)
        named = os.environ.get(VIEW_DIR)
        base = Path(named or os.path.join(tempfile.gettempdir(), f"wallaroo-views-{os.getuid()}"))
        view = self.view or self.checkpoint_id
        try:
            if not named:
                make_private(base)
            return use_view(base, worker_name().replace("/", "_"), view)
        except OSError as error:
            raise no_view(base, error) from error


# variables in a worker's environment: its name, and the folder for its views
WORKER = "WALLAROO_WORKER"
VIEW_DIR = "WALLAROO_VIEW_DIR"


def worker_name() -> str:
    """Return this host's name: WALLAROO_WORKER of the environment, else the host's own name."""
    return os.environ.get(WORKER) or _host_name()


@cache
def _host_name() -> str:
    return socket.gethostname()


@cache
def executor_host(proc: Path = Path("/proc")) -> str:
    """Return this executor's host, as Spark names it; "" if that cannot be seen.

    It is on the command line of the process two levels up.
    """
    try:
        daemon = os.getppid()
        status = (proc / str(daemon) / "status").read_text()
        executor = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
        words = (proc / executor / "cmdline").read_text().split("\0")
        return words[words.index("--hostname") + 1]
    except (OSError, StopIteration, ValueError, IndexError):
        return ""


def no_view(folder: Path, error: OSError) -> PeerError:
    """Return the error of a host that cannot use its folder for views."""
    return PeerError(
        f"host '{worker_name()}' cannot use its folder for views "
        f"({error.filename or folder}: {error.strerror}). Make it usable there, or name "
        f"another folder by {VIEW_DIR} in the environment of executors."
    )


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One batch: its pieces, its tasks, and the committed version before it."""

    deployment: Deployment
    batch: int
    tasks: int
    pieces: Pieces
    committed: int  # the last committed batch, -1 if none
    # the newest commits, so that a view one batch behind need not read a commit file
    commits: tuple[Commit, ...]
    steps: tuple[str, ...]  # the step table
    levels: int  # the plan's levels
    state_level: int  # the first level with a state step; -1: none
    snapshots_due: tuple[int, ...] | None  # key groups that write a snapshot; None: none may
    time: BatchTime = NO_TIME
    is_sampled: bool = True  # whether tasks measure the time of steps for some events
    upgrade: Portion | None = None  # stored objects to upgrade, if any are left
    # whether a task runs all levels in one process, which then keeps its own blocks
    keeps_own: bool = False

    @property
    def version(self) -> Version:
        """Return the last committed batch, without an id if its commit is not available."""
        last = self.commits[-1] if self.commits else None
        is_known = last is not None and last.batch == self.committed
        return Version(self.committed, last.id if last is not None and is_known else "")

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the number of tasks of each level."""
        return (len(self.pieces), *(self.tasks,) * (self.levels - 1))

    def without_output(self) -> BatchJob:
        """Return the job to send to tasks, without the output of commits."""
        return replace(self, commits=tuple(replace(commit, sinks={}) for commit in self.commits))


_plans: dict[str, Plan] = {}


def loaded_steps(deployment: Deployment) -> tuple[Step, ...]:
    """Return the plan's steps once ``plan_of`` has loaded them; none while it imports them."""
    plan = _plans.get(deployment.plan_id)
    return plan.steps if plan else ()


def plan_of(deployment: Deployment) -> Plan:
    """Return the plan, unpickled once per process.  Raises PeerError if that is impossible."""
    if deployment.plan_id not in _plans:
        if not deployment.is_in_driver:
            end_with_daemon()
            if not deployment.view_root:
                report_idle_deaths()
            forbid_runs()
        listen(deployment.stacks)
        for path in deployment.module_paths:
            if path not in sys.path:
                sys.path.insert(0, path)
        try:
            if not deployment.is_in_driver:
                forget_changed(deployment.modules, deployment.setup_values)
                put_in_place(deployment.setup_values)
                unpack_session(deployment.session)
            _plans[deployment.plan_id] = pickle.loads(deployment.plan)
        except WallarooError:
            raise
        except Exception as error:  # a module of the application may raise anything
            found = import_error(error, worker_name(), bool(deployment.view_root))
            if found is None:
                raise
            raise found from error
        if not deployment.is_in_driver:  # in the driver, a run's objects must not outlive it
            gc.freeze()  # everything loaded so far stays, so collections need not scan it
    return _plans[deployment.plan_id]
