"""A second view of a resident task, refreshed in the background.

Where it runs: worker, in a resident task; the work itself in a thread.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from wallaroo.runtime.resident.layers import Layer
from wallaroo.state.commits import SnapshotRef
from wallaroo.state.history import History, Past, Remembered, Version
from wallaroo.state.snapshots import due_groups
from wallaroo.state.storage import Storage
from wallaroo.state.task_state import TaskState
from wallaroo.tracing import trace_point
from wallaroo.tuning import DEFAULT, Tuning

# a thread that computes yields to the epochs after this time; Python's default of 5 ms is an epoch
SWITCH_S = 0.0005

Make = Callable[[], TaskState]  # returns a state that is not at any commit yet
ReadLog = Callable[[int], History]  # returns the log up to a commit


@dataclass(frozen=True, slots=True)
class Refreshed:
    """A second view, and the snapshots written from it."""

    state: TaskState
    version: Version
    snapshots: tuple[SnapshotRef, ...]


class Refresh:
    """A refresh, which brings a second view up in the background."""

    def __init__(self, work: Callable[[], Refreshed], background: Background):
        self._work = work
        self._done: Refreshed | None = None
        self._error: BaseException | None = None
        self._is_over = threading.Event()
        background.begin(self._run)

    def _run(self) -> None:
        try:
            self._done = self._work()
        except BaseException as error:  # noqa: BLE001  # raised by the thread that asks
            self._error = error
        self._is_over.set()

    def result(self) -> Refreshed | None:
        """Return the refreshed view, None while the refresh runs; raise its error."""
        if not self._is_over.is_set():
            return None
        if self._error is not None:
            raise self._error
        return self._done

    def close(self) -> None:
        """Wait for the refresh to end, and close its view."""
        self._is_over.wait()
        if self._done is not None:
            self._done.state.close()


class Background:
    """A thread that runs one piece of work after the other.

    It is reused, because the start of a thread would hold up an epoch.
    """

    def __init__(self) -> None:
        self._begun: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_running = False

    def begin(self, work: Callable[[], None]) -> None:
        """Queue ``work``, which raises nothing, for the thread."""
        if not self._is_running:
            self._is_running = True
            threading.Thread(target=self._run, name="wallaroo-view", daemon=True).start()
        self._begun.put(work)

    def end(self) -> None:
        """End the thread after the queued work; ``begin`` starts another one."""
        if self._is_running:
            self._is_running = False
            self._begun.put(None)

    def _run(self) -> None:
        while (work := self._begun.get()) is not None:
            work()


class Running(Protocol):
    """A refresh under way."""

    def result(self) -> Refreshed | None: ...

    def close(self) -> None: ...


BeginRefresh = Callable[[Callable[[], Refreshed], Background], Running]


class Views:
    """The views of one task.

    Now and then the first one is refreshed by a second, newer one.  ``make`` returns a state of the
    task's key groups, ``read_log`` the history that brings it to a commit.
    """

    def __init__(
        self,
        key_groups: int,
        storage: Storage,
        make: Make,
        read_log: ReadLog,
        tuning: Tuning = DEFAULT,
        begin: BeginRefresh = Refresh,
    ):
        sys.setswitchinterval(SWITCH_S)
        self.make = make
        self.read_log = read_log
        self._key_groups = key_groups
        self._storage = storage
        self._tuning = tuning
        self._begin = begin
        self._background = Background()
        self._refresh: Running | None = None
        self._refresh_at = 0.0
        self._turn = 0

    def wait(self) -> None:
        """Begin no refresh until the time between two has passed again."""
        self._refresh_at = time.monotonic() + self._tuning.refresh_s

    @property
    def is_due(self) -> bool:
        """Return whether a refresh may begin."""
        return self._refresh is None and time.monotonic() >= self._refresh_at

    def refresh(self, start: Version, committed: Version, written: Layer) -> None:
        """Begin to bring a second view to ``committed``.

        ``written`` is what the task wrote since ``start``, the commit of the first view.
        """
        self.wait()
        turns = range(self._turn, self._turn + self._tuning.turns_per_refresh)
        self._turn = turns.stop % self._tuning.snapshot_every
        self._refresh = self._begin(
            lambda: self._refreshed(start, committed, written, turns), self._background
        )

    def _refreshed(
        self, start: Version, committed: Version, written: Layer, turns: range
    ) -> Refreshed:
        trace_point("view.refresh")
        state = self.make()
        past = self._past(state, start, committed, written)
        state.catch_up(past)
        trace_point("view.refreshed")
        due = [
            group
            for turn in turns
            for group in due_groups(turn, self._key_groups, self._tuning.snapshot_every)
        ]
        name = uuid.uuid4().hex[:12]
        snapshots = state.write_snapshots(due, committed.batch, name, self._storage)
        trace_point("view.snapshots")
        return Refreshed(state, past.version, tuple(snapshots))

    def _past(self, state: TaskState, start: Version, committed: Version, written: Layer) -> Past:
        """Return the past that brings a view to a commit.

        It is what was written since ``start``, or the log if the commit's id is not known.
        """
        if not committed.id:
            return self.read_log(committed.batch)
        states = {step: changes.items() for step, changes in written.states.items()}
        entries = state.by_group(states, written.all_entries)
        return Remembered(start, committed, entries, lambda: self.read_log(committed.batch))

    def refreshed(self) -> Refreshed | None:
        """Return, once, the result of the refresh under way; None while it runs."""
        done = self._refresh.result() if self._refresh is not None else None
        if done is not None:
            self._refresh = None
        return done

    def close(self) -> None:
        """Wait for the end of the refresh under way, and drop its result."""
        if self._refresh is not None:
            self._refresh.close()
            self._refresh = None
        self._background.end()
