"""A second view of a resident task, refreshed in the background.

Where it runs: worker, in a resident task; the work itself in a thread.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass

from wallaroo.instrumentation.tracing import trace_point
from wallaroo.instrumentation.tuning import DEFAULT, Tuning
from wallaroo.runtime.resident.write_buffer import WriteLayer
from wallaroo.state.log.commits import SnapshotRef
from wallaroo.state.log.history import History, Past, Remembered, Version
from wallaroo.state.log.storage import Storage
from wallaroo.state.task_state import TaskState

# a computing thread yields to the epochs after this time; Python's default of 5 ms is as long as an
# epoch
SWITCH_S = 0.0005

Make = Callable[[], TaskState]  # returns a state at no commit yet
ReadLog = Callable[[int], History]  # returns the log up to a commit


@dataclass(frozen=True, slots=True)
class RefreshedView:
    """Second view, with the snapshots written from it."""

    state: TaskState
    version: Version
    snapshots: tuple[SnapshotRef, ...]


class Views:
    """The views of one task.

    At intervals the first one is refreshed by a second, newer one.  ``make`` returns a state of the
    task's key groups, ``read_log`` the history that brings it to a commit.  ``executor`` has one
    thread, which is reused: the start of a thread would hold up an epoch.
    """

    def __init__(
        self,
        storage: Storage,
        make: Make,
        read_log: ReadLog,
        tuning: Tuning = DEFAULT,
        executor: Executor | None = None,
    ):
        sys.setswitchinterval(SWITCH_S)
        self.make = make
        self.read_log = read_log
        self._storage = storage
        self._tuning = tuning
        self._executor = executor or ThreadPoolExecutor(1, "wallaroo-view")
        self._refresh: Future[RefreshedView] | None = None
        self._refresh_at = 0.0

    def wait(self) -> None:
        """Start no refresh until the interval has passed again."""
        self._refresh_at = time.monotonic() + self._tuning.refresh_s

    @property
    def is_due(self) -> bool:
        return self._refresh is None and time.monotonic() >= self._refresh_at

    def refresh(
        self, start: Version, committed: Version, written: WriteLayer, due: Sequence[int]
    ) -> None:
        """Start bringing a second view to ``committed`` and writing snapshots of ``due`` groups.

        ``written`` is what the task wrote since ``start``, the commit of the first view.
        """
        self.wait()
        self._refresh = self._executor.submit(self._refreshed, start, committed, written, due)

    def _refreshed(
        self, start: Version, committed: Version, written: WriteLayer, due: Sequence[int]
    ) -> RefreshedView:
        trace_point("view.refresh")
        state = self.make()
        past = self._past(state, start, committed, written)
        state.catch_up(past)
        trace_point("view.refreshed")
        name = uuid.uuid4().hex[:12]
        snapshots = state.write_snapshots(due, committed.batch, name, self._storage)
        trace_point("view.snapshots")
        return RefreshedView(state, past.version, tuple(snapshots))

    def _past(
        self, state: TaskState, start: Version, committed: Version, written: WriteLayer
    ) -> Past:
        """Return the history that brings a view to a commit: the writes since, or the log."""
        if not committed.id:
            return self.read_log(committed.batch)
        states = {step: changes.items() for step, changes in written.states.items()}
        entries = state.by_group(states, written.all_entries)
        return Remembered(start, committed, entries, lambda: self.read_log(committed.batch))

    def refreshed(self) -> RefreshedView | None:
        """Return, once, the result of the current refresh, or raise its error; None if it runs.

        After an error there is no other refresh until `discard`.
        """
        if self._refresh is None or not self._refresh.done():
            return None
        refreshed = self._refresh.result()
        self._refresh = None
        return refreshed

    def discard(self) -> None:
        """Wait for the end of the current refresh, and drop its result."""
        refresh = self._refresh
        self._refresh = None
        if refresh is not None and refresh.exception() is None:
            refresh.result().state.close()

    def close(self) -> None:
        """Discard the current refresh, and end its thread."""
        self.discard()
        self._executor.shutdown()
