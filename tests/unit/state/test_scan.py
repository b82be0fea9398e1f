"""Ranges of keys in order, as timers and windows read them; and state that a task drops."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.engine.blocks.keys import Key, encode_key, group_of
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.log.commits import Commit, CommitLog, DeltaRef
from wallaroo.state.log.delta import (
    DeltaFile,
    Entry,
    Origin,
    encode,
)
from wallaroo.state.log.history import History
from wallaroo.state.log.snapshots import sizes_in
from wallaroo.state.task_state import TaskState
from wallaroo.state.views.entry_codec import KEY_BYTES_MAX
from wallaroo.state.views.environments import close_environments
from wallaroo.state.views.view import View

GROUPS = 4
STEPS = ("timers", "totals")


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_environments()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[Checkpoint]:
    opened = open_checkpoint(tmp_path / "checkpoint", is_durable=False)
    yield opened
    opened.release()


def commit(checkpoint: Checkpoint, batch: int, entries: dict[int, list[Entry]]) -> History:
    """Publish a batch that wrote these entries; return the history up to it."""
    file = f"deltas/{batch}.delta"
    content, digest = encode(Origin(checkpoint.id, batch, file), entries)
    checkpoint.storage.publish(file, content)
    delta = DeltaRef(file, 0, GROUPS, len(content), sum(map(len, entries.values())), digest)
    checkpoint.commits.publish(
        Commit(
            batch,
            {},
            (delta,),
            steps=STEPS,
            checkpoint=checkpoint.id,
            id=f"{batch}",
            parent=f"{batch - 1}" if batch else "",
        )
    )
    return History(checkpoint.storage, (), batch, CommitLog(checkpoint.storage).read)


def timer(at_ms: int, key: str) -> bytes:
    """A raw key in order of time: a tag that no encoded key has, the time, the key."""
    return b"t" + struct.pack(">Q", at_ms) + encode_key(key)


@settings(max_examples=30, deadline=None)
@given(
    st.sets(st.tuples(st.integers(0, 1), st.binary(min_size=2, max_size=3)), max_size=40),
    st.sets(st.binary(min_size=2, max_size=2), max_size=20),
)
def test_entries_with_some_prefixes_are_found(
    stored: set[tuple[int, bytes]], wanted: set[bytes]
) -> None:
    prefixes = sorted(wanted | {key[:2] for _, key in sorted(stored)[::2]})
    with TemporaryDirectory() as folder:
        opened = open_checkpoint(Path(folder) / "checkpoint", is_durable=False)
        view = View(Path(folder) / "view", GROUPS, 0, GROUPS)
        entries = [Entry(step, key, key[::-1]) for step, key in sorted(stored)]
        view.catch_up(commit(opened, 0, {1: entries}))
        for step in (0, 1):
            assert view.scan_each(1, step, prefixes) == [
                (key[:2], key, key[::-1])
                for of_step, key in sorted(stored)
                if of_step == step and key[:2] in prefixes
            ]
        view.close()
        close_environments()
        opened.release()


def test_raw_keys_are_found_in_the_order_of_their_bytes(
    tmp_path: Path, checkpoint: Checkpoint
) -> None:
    times = [5, 300, 70_000, 2**40, 256, 1]
    entries = {1: [Entry(0, timer(at, "a"), b"%d" % at) for at in times]}
    entries[1] += [Entry(1, timer(6, "a"), b"other step")]
    entries[2] = [Entry(0, timer(6, "b"), b"other group")]
    view = View(tmp_path / "view", GROUPS, 0, GROUPS)
    view.catch_up(commit(checkpoint, 0, entries))

    due = view.scan(1, 0, b"t", timer(70_000, ""))

    assert [int(entry.value or b"") for entry in due] == [1, 5, 256, 300]
    assert [entry.value for entry in view.scan(1, 0)] == [b"%d" % at for at in sorted(times)]
    assert [entry.value for entry in view.scan(1, 0, timer(300, ""))] == [
        b"300",
        b"70000",
        b"%d" % 2**40,
    ]
    view.close()


def test_a_task_scans_all_of_its_groups_in_one_order(
    tmp_path: Path, checkpoint: Checkpoint
) -> None:
    entries = {
        group: [Entry(0, timer(10 * at + group, "k"), b"%d" % (10 * at + group)) for at in range(3)]
        for group in range(GROUPS)
    }
    state = TaskState(tmp_path / "view", GROUPS, (1, 3), STEPS, checkpoint.id)
    state.catch_up(commit(checkpoint, 0, entries))

    found = [int(entry.value or b"") for entry in state.scan("timers", b"t", timer(12, "z"))]

    assert found == [1, 2, 11, 12]
    assert list(state.scan("totals", b"")) == []
    state.close()


@settings(max_examples=30, deadline=None)
@given(
    st.sets(st.one_of(st.binary(max_size=4), st.binary(min_size=478, max_size=484)), max_size=8),
    st.binary(max_size=4),
    st.one_of(st.none(), st.binary(max_size=4), st.binary(min_size=478, max_size=484)),
)
def test_a_scan_is_what_a_sorted_dict_would_give(
    tmp_path_factory: pytest.TempPathFactory, keys: set[bytes], low: bytes, high: bytes | None
) -> None:
    """Of the keys that are stored in order."""
    folder = tmp_path_factory.mktemp("scan")
    opened = open_checkpoint(folder / "checkpoint", is_durable=False)
    entries = {0: [Entry(0, b"s" + key, key) for key in keys]}
    view = View(folder / "view", GROUPS, 0, GROUPS)
    view.catch_up(commit(opened, 0, entries))
    high = None if high is None else b"s" + high

    found = [entry.key for entry in view.scan(0, 0, b"s" + low, high)]

    assert found == sorted(
        b"s" + key
        for key in keys
        if len(key) < KEY_BYTES_MAX
        and b"s" + low <= b"s" + key
        and (high is None or b"s" + key < high)
    )
    view.close()
    opened.release()
    close_environments()


def test_state_that_a_task_drops_is_nowhere_any_more(
    tmp_path: Path, checkpoint: Checkpoint
) -> None:
    """Not in the view, nor in a snapshot made of it, nor in what the inspection counts."""

    class Changes:
        def __init__(self, *changes: tuple[str, bytes | None]):
            self._changes = changes

        def changes(self) -> Iterator[tuple[str, bytes | None]]:
            return iter(self._changes)

    last: Commit | None = None
    for batch, changes in enumerate(
        [Changes(("a", b"1"), ("b", b"1")), Changes(("a", None), ("never", None))]
    ):
        state = TaskState(tmp_path / "view", GROUPS, (0, GROUPS), STEPS, checkpoint.id)
        state.catch_up(History(checkpoint.storage, (), batch - 1, checkpoint.commits.read))
        delta = state.write_delta({"totals": changes}, f"{batch}.0.0.x", checkpoint.storage, batch)  # type: ignore[dict-item]
        assert delta is not None
        last = Commit(
            batch,
            {},
            (delta,),
            steps=STEPS,
            checkpoint=checkpoint.id,
            id=f"{batch}",
            parent=last.id if last else "",
        )
        checkpoint.commits.publish(last)
        state.close()

    state = TaskState(tmp_path / "view", GROUPS, (0, GROUPS), STEPS, checkpoint.id)
    state.catch_up(History(checkpoint.storage, (), 1, checkpoint.commits.read))
    assert [state.reader("totals")(key) for key in ("a", "b")] == [None, b"1"]
    group = group_of(encode_key("a"), GROUPS)
    state.write_snapshots([group], 1, "y", checkpoint.storage)
    snapshots = tuple(state.write_snapshots(range(GROUPS), 1, "z", checkpoint.storage))
    state.close()
    assert sizes_in(checkpoint.storage, Commit(2, {}, (), snapshots)) == {
        group: {name: list(size) for name, size in steps.items()}
        for group, steps in state.group_sizes.items()
        if steps
    }
    found = CheckpointReader(checkpoint.root).at()
    in_groups = [steps["totals"] for steps in state.group_sizes.values() if steps]
    assert in_groups == [(found.sizes()["totals"].keys, found.sizes()["totals"].bytes)]
    assert sorted(state.group_sizes) == list(range(GROUPS))
    assert [entry.key for entry in found.entries()] == ["b"]
    assert found.sizes()["totals"].keys == 1
    name = f"snapshots/1.{group}.y.snapshot"
    snapshot = DeltaFile(checkpoint.storage.read(name), name)
    assert b"sa" not in [entry.key for entry in snapshot.entries(group)]


def test_a_task_keeps_nothing_of_keys_whose_state_was_dropped(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """A run of months has many more keys than are there at a time."""
    located: dict[Key, tuple[int, bytes]] = {}
    state = TaskState(tmp_path / "view", GROUPS, (0, GROUPS), STEPS, checkpoint.id, located)
    state.by_group({"totals": [("stays", b"1"), ("leaves", b"1")]}, {})
    assert set(located) == {"stays", "leaves"}
    state.by_group({"totals": [("leaves", None)]}, {})
    assert set(located) == {"stays"}
    state.close()
