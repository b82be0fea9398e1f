"""Work of a host before it owns anything.

Where it runs: worker.  Only values leave this module, as in ``runtime.tasks.task``.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wallaroo.errors import PeerError, WallarooError
from wallaroo.runtime.tasks.job import BatchJob, Deployment, executor_host, plan_of, worker_name
from wallaroo.runtime.tasks.task import state_from_view, unexpected
from wallaroo.state.log.layout import FORMAT
from wallaroo.state.log.storage import LocalStorage


@dataclass(frozen=True, slots=True)
class HostProbe:
    worker: str
    host: str  # the executor's, as Spark names it; "" if that cannot be seen
    error: WallarooError | None = None


@dataclass(frozen=True, slots=True)
class WarmUpResult:
    """Result of a warm-up task.

    Its part of the view is up to date, or there was an error.
    """

    worker: str
    task: int
    bytes_read: int
    error: WallarooError | None = None


def probe(deployment: Deployment, index: int, rows: Iterable[Any]) -> Iterator[HostProbe]:
    deque(rows, maxlen=0)  # unread rows keep Spark from using this process again
    error: WallarooError | None = None
    try:
        plan_of(deployment)
        _see_checkpoint(deployment)
    except Exception as caught:  # noqa: BLE001  # the worker's error boundary
        error = _as_wallaroo_error(caught)
    yield HostProbe(worker_name(), executor_host(), error)


def warm(
    job: BatchJob, tasks: int, own_tasks: tuple[int, ...], index: int, rows: Iterable[Any]
) -> Iterator[WarmUpResult]:
    """Bring the view of some of ``tasks`` tasks to the job's last commit."""
    deque(rows, maxlen=0)
    task = own_tasks[index]
    bytes_read = 0
    error: WallarooError | None = None
    try:
        state, caught_up = state_from_view(job, plan_of(job.deployment), task, tasks)
        state.close()
        bytes_read = caught_up.bytes_read
    except Exception as caught:  # noqa: BLE001  # the worker's error boundary
        error = _as_wallaroo_error(caught)
    yield WarmUpResult(worker_name(), task, bytes_read, error)


def _as_wallaroo_error(error: Exception) -> WallarooError:
    return error if isinstance(error, WallarooError) else unexpected(error)


def _see_checkpoint(deployment: Deployment) -> None:
    if not isinstance(deployment.storage, LocalStorage):
        deployment.storage.read(FORMAT)
        return
    file = Path(deployment.storage.root, FORMAT)
    try:
        identity = json.loads(file.read_text())["id"]
    except OSError as error:
        raise PeerError(
            f"it does not see the checkpoint folder {deployment.storage.root} ({error.strerror}). "
            "Give --checkpoint a folder on a disk that all hosts share."
        ) from error
    if identity != deployment.checkpoint_id:
        raise PeerError(
            f"its folder {deployment.storage.root} differs from this host's. "
            "Give --checkpoint a folder on a disk that all hosts share."
        )
