"""Moving files back to an older commit: exactly, and finished or refused after a crash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.connectors.file.files import (
    committed,
    everything,
    killed_at,
    opened,
    sidecar,
    staged,
)
from tests.forks import Forks
from tests.unit.sinks.identities import CHECKPOINT, commit_of, history_to
from wallaroo.checkpoints.maintenance.rollback import roll_back_sinks
from wallaroo.connectors.file.sidecar import ENDS_KEPT
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.connectors.stdout.sink import StdoutSinkConfig
from wallaroo.connectors.tcp.progress import OutputProgress, begin_progress
from wallaroo.connectors.tcp.sink import TCPSinkConfig
from wallaroo.durable.commit_id import CommitId
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.sinks.interface import SinkConfig

WITHOUT_OUTPUT = 2  # this batch has none


@pytest.fixture(scope="module")
def driver(child_of: Callable[..., Forks]) -> Forks:
    return child_of("tests.connectors.file.child")


@dataclass(frozen=True)
class Scene:
    """A sink with batches 0 to 4."""

    config: FileSinkConfig
    staging: Path

    @property
    def path(self) -> Path:
        return Path(self.config.path)

    def tokens(self, batch: int, text: str) -> list[object]:
        return staged(self.config, self.staging, batch, [text.encode()])

    def roll_back(self, to: int) -> None:
        """By a new committer, as the command does it."""
        self.config.committer("s", self.staging, True).rollback(commit_of(to), [])


@pytest.fixture(params=["out", "out.txt"], ids=["directory", "file"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    scene = Scene(FileSinkConfig(tmp_path / "files" / str(request.param)), tmp_path / "staging")
    committer = opened(scene.config, scene.staging)
    for batch in range(5):
        tokens = scene.tokens(batch, f"{batch};") if batch != WITHOUT_OUTPUT else []
        committer.commit(commit_of(batch), tokens)
    assert committed(scene.path) == b"0;1;3;4;"
    return scene


@pytest.mark.parametrize(
    ("to", "left"), [(4, b"0;1;3;4;"), (3, b"0;1;3;"), (2, b"0;1;"), (1, b"0;1;"), (0, b"0;")]
)
def test_after_a_rollback_the_later_batches_are_written_again_and_nothing_else(
    scene: Scene, to: int, left: bytes
) -> None:
    scene.roll_back(to)
    scene.roll_back(to)
    assert committed(scene.path) == left
    assert scene.path.is_dir() or scene.path.read_bytes() == left
    committer = opened(scene.config, scene.staging, to, scene.tokens(to, "published already"))
    committer.commit(commit_of(to + 1, "b"), scene.tokens(to + 1, "new;"))
    assert committed(scene.path) == left + b"new;"


def test_a_rollback_to_before_the_first_commit_leaves_nothing(scene: Scene) -> None:
    scene.config.committer("s", scene.staging, True).rollback(CommitId(CHECKPOINT), [])
    assert committed(scene.path) == b""
    committer = opened(scene.config, scene.staging)
    committer.commit(commit_of(0, "b"), scene.tokens(0, "new;"))
    assert committed(scene.path) == b"new;"


def test_sinks_that_were_moved_back_without_their_checkpoint_are_refused(scene: Scene) -> None:
    scene.roll_back(1)
    before = everything(scene.path.parent)
    with pytest.raises(CheckpointError, match="Finish the rollback"):
        opened(scene.config, scene.staging, 4, scene.tokens(4, "4;"))
    assert everything(scene.path.parent) == before


def test_a_rollback_back_and_further_back(scene: Scene) -> None:
    scene.roll_back(3)
    scene.roll_back(0)
    assert committed(scene.path) == b"0;"
    opened(scene.config, scene.staging, 0, [])


def test_output_that_was_moved_away_is_not_written_again_after_a_rollback(
    scene: Scene, tmp_path: Path
) -> None:
    scene.path.parent.rename(tmp_path / "archive")
    scene.roll_back(3)
    committer = opened(scene.config, scene.staging, 3, scene.tokens(3, "3;"))
    committer.commit(commit_of(4, "b"), scene.tokens(4, "new;"))
    assert committed(scene.path) == b"new;"


POINTS = {
    "out": ["file.marker.rename:1", "file.remove_part:1", "file.remove_part:2"],
    "out.txt": ["file.sidecar.rename:1", "file.truncate:1", "file.truncated:1"],
}


@pytest.mark.parametrize(
    ("name", "point"),
    [
        *(("out", point) for point in (*POINTS["out"], "file.parts_removed:1")),
        *(("out.txt", point) for point in (*POINTS["out.txt"], "file.sidecar.published:1")),
    ],
)
def test_a_rollback_that_is_killed_is_finished_or_refused(
    driver: Forks, tmp_path: Path, name: str, point: str
) -> None:
    config, staging = FileSinkConfig(tmp_path / "files" / name), tmp_path / "staging"
    committer = opened(config, staging)
    for batch in range(4):
        committer.commit(commit_of(batch), staged(config, staging, batch, [f"{batch};".encode()]))
    path = Path(config.path)
    assert killed_at(driver, point, path, staging, 1, [], verb="rollback")
    assert b"0;1;2;3;".startswith(committed(path))
    try:  # the checkpoint was rolled back before
        opened(config, staging, 1, [])
    except CheckpointError as error:
        assert "wallaroo state rollback" in str(error)  # noqa: PT017  # both ways are allowed
        config.committer("s", staging, True).rollback(commit_of(1), [])
    opened(config, staging, 1, [])
    assert committed(path) == b"0;1;"
    assert path.is_dir() or path.read_bytes() == b"0;1;"


def test_a_file_is_moved_back_to_one_of_its_last_commits_only(tmp_path: Path) -> None:
    config, staging = FileSinkConfig(tmp_path / "out.txt"), tmp_path / "staging"
    committer = opened(config, staging)
    for batch in range(ENDS_KEPT + 10):
        committer.commit(commit_of(batch), staged(config, staging, batch, [b"x"]))
    before = everything(tmp_path)
    with pytest.raises(CheckpointError, match="can be moved back to batch 10 at most"):
        config.committer("s", staging, True).rollback(commit_of(9), [])
    assert everything(tmp_path) == before
    config.committer("s", staging, True).rollback(commit_of(10), [])
    assert committed(tmp_path / "out.txt") == b"x" * 11


def test_what_is_not_this_checkpoints_output_is_not_touched(scene: Scene) -> None:
    foreign = commit_of(1, checkpoint="f" * 32)
    before = everything(scene.path.parent)
    with pytest.raises(CheckpointError):
        scene.config.committer("s", scene.path.parent.parent / "other", True).rollback(foreign, [])
    with pytest.raises(CheckpointError, match="another commit 1"):
        scene.config.committer("s", scene.staging, True).rollback(commit_of(1, "b"), [])
    assert everything(scene.path.parent) == before


def test_a_directory_with_a_part_of_another_run_is_not_touched(tmp_path: Path) -> None:
    config, staging = FileSinkConfig(tmp_path / "out"), tmp_path / "staging"
    committer = opened(config, staging)
    for batch in range(3):
        committer.commit(commit_of(batch), staged(config, staging, batch, [b"x"]))
    (tmp_path / "out" / "part-000000000009").write_text("precious")
    before = everything(tmp_path / "out")
    with pytest.raises(CheckpointError, match="not of this checkpoint"):
        config.committer("s", staging, True).rollback(commit_of(0), [])
    assert everything(tmp_path / "out") == before


def test_a_sink_that_was_moved_since_is_moved_back_no_further(scene: Scene, tmp_path: Path) -> None:
    moved = FileSinkConfig(tmp_path / "elsewhere" / scene.path.name)
    committer = opened(moved, scene.staging, 4, [])
    committer.commit(commit_of(5), staged(moved, scene.staging, 5, [b"5;"]))
    before = everything(tmp_path)
    with pytest.raises(CheckpointError, match="until batch 4 its output went to"):
        moved.committer("s", scene.staging, True).rollback(commit_of(3), [])
    with pytest.raises(CheckpointError, match="roll back with the path that it was run with"):
        scene.roll_back(3)
    assert everything(tmp_path) == before
    moved.committer("s", scene.staging, True).rollback(commit_of(4), [])
    assert committed(Path(moved.path)) == b""
    assert committed(scene.path) == b"0;1;3;4;"


def test_a_file_with_half_a_batch_is_not_moved_back(tmp_path: Path) -> None:
    config, staging = FileSinkConfig(tmp_path / "out.txt"), tmp_path / "staging"
    committer = opened(config, staging)
    for batch in range(3):
        committer.commit(commit_of(batch), staged(config, staging, batch, [b"x"]))
    with (tmp_path / "out.txt").open("ab") as file:
        file.write(b"half")
    with pytest.raises(CheckpointError, match="run the application once"):
        config.committer("s", staging, True).rollback(commit_of(0), [])


# -- all sinks of an application


def rolled_back(sinks: dict[str, SinkConfig], outbox: Path, to: int) -> None:
    roll_back_sinks(sinks, outbox, commit_of(to), {}, is_durable=True)


def test_no_sink_is_touched_where_one_cannot_follow_and_it_is_named(tmp_path: Path) -> None:
    sinks: dict[str, SinkConfig] = {
        "file": FileSinkConfig(tmp_path / "out.txt"),
        "tcp": TCPSinkConfig("127.0.0.1", 7002),
        "stdout": StdoutSinkConfig(),
    }
    config = sinks["file"]
    assert isinstance(config, FileSinkConfig)
    staging = tmp_path / "outbox" / "file"
    staging.mkdir(parents=True)
    committer = opened(config, staging, sink="file")
    for batch in range(3):
        committer.commit(commit_of(batch), staged(config, staging, batch, [b"x"]))
    sent = tmp_path / "outbox" / "tcp"
    sent.mkdir()
    begin_progress(sent, OutputProgress(CHECKPOINT, begun_batch=1), False)
    (sent / "lock").touch()
    before = everything(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"tcp \(tcp 127\.0\.0\.1:7002\): output up to batch 1"
    ):
        rolled_back(sinks, tmp_path / "outbox", 0)
    assert everything(tmp_path) == before
    del sinks["tcp"]
    rolled_back(sinks, tmp_path / "outbox", 0)
    assert committed(tmp_path / "out.txt") == b"x"


def test_a_sink_that_finds_a_reason_keeps_the_others_where_they_are(tmp_path: Path) -> None:
    sinks: dict[str, SinkConfig] = {}
    for name in ("file", "file-2"):
        config = FileSinkConfig(tmp_path / f"{name}.txt")
        sinks[name] = config
        committer = opened(config, tmp_path / "outbox" / name, sink=name)
        for batch in range(3):
            tokens = staged(config, tmp_path / "outbox" / name, batch, [b"x"])
            committer.commit(commit_of(batch), tokens)
    sidecar(tmp_path / "file-2.txt").rename(tmp_path / "gone")
    with pytest.raises(CheckpointError, match=r"file-2 \(file .*not output of this checkpoint"):
        rolled_back(sinks, tmp_path / "outbox", 0)
    assert committed(tmp_path / "file.txt") == b"xxx"
    with pytest.raises(PeerError):
        opened(FileSinkConfig(tmp_path / "file-2.txt"), tmp_path / "outbox" / "file-2", 2)


def test_a_history_names_what_was_rolled_back() -> None:
    """The identities of these tests: the same number, another commit."""
    assert not history_to(3).contains(commit_of(3, "b"))
