"""Copy of the state that follows another run's commits.

Where it runs: driver, in a thread of a standby.

The copy is a view (`state.views.view`), which becomes that of the tasks when the standby takes
over.  It is in the run's scratch folder: the leader's views are in the checkpoint, and each
take-over starts new ones there.

The invariant: nothing is locked and nothing is written in the checkpoint.  The leader deletes files
that it no longer needs; a group whose files were deleted before they were read keeps its version
until the next update.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from wallaroo.checkpoints.inspection.reader import MappedStorage
from wallaroo.durable.disk_errors import unexpected_error
from wallaroo.errors import CheckpointError, PeerError, WallarooError
from wallaroo.state.log.commits import CommitLog
from wallaroo.state.log.history import History
from wallaroo.state.log.storage import LocalStorage
from wallaroo.state.views.environments import release_environments
from wallaroo.state.views.view import View

FOLLOW_S = 0.2  # between two turns: commits of low latency are retained for longer
WARM_S = 20.0  # Spark ends Python workers that were idle for a minute
YIELD_S = 2.0  # the leading run needs the cluster's workers
_log = logging.getLogger("wallaroo.run")


class Repeated:
    """A call that is repeated every ``every_s`` seconds."""

    def __init__(self, call: Callable[[], None], every_s: float):
        self._call = call
        self._every_s = every_s
        self._due_at = 0.0

    def poll(self) -> None:
        """Make the call if it is due."""
        if time.monotonic() >= self._due_at:
            self._call()
            self._due_at = time.monotonic() + self._every_s


class Follower:
    """A view of all key groups.

    ``view`` is None if there is no state to follow.

    ``prepare`` prepares the host; its errors end the standby.
    """

    def __init__(self, root: Path, view: Path | None, key_groups: int, prepare: Repeated):
        self._storage = MappedStorage(str(root), is_durable=False)
        self._log = CommitLog(LocalStorage(str(root), is_durable=False))
        self._prepare = prepare
        self._view = view
        self._key_groups = key_groups
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="wallaroo-standby", daemon=True)
        self._trouble = ""
        self.error: WallarooError | None = None
        self.last_batch: int | None = None  # not read yet; -1: nothing is committed
        self.ready_batch = -1

    def start(self) -> None:
        self._thread.start()

    def close(self) -> Path | None:
        """End; return the view, or None if it is not usable.

        The environments are released, not closed: once this run leads, its tasks write to them, and
        LMDB would wait forever for a transaction left by a cancelled task.
        """
        if not self._is_over.is_set():
            self._is_over.set()
            if self._thread.is_alive():
                self._thread.join()
            if self._view is not None:
                release_environments(self._view)
        return self._view if self.ready_batch >= 0 else None

    def turn(self) -> None:
        """Bring the copy to the newest commit. After a WallarooError it is unchanged."""
        newest = self._log.last()
        if newest is None:
            self.last_batch = -1
            return
        self.last_batch = newest.batch
        if self._view is not None and newest.batch != self.ready_batch:
            history = History(self._storage, [newest], newest.batch, self._log.read)
            view = View(self._view, self._key_groups, 0, self._key_groups)
            try:
                view.catch_up(history)
            finally:
                view.close()
        self.ready_batch = newest.batch
        self._log.forget_before(newest.batch)

    def _follow(self) -> None:
        try:
            while not self._is_over.is_set():
                self._try_turn()
                self._prepare.poll()
                self._is_over.wait(FOLLOW_S)
        except WallarooError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001  # this thread's error boundary
            self.error = unexpected_error("a standby could not follow", error)

    def _try_turn(self) -> None:
        try:
            self.turn()
            self._trouble = ""
        except CheckpointError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                self._report(error)
        except PeerError as error:
            self._report(error)

    def _report(self, error: WallarooError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.warning("the state is not followed for the time being: %s", error)
