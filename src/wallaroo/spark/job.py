"""What a batch tells its tasks: one frozen value, pickled into the Spark job.

Where it runs: made by the driver, read by workers.
"""

from __future__ import annotations

import gc
import hashlib
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

from wallaroo.plan.model import Plan
from wallaroo.runner import forbid_runs
from wallaroo.spool.format import Position
from wallaroo.state.commits import Commit
from wallaroo.state.storage import LocalStorage
from wallaroo.steps import pickle_by_name


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a source's spool that one task of level 0 reads."""

    source: int
    start: Position
    end: Position


@dataclass(frozen=True, slots=True)
class Deployment:
    """What stays the same for all batches of a run."""

    plan: bytes  # pickled Plan
    plan_id: str
    module_paths: tuple[str, ...]  # put on sys.path before the plan is unpickled
    spool_root: str
    view_root: str
    outbox_root: str
    storage: LocalStorage
    is_durable: bool

    @staticmethod
    def of(plan: Plan, module_paths: tuple[str, ...], root: Path, view_root: Path, is_durable: bool) -> Deployment:
        """Lay the run out under the checkpoint folder ``root``."""
        packed = pickle_by_name(plan)
        storage = LocalStorage(str(root), is_durable)
        digest = hashlib.blake2b(packed, digest_size=8).hexdigest()
        return Deployment(
            packed, digest, module_paths, str(root / "spool"), str(view_root), str(root / "outbox"), storage, is_durable
        )


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One batch: who reads what, how many tasks there are, and the committed version to start from."""

    deployment: Deployment
    batch: int
    tasks: int
    pieces: tuple[tuple[Piece, ...], ...]  # by task of level 0
    committed: int  # the last committed batch, -1 if none
    commits: tuple[Commit, ...]  # the newest commits, so that a view one batch behind reads no commit file
    steps: tuple[str, ...]  # the step table
    snapshot_level: int  # the level whose tasks write the snapshots that are due; -1: none


_plans: dict[str, Plan] = {}


def plan_of(deployment: Deployment) -> Plan:
    """Return the plan, unpickled once per process."""
    if deployment.plan_id not in _plans:
        forbid_runs()
        for path in deployment.module_paths:
            if path not in sys.path:
                sys.path.insert(0, path)
        _plans[deployment.plan_id] = pickle.loads(deployment.plan)
        gc.freeze()  # what is loaded by now stays: collections need not look at it again
    return _plans[deployment.plan_id]
