"""What the tasks of a batch get to know: one frozen value, pickled into the Spark job.

Where it runs: made by the driver, read by workers.
"""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import socket
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from wallaroo.durable.folders import make_private
from wallaroo.engine.watermarks import NO_TIME, BatchTime
from wallaroo.errors import PeerError
from wallaroo.options import forbid_runs
from wallaroo.plan.model import Plan
from wallaroo.processes.orphans import end_with_daemon
from wallaroo.references import pickle_by_name
from wallaroo.runtime.stacks import listen
from wallaroo.session import pack_session, unpack_session
from wallaroo.small_pickles import pickled_by_values
from wallaroo.sources.log import Range, SourceLog
from wallaroo.state.commits import Commit
from wallaroo.state.history import Version
from wallaroo.state.storage import LocalStorage
from wallaroo.state.view_folders import use_view
from wallaroo.steps import Step
from wallaroo.tuning import DEFAULT, Tuning
from wallaroo.user_output.settings import UserOutput


@pickled_by_values
@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a source's log that one task of level 0 reads."""

    source: int
    range: Range


Pieces = tuple[tuple[Piece, ...], ...]  # by task of level 0


@dataclass(frozen=True, slots=True)
class Deployment:
    """What stays the same for all batches of a run."""

    plan: bytes  # pickled Plan
    plan_id: str
    module_paths: tuple[str, ...]  # put on sys.path before the plan is unpickled
    logs: tuple[SourceLog, ...]  # by source, as workers read them
    view_root: str  # "": each host has a folder of its own
    outbox_root: str
    storage: LocalStorage
    checkpoint_id: str
    is_durable: bool
    stacks: str = ""  # where tasks write their stacks when asked; "": nowhere
    tuning: Tuning = DEFAULT
    user_output: UserOutput | None = None  # where what user code prints goes; None: as it is
    session: bytes = b""  # classes of an interactive session (``wallaroo.session``)

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
        """Lay the run out under the checkpoint folder ``root``."""
        packed = pickle_by_name(plan)
        storage = LocalStorage(str(root), is_durable)
        digest = hashlib.blake2b(packed, digest_size=8).hexdigest()
        return Deployment(
            plan=packed,
            plan_id=digest,
            module_paths=module_paths,
            logs=logs,
            view_root=view_root,
            outbox_root=str(root / "outbox"),
            storage=storage,
            checkpoint_id=checkpoint_id,
            is_durable=is_durable,
            stacks=stacks,
            session=pack_session(),
        )

    @property
    def is_in_driver(self) -> bool:
        """Whether this process is the driver, where a host runs tasks without workers."""
        return self.user_output is not None and self.user_output.driver_pid == os.getpid()

    def view_folder(self) -> Path:
        """Return the folder of this host's view: outside of the checkpoint where several hosts
        share that.
        """
        if self.view_root:
            return Path(self.view_root)
        base = os.environ.get(VIEW_DIR)
        if not base:
            base = os.path.join(tempfile.gettempdir(), f"wallaroo-views-{os.getuid()}")
            make_private(Path(base))
        return use_view(Path(base), worker_name().replace("/", "_"), self.checkpoint_id)


# environment of a worker: its name, and where it may keep views
WORKER = "WALLAROO_WORKER"
VIEW_DIR = "WALLAROO_VIEW_DIR"


def worker_name() -> str:
    """Return what this host is called: WALLAROO_WORKER of the environment, else the host's name."""
    return os.environ.get(WORKER) or _host_name()


@cache
def _host_name() -> str:
    return socket.gethostname()


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One batch: who reads what, how many tasks there are, and the committed version to start
    from.
    """

    deployment: Deployment
    batch: int
    tasks: int
    pieces: Pieces
    committed: int  # the last committed batch, -1 if none
    # the newest commits, so that a view one batch behind reads no commit file
    commits: tuple[Commit, ...]
    steps: tuple[str, ...]  # the step table
    levels: int  # of the plan
    state_level: int  # the first level with a state step; -1: none
    writes_snapshots: bool  # whether the state level writes those that are due
    time: BatchTime = NO_TIME
    is_sampled: bool = True  # whether tasks measure what the steps of some events take

    @property
    def version(self) -> Version:
        """The last committed batch; without an id where no commit is at hand."""
        last = self.commits[-1] if self.commits else None
        is_known = last is not None and last.batch == self.committed
        return Version(self.committed, last.id if last is not None and is_known else "")

    def without_output(self) -> BatchJob:
        """Return what is sent to tasks: of the commits they need no output."""
        return replace(self, commits=tuple(replace(commit, sinks={}) for commit in self.commits))


_plans: dict[str, Plan] = {}


def loaded_steps(deployment: Deployment) -> tuple[Step, ...]:
    """Return the plan's steps where ``plan_of`` was called before; none while it imports them."""
    plan = _plans.get(deployment.plan_id)
    return plan.steps if plan else ()


def plan_of(deployment: Deployment) -> Plan:
    """Return the plan, unpickled once per process.  Raises PeerError where its modules are not to
    be had.
    """
    if deployment.plan_id not in _plans:
        if not deployment.is_in_driver:
            end_with_daemon()
            forbid_runs()
        listen(deployment.stacks)
        for path in deployment.module_paths:
            if path not in sys.path:
                sys.path.insert(0, path)
        try:
            if not deployment.is_in_driver:
                unpack_session(deployment.session)
            _plans[deployment.plan_id] = pickle.loads(deployment.plan)
        except (ImportError, AttributeError) as error:
            raise PeerError(
                f"the application cannot be imported on host '{worker_name()}': "
                f"{type(error).__name__}: {error}. Install what it imports on every host, or ship "
                "it: docs/scaling.md, 'Dependencies'."
            ) from error
        gc.freeze()  # what is loaded by now stays: collections need not look at it again
    return _plans[deployment.plan_id]
