"""The state of a checkpoint, through any history of batches, hosts and accidents, reads the same as
a dict.

The machine plays driver and workers: batches with any number of tasks on any of three hosts (each
with a view of its own), attempts that die before the commit, views that are deleted, looks at older
commits, restarts, and commits rolled back.  Snapshots rotate every 4 batches and housekeeping
sweeps every 2, so that short histories meet both.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from wallaroo.engine.blocks.keys import (
    Key,
    decode_key,
    encode_key,
    group_of,
    groups_of_task,
)
from wallaroo.instrumentation.tuning import Tuning
from wallaroo.runtime.batch.housekeeping import Housekeeping
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.log.commits import (
    Commit,
    CommitLog,
    DeltaRef,
    SnapshotRef,
)
from wallaroo.state.log.delta import latest
from wallaroo.state.log.history import History
from wallaroo.state.log.snapshots import in_force
from wallaroo.state.task_state import TaskState
from wallaroo.state.views.environments import close_environments

KEY_GROUPS, SNAPSHOT_EVERY, SWEEP_EVERY, RETAIN, COMMITS_SENT = 8, 4, 2, 3, 2
STEPS = ("totals", "windows")
HOSTS = ("a", "b", "c")
KEYS: tuple[Key, ...] = (
    "",
    "x",
    "é",
    b"",
    b"x",
    0,
    7,
    -7,
    "L" * 480,
    "long " * 200,
    "long " * 200 + "!",
    b"\xff" * 481,
)

Entries = dict[tuple[str, Key], bytes]
changed = st.dictionaries(
    st.tuples(st.sampled_from(STEPS), st.sampled_from(KEYS)),
    st.one_of(st.none(), st.binary(max_size=3)),
    max_size=8,
)
hosts = st.lists(st.sampled_from(HOSTS), min_size=5, max_size=5)
tasks_count = st.integers(min_value=1, max_value=5)


@pytest.fixture(autouse=True)
def _environments() -> Iterator[None]:
    yield
    close_environments()


class _Changes:
    """In place of a KeyedState at the end of a batch."""

    def __init__(self, entries: list[tuple[Key, bytes | None]]):
        self._entries = entries

    def changes(self) -> Iterator[tuple[Key, bytes | None]]:
        return iter(self._entries)


class StateOfACheckpoint(RuleBasedStateMachine):
    """``self.truth[n]`` is what a dict would hold after batch n, for the batches that can still be
    a starting point.
    """

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="state-model-"))
        self.attempts = self.made = 0
        self.floor = 0  # no commit before this one is promised to be usable
        self.truth: dict[int, Entries] = {-1: {}}
        self.open()

    def open(self) -> None:
        self.checkpoint: Checkpoint = open_checkpoint(self.folder / "checkpoint", is_durable=False)
        self.housekeeping = Housekeeping(
            self.checkpoint, KEY_GROUPS, RETAIN, tuning=Tuning(sweep_every=SWEEP_EVERY)
        )
        self.last = self.checkpoint.last

    @property
    def batch(self) -> int:
        return self.last.batch if self.last else -1

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.checkpoint.release()
            close_environments()
            shutil.rmtree(self.folder)

    # -- what workers do
    # ----------------------------------------------------------------------------------------------

    def caught_up(self, host: str, groups: tuple[int, int], batch: int) -> TaskState:
        storage = self.checkpoint.storage
        sent = [
            commit for commit in self.housekeeping.newest(COMMITS_SENT) if commit.batch <= batch
        ]
        state = TaskState(
            self.folder / "views" / host, KEY_GROUPS, groups, STEPS, self.checkpoint.id
        )
        state.catch_up(History(storage, sent, batch, CommitLog(storage).read))
        return state

    def check(self, state: TaskState, groups: tuple[int, int], batch: int) -> None:
        """Every key there ever was, present or absent, and the walk over whole groups that
        snapshots make.
        """
        truth = self.truth[batch]
        for step in STEPS:
            read = state.reader(step)
            for key in KEYS:
                if groups[0] <= _group(key) < groups[1]:
                    assert read(key) == truth.get((step, key)), (step, key, batch)
        for group in range(*groups):
            walked = latest(state._view.entries(group))
            found = {(STEPS[step], decode_key(key)): value for (step, key), value in walked.items()}
            assert found == {
                place: value for place, value in truth.items() if _group(place[1]) == group
            }

    def work(
        self,
        batch: int,
        change: Mapping[tuple[str, Key], bytes | None],
        tasks: int,
        placed: list[str],
    ) -> tuple[list[DeltaRef], list[SnapshotRef]]:
        """Run one attempt of a batch: read, write deltas and the snapshots that are due."""
        deltas, written = [], []
        for task in range(tasks):
            self.attempts += 1
            groups, attempt = groups_of_task(task, tasks, KEY_GROUPS), f"{self.attempts:x}"
            state = self.caught_up(placed[task], groups, self.batch)
            self.check(state, groups, self.batch)
            own: dict[str, Any] = {
                step: _Changes(
                    [
                        (key, value)
                        for (name, key), value in change.items()
                        if name == step and groups[0] <= _group(key) < groups[1]
                    ]
                )
                for step in STEPS
            }
            delta = state.write_delta(
                own, f"{batch}.1.{task}.{attempt}", self.checkpoint.storage, batch
            )
            deltas += [delta] if delta else []
            if self.batch >= 0:
                written += state.write_snapshots(
                    range(batch % SNAPSHOT_EVERY, KEY_GROUPS, SNAPSHOT_EVERY),
                    self.batch,
                    attempt,
                    self.checkpoint.storage,
                )
            state.close()
        return deltas, written

    # -- what happens
    # ----------------------------------------------------------------------------------------------

    @rule(change=changed, tasks=tasks_count, placed=hosts)
    def a_batch_commits(
        self, change: dict[tuple[str, Key], bytes | None], tasks: int, placed: list[str]
    ) -> None:
        batch = self.batch + 1
        deltas, written = self.work(batch, change, tasks, placed)
        in_use = in_force(self.last.snapshots if self.last else (), written)
        self.made += 1
        commit = Commit(
            batch,
            {"s": [batch, batch]},
            tuple(deltas),
            in_use,
            steps=STEPS,
            checkpoint=self.checkpoint.id,
            id=f"{self.made:x}",
            parent=self.last.id if self.last else "",
        )
        self.checkpoint.commits.publish(commit)
        after = {
            **self.truth[self.batch],
            **{place: value for place, value in change.items() if value is not None},
        }
        self.truth[batch] = {
            place: value for place, value in after.items() if change.get(place, value) is not None
        }
        self.last = commit
        self.housekeeping.committed(commit)
        self.floor = max(self.floor, batch - RETAIN + 1)

    @rule(
        change=changed, tasks=tasks_count, placed=hosts, times=st.integers(min_value=1, max_value=6)
    )
    def a_run_of_equal_batches(
        self, change: dict[tuple[str, Key], bytes | None], tasks: int, placed: list[str], times: int
    ) -> None:
        for _ in range(times):
            self.a_batch_commits(change, tasks, placed)

    @rule(change=changed, tasks=tasks_count, placed=hosts)
    def a_batch_dies_before_its_commit(
        self, change: dict[tuple[str, Key], bytes | None], tasks: int, placed: list[str]
    ) -> None:
        self.work(self.batch + 1, change, tasks, placed)

    @rule(host=st.sampled_from(HOSTS), tasks=tasks_count)
    def a_host_reads_everything(self, host: str, tasks: int) -> None:
        for task in range(tasks):
            groups = groups_of_task(task, tasks, KEY_GROUPS)
            state = self.caught_up(host, groups, self.batch)
            self.check(state, groups, self.batch)
            state.close()

    @rule(host=st.sampled_from(HOSTS))
    def a_view_is_deleted(self, host: str) -> None:
        shutil.rmtree(self.folder / "views" / host, ignore_errors=True)

    @rule(host=st.sampled_from(HOSTS), shard=st.integers(min_value=0, max_value=15))
    def a_part_of_a_view_is_deleted(self, host: str, shard: int) -> None:
        shutil.rmtree(self.folder / "views" / host / f"{shard:02d}", ignore_errors=True)

    @rule(
        host=st.sampled_from(HOSTS),
        shard=st.integers(min_value=0, max_value=15),
        share=st.floats(min_value=0.0, max_value=0.99),
    )
    def a_part_of_a_view_is_truncated(self, host: str, shard: int, share: float) -> None:
        file = self.folder / "views" / host / f"{shard:02d}" / "data.mdb"
        if file.exists():
            os.truncate(file, int(file.stat().st_size * share))

    @rule(host=st.sampled_from(HOSTS), at=st.integers(min_value=0))
    def a_value_in_a_view_is_damaged(self, host: str, at: int) -> None:
        """One byte of one stored entry, whichever it is."""
        for file in sorted((self.folder / "views" / host).glob("*/data.mdb")):
            content = bytearray(file.read_bytes())
            found = content.find(b"long long")
            if found > 0:
                content[found + at % 9] ^= 1
                close_environments()
                file.write_bytes(content)

    @precondition(lambda self: self.last is not None)
    @rule(host=st.sampled_from(HOSTS), back=st.integers(min_value=0, max_value=RETAIN - 1))
    def a_view_ahead_goes_back_to_an_older_commit(self, host: str, back: int) -> None:
        batch = max(self.floor, self.batch - back)
        state = self.caught_up(host, (0, KEY_GROUPS), batch)
        self.check(state, (0, KEY_GROUPS), batch)
        state.close()

    @precondition(lambda self: self.last is not None)
    @rule()
    def a_new_host_reads_every_commit_that_is_promised_to_be_usable(self) -> None:
        for batch in range(self.floor, self.batch + 1):
            shutil.rmtree(self.folder / "views" / "new", ignore_errors=True)
            state = self.caught_up("new", (0, KEY_GROUPS), batch)
            self.check(state, (0, KEY_GROUPS), batch)
            state.close()

    @rule(is_rebooted=st.booleans())
    def the_driver_restarts(self, is_rebooted: bool) -> None:
        """Opening sweeps what attempts have left; workers are other processes then."""
        self.checkpoint.release()
        if is_rebooted:
            close_environments()
        self.open()
        assert self.batch == max(self.truth)

    @precondition(lambda self: self.batch > 0)
    @rule(
        back=st.integers(min_value=1, max_value=RETAIN - 1),
        host=st.sampled_from(HOSTS),
        change=changed,
        placed=hosts,
        times=st.integers(min_value=0, max_value=2),
    )
    def the_newest_commits_are_rolled_back(
        self,
        back: int,
        host: str,
        change: dict[tuple[str, Key], bytes | None],
        placed: list[str],
        times: int,
    ) -> None:
        """A host that has seen them keeps its view, while other hosts commit other batches of the
        same numbers.
        """
        self.a_host_reads_everything(host, tasks=1)
        for batch in range(self.batch, max(self.floor, self.batch - back), -1):
            self.checkpoint.commits.delete(batch)
            del self.truth[batch]
        self.the_driver_restarts(is_rebooted=False)
        self.a_run_of_equal_batches(change, 1, placed, times)
        self.a_host_reads_everything(host, tasks=1)

    @precondition(lambda self: self.batch >= 4 * SNAPSHOT_EVERY)
    @rule()
    def the_log_is_short(self) -> None:
        """What is kept is bounded by the rotation and the retained commits, not by the age of the
        run.
        """
        names = self.checkpoint.storage.names
        bound = 2 * SNAPSHOT_EVERY + 2 * RETAIN + 2 * SWEEP_EVERY
        assert len(names("commits")) <= bound
        assert {int(name.split(".")[0]) for name in names("deltas")} <= set(
            range(self.batch - bound, self.batch + 2)
        )
        assert {int(name.split(".")[0]) for name in names("snapshots")} <= set(
            range(self.batch - bound, self.batch + 2)
        )


def _group(key: Key) -> int:
    return group_of(encode_key(key), KEY_GROUPS)


StateOfACheckpoint.TestCase.settings = settings(max_examples=25, stateful_step_count=16)
TestStateOfACheckpoint = StateOfACheckpoint.TestCase
