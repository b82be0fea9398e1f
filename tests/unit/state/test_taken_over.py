"""What a run deletes, or cuts off, it asks for first: nothing of the run that took over."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from wallaroo.connectors.file.single_file import SingleFileCommitter
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.durable.commit_id import CommitHistory
from wallaroo.durable.folders import make_private
from wallaroo.errors import TakenOverError
from wallaroo.runtime.batch.housekeeping import Housekeeping
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
