"""What a run deletes, or cuts off, it asks for first: nothing of the run that took over."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

import wallaroo
from wallaroo.checkpoints.inspection.compatibility import check_compatibility
from wallaroo.connectors.file.single_file import SingleFileCommitter
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.durable.commit_id import CommitHistory, CommitId
from wallaroo.durable.folders import make_private
from wallaroo.durable.whole_file import remove_unfinished, write_whole
from wallaroo.errors import TakenOverError
from wallaroo.runtime.batch.housekeeping import Housekeeping
from wallaroo.sinks.queued.delivery_queue import WaitingBatches
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.staging import remove_orphans
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.views.view_folders import remove_other_views, view_name


@pytest.fixture
def former(tmp_path: Path) -> Checkpoint:
    """The checkpoint as a run sees it that was taken over."""
    checkpoint = open_checkpoint(tmp_path / "state", is_durable=False)
    open_checkpoint(checkpoint.root, is_durable=False, is_taking_over=True).release()
    return checkpoint


def test_staged_output_of_the_next_run_stays(former: Checkpoint) -> None:
    staged = former.root / "outbox" / "1.0.0.out"
    staged.write_bytes(b"output")
    with pytest.raises(TakenOverError):
        remove_orphans(former.root / "outbox", set(), former.owner)
    assert staged.exists()


def test_views_of_the_next_run_stay(former: Checkpoint) -> None:
    view = former.root / "view" / view_name(f"{former.id}-2")
    make_private(view)
    with pytest.raises(TakenOverError):
        remove_other_views(former.root / "view", former.view, former.owner.require)
    assert view.is_dir()


def test_deltas_of_the_next_run_stay(former: Checkpoint) -> None:
    delta = former.root / "deltas" / "0.0.0.0123456789ab.delta"
    delta.write_bytes(b"delta")
    with pytest.raises(TakenOverError):
        Housekeeping(former, 2, 1)
    assert delta.exists()


def test_output_of_the_next_run_is_not_cut_off(
    former: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = mock.Mock()
    monkeypatch.setattr(SingleFileCommitter, "_begin", cut)
    folder = former.root / "outbox" / "file"
    folder.mkdir()
    committer = FileSinkConfig(tmp_path / "out.txt", str.encode).committer("file", folder, False)
    with pytest.raises(TakenOverError):
        committer.recover(CommitHistory(former.id, owner=former.owner), [])
    cut.assert_not_called()


def test_a_file_that_was_about_to_be_renamed_is_not_put_over_the_next_run_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held up right before, the former run must neither go back nor take the next one's file."""
    path = tmp_path / "out.txt.committed"

    def write(content: bytes, writer: str) -> None:
        write_whole(path, content, is_durable=False, points="file.sidecar", writer=writer)

    def hold_up(name: str) -> None:
        if name == "file.sidecar.rename":
            monkeypatch.undo()
            remove_unfinished(path)
            write(b"of the next run", "2")

    monkeypatch.setattr("wallaroo.durable.whole_file.fault_point", hold_up)
    with pytest.raises(FileNotFoundError):
        write(b"of the former run", "1")
    assert path.read_bytes() == b"of the next run"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_what_a_sink_writes_at_each_commit_has_the_run_s_epoch_in_its_temporary_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two runs that write one file, none writes into, or renames, what is the other one's."""
    renamed: list[str] = []
    rename = os.rename

    def note(source: Path, target: Path) -> None:
        renamed.append(source.name)
        rename(source, target)

    checkpoint = open_checkpoint(tmp_path / "state", is_durable=False)
    staging = checkpoint.root / "outbox" / "file"
    committer = FileSinkConfig(tmp_path / "out.txt", str.encode).committer("file", staging, False)
    committer.recover(CommitHistory(checkpoint.id, owner=checkpoint.owner), [])
    monkeypatch.setattr(os, "rename", note)
    token = {"file": "", "inline": "eA==", "bytes": 1, "outputs": 1, "crc": 0}
    monkeypatch.setattr("wallaroo.connectors.file.single_file.read_staged", mock.MagicMock())
    monkeypatch.setattr("wallaroo.connectors.file.single_file.write_all", mock.Mock())
    monkeypatch.setattr("wallaroo.connectors.file.single_file.tail_digest", lambda tail: 0)
    committer.commit(CommitId(checkpoint.id, 0, "id"), [token])
    epoch = checkpoint.owner.epoch
    assert renamed == [f".out.txt.committed.{epoch}.tmp", f".left.json.{epoch}.tmp"]


def _plan(checkpoint: Checkpoint) -> str:
    """Write the plan; return its name."""
    source = wallaroo.source("in", wallaroo.FileSourceConfig("in", "in.txt"))
    encode = wallaroo.encoder(str.encode)
    sink = wallaroo.FileSinkConfig(checkpoint.root.parent / "out.txt", encode)
    check_compatibility(
        checkpoint, wallaroo.build_application("plan", source.to_sink(sink)).plan, False
    )
    return "plan.json"


def _pending(checkpoint: Checkpoint) -> str:
    """List a batch that waits; return the list's name."""
    waiting = WaitingBatches(checkpoint.root / "outbox" / "queued", is_durable=False)
    waiting.take_up([], CommitHistory(checkpoint.id, owner=checkpoint.owner), [])
    token = {"file": "", "inline": "eA==", "bytes": 1, "outputs": 1, "crc": 0}
    batch = PendingBatch.of(CommitId(checkpoint.id, 0, "id"), 0, [token])
    assert batch is not None
    waiting.add(batch)
    waiting.record(batch)
    return "000000000000.json"


@pytest.mark.parametrize("write", [_plan, _pending])
def test_plans_and_lists_have_the_run_s_epoch_in_their_temporary_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Checkpoint], str]
) -> None:
    """A run that was taken over may write its own at the same time, and would rename this one."""
    checkpoint = open_checkpoint(tmp_path / "state", is_durable=False)
    renamed: list[str] = []
    rename = os.rename

    def note(source: Path, target: Path) -> None:
        renamed.append(source.name)
        rename(source, target)

    monkeypatch.setattr(os, "rename", note)

    name = write(checkpoint)

    assert renamed == [f".{name}.{checkpoint.owner.epoch}.tmp"]
