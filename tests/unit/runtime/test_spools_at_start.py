"""A run whose spools do not fit its checkpoint ends before anything is started or written."""

from __future__ import annotations

from pathlib import Path

import pytest

import wallaroo
from tests.unit.runtime.applications import Numbers
from wallaroo.errors import CheckpointError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.spool import folder_of
from wallaroo.spool.writer import SpoolWriter
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.log.commits import Commit


@wallaroo.computation(name="same")
def same(line: str) -> str:
    return line


@wallaroo.encoder
def encode(line: str) -> bytes:
    return line.encode()


def application(folder: Path) -> wallaroo.Application:
    lines = wallaroo.source("lines", wallaroo.GenSourceConfig("lines", Numbers(1)))
    sink = wallaroo.FileSinkConfig(str(folder / "out.txt"), encode)
    return wallaroo.build_application("app", lines.to(same).to_sink(sink))


def committed(root: Path, offset: list[int]) -> str:
    """Commit as if the source had been read so far; return the checkpoint's id."""
    checkpoint = open_checkpoint(root, is_durable=True)
    checkpoint.commits.publish(
        Commit(0, {"lines": offset, "dropped": [7, 7]}, checkpoint=checkpoint.id, id="x")
    )
    checkpoint.release()
    return checkpoint.id


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
        and path.name not in ("lock", "lease.json", "run.json")
        and path.parent.name != "owners"
    }


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        ("", "source 'lines' has committed 5 events, and its spool .* is missing"),
        ("another", "belongs to another checkpoint"),
    ],
)
def test_a_spool_that_does_not_fit_ends_the_start(tmp_path: Path, owner: str, words: str) -> None:
    root = tmp_path / "checkpoint"
    committed(root, [100, 5])
    if owner:
        folder = folder_of(root / "spool", "lines")
        SpoolWriter(folder, is_durable=True, checkpoint=owner).close()
    before = contents(root)
    options = RunOptions(checkpoint=root, status_address=None)
    run = Run(application(tmp_path), options, InProcessHost())
    with pytest.raises(CheckpointError, match=words):
        run.start()
    assert contents(root) == before
