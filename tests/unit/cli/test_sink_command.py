"""``wallaroo sink skip``: only on a checkpoint that no run holds, and it says what is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.connectors.tcp.outbox import Job
from wallaroo.connectors.tcp.committer import OutboxCommitter
from wallaroo.connectors.tcp.pipe import EgressConfig
from wallaroo.durable.commit_id import CommitHistory, CommitId
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.log.commits import Commit

Command = Callable[..., tuple[int, str, str]]
SINK = "out"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkpoint of three commits, whose sink has sent nothing; the first is not retained."""
    root = tmp_path / "checkpoint"
    checkpoint = open_checkpoint(root, is_durable=False)
    staging = root / "outbox" / SINK
    job = Job(staging)
    committer = OutboxCommitter(EgressConfig("127.0.0.1", 1, str(staging), False, False))
    committer.recover(CommitHistory(checkpoint.id), ())
    for batch in range(3):
        publish(checkpoint, batch, tokens := job.tokens(batch, 300))
        committer.commit(CommitId(checkpoint.id, batch, f"id {batch}"), tokens)
    committer.retain_from(3)
    committer.close(0)
    checkpoint.commits.delete(0)
    checkpoint.release()
    return root


def publish(checkpoint: Checkpoint, batch: int, tokens: list[object]) -> None:
    checkpoint.commits.publish(
        Commit(
            batch,
            {},
            sinks={SINK: tokens},
            checkpoint=checkpoint.id,
            id=f"id {batch}",
            parent=f"id {batch - 1}",
        )
    )


def damage(root: Path, batch: int) -> None:
    (root / "outbox" / SINK / "pending" / f"{batch:012d}.json").write_text("{}")


def test_a_skip_says_how_much_is_lost(root: Path, wallaroo: Command) -> None:
    damage(root, 0)
    code, printed, errors = wallaroo("sink", "skip", root, SINK, "--batch", 0)
    assert (code, errors) == (0, "")
    assert "Skipped batch 0 of out: 40,800 bytes are lost, an unknown number of outputs." in printed
    code, _, errors = wallaroo("sink", "skip", root, SINK, "--batch", 0)
    assert code == 1
    assert "skipped already" in errors


def test_output_of_a_retained_commit_is_restored(root: Path, wallaroo: Command) -> None:
    damage(root, 1)
    code, printed, _ = wallaroo("sink", "skip", root, SINK, "--batch", 1)
    assert (code, "nothing is lost" in printed) == (0, True)


def test_a_sink_that_is_not_there_is_named_with_those_that_are(
    root: Path, wallaroo: Command
) -> None:
    code, _, errors = wallaroo("sink", "skip", root, "other", "--batch", 1)
    assert code == 1
    assert "has no TCP sink 'other'; it has: out" in errors


def test_a_folder_that_is_no_checkpoint_is_left_alone(tmp_path: Path, wallaroo: Command) -> None:
    code, _, errors = wallaroo("sink", "skip", tmp_path, SINK, "--batch", 1)
    assert (code, list(tmp_path.iterdir())) == (1, [])
    assert "is not a checkpoint" in errors


def test_a_checkpoint_that_a_run_holds_is_left_alone(root: Path, wallaroo: Command) -> None:
    damage(root, 1)
    checkpoint = open_checkpoint(root, is_durable=False)
    try:
        code, _, errors = wallaroo("sink", "skip", root, SINK, "--batch", 1)
    finally:
        checkpoint.release()
    assert code == 1
    assert "is in use by" in errors
