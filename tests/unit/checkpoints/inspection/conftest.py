"""Checkpoints written by the classes that a run uses, batch by batch, without Spark."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from wallaroo.engine.blocks.keys import Key, groups_of_task
from wallaroo.engine.blocks.packing import Packing, packing_of
from wallaroo.engine.stores.keyed_state import KeyedState
from wallaroo.runtime.batch.housekeeping import Housekeeping
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.log.commits import Commit
from wallaroo.state.log.history import History
from wallaroo.state.log.snapshots import in_force
from wallaroo.state.task_state import TaskState
from wallaroo.state.views.environments import close_environments
from wallaroo.steps.kinds import StateComputation

KEY_GROUPS = 128
EVERY = 64  # batches from one snapshot of a key group to the next
APPLICATION = '''
"""An application whose import can be noticed, and whose state is a class with slots."""

import pathlib

pathlib.Path(__file__).with_suffix(".imported").touch()


class Market:
    __slots__ = ("bid", "is_rejecting", "symbol")

    def __init__(self, symbol=b"", bid=0.0):
        self.bid, self.is_rejecting, self.symbol = bid, True, symbol
'''


class Book:
    """A checkpoint that is being written: ``write`` is one batch, two tasks, snapshots in
    rotation.
    """

    def __init__(
        self,
        root: Path,
        retain: int,
        packing: Packing,
        steps: tuple[str, ...] = ("count", "market"),
    ):
        self.root, self._packing, self._steps = root, packing, steps
        self._checkpoint = open_checkpoint(root, is_durable=False)
        self._housekeeping = Housekeeping(self._checkpoint, KEY_GROUPS, retain)
        self.last: Commit | None = self._checkpoint.last
        self.expected: dict[int, dict[tuple[str, Key], Any]] = {}
        self._now: dict[tuple[str, Key], Any] = {}

    def write(
        self, values: dict[tuple[str, Key], Any], tokens: dict[str, list[Any]] | None = None
    ) -> int:
        """Commit a batch in which these (step, key) got these state objects, and whose output
        sinks staged under these tokens; return its number.
        """
        last = self.last
        batch, committed = (last.batch + 1, last.batch) if last else (0, -1)
        deltas, snapshots = [], []
        for task in range(2):
            state = TaskState(
                self._checkpoint.view_root,
                KEY_GROUPS,
                groups_of_task(task, 2, KEY_GROUPS),
                self._steps,
                self._checkpoint.id,
            )
            state.catch_up(
                History(self._checkpoint.storage, (), committed, self._checkpoint.commits.read)
            )
            deltas.append(
                state.write_delta(
                    self._touched(state, values, task),
                    f"{batch}.0.{task}.x",
                    self._checkpoint.storage,
                    batch,
                )
            )
            if last:
                snapshots += state.write_snapshots(
                    range(batch % EVERY, KEY_GROUPS, EVERY),
                    committed,
                    "x",
                    self._checkpoint.storage,
                )
            state.close()
        self.last = Commit(
            batch=batch,
            offsets={"Lines": [batch * 70 + 70, batch * 7 + 7]},
            deltas=tuple(delta for delta in deltas if delta),
            snapshots=in_force(last.snapshots if last else (), snapshots),
            sinks=tokens or {},
            outputs={"out": batch},
            steps=self._steps,
            time_ms=1_700_000_000_000 + batch * 1000,
            checkpoint=self._checkpoint.id,
            id=uuid.uuid4().hex,
            parent=last.id if last else "",
        )
        self._checkpoint.commits.publish(self.last)
        self._housekeeping.committed(self.last)
        self._now = {**self._now, **values}
        self.expected[batch] = self._now
        return batch

    def _touched(
        self, state: TaskState, values: dict[tuple[str, Key], Any], task: int
    ) -> dict[str, KeyedState]:
        first, end = groups_of_task(task, 2, KEY_GROUPS)
        touched = {}
        for step in self._steps:
            keyed = KeyedState(
                StateComputation(dict, step, dict), state.reader(step), self._packing
            )
            for (name, key), value in values.items():
                if name == step and first <= state._locate(key)[0] < end:
                    keyed.load(key)
                    keyed.live[key] = value
            touched[step] = keyed
        return touched

    def close(self) -> None:
        self._checkpoint.release()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Book]]:
    """Begin a checkpoint; the lock stays held, as by a running application."""
    books = []

    def make(retain: int = 8, serializer: Any = None, **more: Any) -> Book:
        book = Book(tmp_path / "checkpoint", retain, packing_of(serializer), **more)
        books.append(book)
        return book

    yield make
    for book in books:
        book.close()
    close_environments()


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A user's module: importable to write the checkpoint with, and gone again before anything
    reads it.
    """
    file = tmp_path / "quotes_application.py"
    file.write_text(APPLICATION)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield __import__("quotes_application")
    sys.modules.pop("quotes_application", None)


@pytest.fixture
def forget(application: ModuleType) -> Callable[[], Path]:
    """Make the application as good as never imported; return the file that a new import would
    make.
    """

    def run() -> Path:
        sys.modules.pop("quotes_application", None)
        sys.path.remove(str(Path(str(application.__file__)).parent))
        mark = Path(str(application.__file__)).with_suffix(".imported")
        mark.unlink()
        return mark

    return run
