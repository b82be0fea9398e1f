"""The file sink: readers that follow its rule never see a partial or repeated batch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.errors import CheckpointError, PeerError, WallarooParameterError
from wallaroo.sinks.file.committer import FileCommitter
from wallaroo.sinks.file.config import FileSinkConfig
from wallaroo.sinks.interface import WriteContext

ROOT = Path(__file__).parents[3]


def staged(config: FileSinkConfig, staging: Path, batch: int, *parts: list[bytes]) -> list[object]:
    tokens = []
    for task, outputs in enumerate(parts):
        writer = config.writer(WriteContext("s", batch, task, "a", staging, True))
        writer.write(outputs)
        tokens.append(writer.prepare())
    return tokens


def opened(
    config: FileSinkConfig, staging: Path, batch: int = -1, tokens: list[object] | None = None
) -> FileCommitter:
    committer = config.committer("s", staging, True)
    committer.recover(history_to(batch), tokens or [])
    return committer


def committed(path: Path) -> bytes:
    """What an exact reader sees."""
    if path.suffix:
        return path.read_bytes()[
            : json.loads(path.with_name(path.name + ".committed").read_text())["length"]
        ]
    return b"".join(part.read_bytes() for part in sorted(path.glob("part-*")))


@pytest.fixture(params=["out", "out.txt"], ids=["directory", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    (tmp_path / "staging").mkdir()
    return tmp_path / "staging"


@pytest.mark.parametrize(
    ("form", "expected"),
    [("raw", b"abc"), ("lines", b"a\nbc\n"), ("frames", b"\0\0\0\1a\0\0\0\2bc")],
)
def test_outputs_are_written_in_the_chosen_form_and_order(
    path: Path, staging: Path, form: str, expected: bytes
) -> None:
    config = FileSinkConfig(path, form=form)
    committer = opened(config, staging)
    committer.commit(commit_of(0), staged(config, staging, 0, [b"a"], [], [b"bc"]))
    assert committed(path) == expected
    assert committer.status().outputs == 2
    assert list(committer.status().sent_at_ns) == [0]


def test_a_batch_committed_again_changes_nothing(path: Path, staging: Path) -> None:
    config = FileSinkConfig(path)
    tokens = [staged(config, staging, batch, [str(batch).encode()]) for batch in range(3)]
    committer = opened(config, staging)
    for batch in range(3):
        committer.commit(commit_of(batch), tokens[batch])
        committer.commit(commit_of(batch), tokens[batch])
    opened(config, staging, 2, tokens[2])
    assert committed(path) == b"012"


def test_recovery_publishes_the_last_commit_and_removes_what_nobody_committed(
    path: Path, staging: Path
) -> None:
    config = FileSinkConfig(path)
    opened(config, staging)
    last = staged(config, staging, 0, [b"x" * 20_000])
    staged(config, staging, 1, [b"y" * 20_000])
    opened(config, staging, 0, last)
    assert committed(path) == b"x" * 20_000
    assert list(staging.iterdir()) == []


def test_output_of_another_run_is_neither_mixed_nor_destroyed_unless_asked_for(
    path: Path, staging: Path
) -> None:
    config = FileSinkConfig(path)
    opened(config, staging).commit(commit_of(0), staged(config, staging, 0, [b"old"]))
    with pytest.raises(PeerError, match="overwrite=True"):
        opened(config, staging)
    assert committed(path) == b"old"
    fresh = FileSinkConfig(path, overwrite=True)
    opened(fresh, staging).commit(commit_of(0), staged(fresh, staging, 0, [b"new"]))
    assert committed(path) == b"new"


def test_a_file_somebody_else_made_is_left_alone(tmp_path: Path, staging: Path) -> None:
    (tmp_path / "notes.txt").write_text("precious")
    with pytest.raises(PeerError, match=r"notes\.txt"):
        opened(FileSinkConfig(tmp_path / "notes.txt"), staging)
    assert (tmp_path / "notes.txt").read_text() == "precious"


def test_a_shortened_file_is_an_error_that_names_it(tmp_path: Path, staging: Path) -> None:
    config = FileSinkConfig(tmp_path / "out.txt")
    tokens = staged(config, staging, 0, [b"abc"])
    opened(config, staging).commit(commit_of(0), tokens)
    os.truncate(tmp_path / "out.txt", 1)
    with pytest.raises(CheckpointError, match=r"out\.txt has 1 bytes"):
        opened(config, staging, 0, tokens)


def test_a_damaged_sidecar_is_an_error_that_names_it(tmp_path: Path, staging: Path) -> None:
    config = FileSinkConfig(tmp_path / "out.txt")
    opened(config, staging)
    (tmp_path / "out.txt.committed").write_text('{"format": 1, "batch": 0, "length": 9, "crc": 1}')
    with pytest.raises(CheckpointError, match=r"out\.txt\.committed"):
        opened(config, staging)


def test_an_unknown_form_is_refused_when_it_is_written() -> None:
    with pytest.raises(WallarooParameterError, match="'json' is unknown"):
        FileSinkConfig("out", form="json")


COMMIT = """
import json, sys
from pathlib import Path
from tests.unit.sinks.identities import history_to
from wallaroo.sinks.file.config import FileSinkConfig
path, staging, number, tokens, is_overwriting = json.loads(sys.argv[1])
committer = FileSinkConfig(path, overwrite=is_overwriting).committer("s", Path(staging), True)
committer.recover(history_to(number), tokens)
"""


def killed_at(
    point: str,
    path: Path,
    staging: Path,
    number: int,
    tokens: list[object],
    is_overwriting: bool = False,
) -> bool:
    """Let a process recover the sink; whether it died at the point."""
    command = [
        sys.executable,
        "-c",
        COMMIT,
        json.dumps([str(path), str(staging), number, tokens, is_overwriting]),
    ]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "WALLAROO_FAULT": point}
    return subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "point", ["file.write:1", "file.write:2", "file.fsync:1", "file.rename:1", "file.renamed:1"]
)
def test_a_driver_killed_at_any_point_of_a_commit_finishes_it_at_its_next_start(
    path: Path, staging: Path, point: str
) -> None:
    config = FileSinkConfig(path)
    opened(config, staging).commit(commit_of(0), staged(config, staging, 0, [b"zero"]))
    tokens = staged(config, staging, 1, [b"one"], [b"two"])
    assert killed_at(point, path, staging, 1, tokens)
    assert committed(path) in (b"zero", b"zeroonetwo")
    opened(config, staging, 1, tokens).commit(commit_of(2), staged(config, staging, 2, [b"three"]))
    assert committed(path) == b"zeroonetwothree"
    assert path.is_dir() or path.read_bytes() == b"zeroonetwothree"


def test_a_driver_killed_while_it_cuts_what_nobody_committed_cuts_it_at_its_next_start(
    tmp_path: Path, staging: Path
) -> None:
    path = tmp_path / "out.txt"
    config = FileSinkConfig(path)
    tokens = staged(config, staging, 0, [b"zero"])
    opened(config, staging).commit(commit_of(0), tokens)
    with path.open("ab") as file:
        file.write(b"half of a batch")
    assert killed_at("file.truncate:1", path, staging, 0, tokens)
    opened(config, staging, 0, tokens)
    assert path.read_bytes() == committed(path) == b"zero"


def test_a_driver_killed_while_it_wipes_old_output_wipes_it_at_its_next_start(
    tmp_path: Path, staging: Path
) -> None:
    path = tmp_path / "out.txt"
    config = FileSinkConfig(path, overwrite=True)
    opened(config, staging).commit(commit_of(0), staged(config, staging, 0, [b"old"]))
    assert killed_at("file.wiped:1", path, staging, -1, [], is_overwriting=True)
    opened(config, staging).commit(commit_of(0), staged(config, staging, 0, [b"new"]))
    assert path.read_bytes() == committed(path) == b"new"
