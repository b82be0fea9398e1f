"""Going back to an older commit: state, sources and sinks together, or nothing at all."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from wallaroo.api.decorators import encoder
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.durable.folders import make_private
from wallaroo.errors import CheckpointError
from wallaroo.sinks.interface import WriteContext
from wallaroo.spool import Boundary, SpoolReader, folder_of, read_tail, write_tail
from wallaroo.spool.writer import SpoolWriter
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.log.commits import CommitLog
from wallaroo.state.log.storage import LocalStorage

Run = Callable[..., tuple[int, str, str]]

# Two sinks that note in a file what they are asked; "follows" says whether they can go back.
APPLICATION = """
import json
import pathlib
import sys

import wallaroo
from wallaroo.api.decorators import encoder
from wallaroo.durable.folders import make_private
from wallaroo.errors import CheckpointError
from wallaroo.sinks import SinkCommitter, SinkConfig, SinkStatus, SinkWriter
from dataclasses import dataclass


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(data):
    return data


@wallaroo.key_extractor
def key(event):
    return event


@wallaroo.encoder
def encode(event):
    return event


class Committer(SinkCommitter):
    def __init__(self, path, follows):
        self.path, self.follows = path, follows

    def note(self, *words):
        with self.path.open("a") as file:
            file.write(json.dumps(words) + "\\n")

    def recover(self, history, tokens):
        pass

    def commit(self, commit, tokens):
        pass

    def check_rollback(self, to, tokens):
        if not self.follows:
            raise CheckpointError("it was sent by mail")
        self.note("check", to.batch, to.id)

    def rollback(self, to, tokens):
        self.note("rollback", to.batch, to.id, list(tokens))

    def status(self):
        return SinkStatus()

    def close(self, drain_s):
        pass


@dataclass(frozen=True)
class Sink(SinkConfig):
    path: pathlib.Path
    follows: bool = True
    can_roll_back = True
    encoder = encode

    @property
    def label(self):
        return f"noting {self.path.name}"

    def writer(self, context):
        raise NotImplementedError

    def committer(self, sink, staging, is_durable):
        return Committer(self.path, self.follows)


def application_setup(args):
    folder, follows = pathlib.Path(args[0]), args[1] == "follows"
    source = wallaroo.TCPSourceConfig("Lines", "127.0.0.1", 0, decode)
    pipeline = wallaroo.source("Lines", source).key_by(key)
    pipeline = pipeline.to_sinks([Sink(folder / "one"), Sink(folder / "two", follows)])
    return wallaroo.build_application("noted", pipeline)
"""


class Stage:
    """A stopped application with six commits, input for all of them, and where its sinks note."""

    def __init__(self, folder: Path, book: Any):
        self.folder = folder
        self.root: Path = book.root
        self.book = book
        self.spool = folder_of(self.root / "spool", "Lines")
        self.app = folder / "noted_application.py"

    def arguments(self, to: int, follows: str = "follows") -> tuple[object, ...]:
        return ("state", "rollback", "--to", to, self.root, self.app, self.folder, follows)

    def notes(self, sink: str) -> list[list[Any]]:
        file = self.folder / sink
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def commits(self) -> list[int]:
        return CommitLog(LocalStorage(str(self.root), False)).batches()


def fill_spool(root: Path) -> None:
    """Six batches of input, as Book counts it; a run that retains four commits has released two."""
    folder = folder_of(root / "spool", "Lines")
    writer = SpoolWriter(folder, is_durable=False, segment_bytes_max=70)
    for _ in range(6):
        writer.append(b"x" * 42, 7, receipt_ns=1)
    writer.publish()
    assert writer.position == Boundary(6 * 70, 6 * 7)
    write_tail(folder, writer.position, Boundary(140, 14))
    writer.remove_consumed()
    writer.close()


@pytest.fixture
def stage(
    tmp_path: Path, begin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    book = begin()
    for batch in range(6):
        book.write({("count", "a"): batch, ("count", f"k{batch}"): batch})
    book.close()
    fill_spool(book.root)
    (tmp_path / "noted_application.py").write_text(APPLICATION)
    monkeypatch.setattr(sys, "path", list(sys.path))  # the command puts the folder first
    yield Stage(tmp_path, book)
    sys.modules.pop("noted_application", None)


def state_of(root: Path) -> dict[Any, Any]:
    return {
        (entry.step, entry.key): pickle.loads(entry.raw)
        for entry in CheckpointReader(root).at().entries()
    }


def test_state_sources_and_sinks_go_back_together(stage: Stage, wallaroo: Run) -> None:
    code, out, errors = wallaroo(*stage.arguments(3))

    assert code == 0, errors
    assert "is at commit 3: dropped 4 to 5" in out
    assert stage.commits()[-1] == 3
    assert state_of(stage.root) == stage.book.expected[3]
    assert read_tail(stage.spool) == Boundary(280, 28)
    commit = CheckpointReader(stage.root).at().commit
    assert stage.notes("one")[-1] == ["rollback", 3, commit.id, []]
    assert stage.notes("two")[-1][0] == "rollback"
    chunks = list(
        SpoolReader(stage.spool).chunks(Boundary(280), SpoolReader(stage.spool).head().position)
    )
    assert len(chunks) == 2


def test_a_run_goes_on_from_there_and_uses_the_numbers_again(
    stage: Stage, begin: Callable[..., Any], wallaroo: Run
) -> None:
    """The view has seen the commits that were dropped."""
    assert wallaroo(*stage.arguments(3))[0] == 0

    again = begin()
    again._now = dict(stage.book.expected[3])
    again.write({("count", "b"): "new"})
    again.close()

    assert stage.commits()[-1] == 4
    assert state_of(stage.root) == {**stage.book.expected[3], ("count", "b"): "new"}
    assert not wallaroo("state", "verify", stage.root)[0]


@pytest.mark.parametrize(
    ("to", "follows", "message"),
    [
        (3, "refuses", r"two (noting two): it was sent by mail"),
        (1, "follows", "source 'Lines': input from event 14 on would be read again"),
        (9, "follows", "commit 9 is not in"),
    ],
)
def test_what_cannot_follow_is_named_and_nothing_is_touched(
    to: int, follows: str, message: str, stage: Stage, wallaroo: Run
) -> None:
    if to == 1:  # the run retained less
        write_tail(stage.spool, Boundary(420, 42))
        writer = SpoolWriter(stage.spool, is_durable=False)
        writer.remove_consumed()
        writer.close()

    code, _, errors = wallaroo(*stage.arguments(to, follows))

    assert code == 1
    assert message.split(" (")[-1] in errors
    assert stage.commits()[-1] == 5
    assert not (stage.root / "rollback.json").exists()
    assert not [note for name in ("one", "two") for note in stage.notes(name) if note[0] != "check"]
    open_checkpoint(stage.root, is_durable=False).release()


def test_a_commit_whose_state_is_damaged_is_no_target(stage: Stage, wallaroo: Run) -> None:
    files = (stage.root / "deltas").glob("2.*")
    file = next(path for path in files if b"sk2" in path.read_bytes())
    file.write_bytes(file.read_bytes().replace(b"sk2", b"sK2"))

    code, _, errors = wallaroo(*stage.arguments(3))

    assert code == 1
    assert "the state of commit 3 cannot be read in full, and nothing was touched" in errors
    assert stage.commits()[-1] == 5


def test_damaged_newer_commits_are_no_obstacle(stage: Stage, wallaroo: Run) -> None:
    """They are what one wants to get rid of."""
    next((stage.root / "commits").glob(f"{5:020d}.*")).write_bytes(b"nonsense")

    assert wallaroo(*stage.arguments(4))[0] == 0
    assert stage.commits()[-1] == 4
    open_checkpoint(stage.root, is_durable=False).release()


def test_a_running_application_is_not_rolled_back(stage: Stage, wallaroo: Run) -> None:
    held = open_checkpoint(stage.root, is_durable=False)
    code, _, errors = wallaroo(*stage.arguments(3))
    held.release()

    assert code == 1
    assert "is in use by process" in errors


def test_going_back_to_the_newest_commit_changes_nothing(stage: Stage, wallaroo: Run) -> None:
    assert "is at commit 5 already" in wallaroo(*stage.arguments(5))[1]
    assert stage.notes("one") == []


def test_sinks_follow_to_what_is_left_of_a_log_that_lost_its_end(
    stage: Stage, wallaroo: Run
) -> None:
    max((stage.root / "commits").iterdir()).unlink()
    with pytest.raises(CheckpointError, match="had commits up to 5, and has 4"):
        open_checkpoint(stage.root, is_durable=False)

    assert wallaroo(*stage.arguments(4))[0] == 0

    assert stage.notes("two")[-1][:2] == ["rollback", 4]
    open_checkpoint(stage.root, is_durable=False).release()


@pytest.mark.parametrize(
    "fault",
    [
        "rollback.begin:1",
        "rollback.sinks:1",
        "rollback.commit:1",
        "rollback.commit:2",
        "rollback.end:1",
    ],
)
def test_a_rollback_that_is_killed_keeps_runs_away_until_it_is_finished(
    fault: str, stage: Stage, wallaroo: Run, killed: Callable[..., None]
) -> None:
    killed(fault, *stage.arguments(3))

    with pytest.raises(CheckpointError, match=r"was interrupted\. Finish it"):
        open_checkpoint(stage.root, is_durable=False)
    assert (
        "to commit 3 was interrupted. Finish it first: --to 3" in wallaroo(*stage.arguments(2))[2]
    )
    assert wallaroo(*stage.arguments(3))[0] == 0

    assert stage.commits()[-1] == 3
    assert state_of(stage.root) == stage.book.expected[3]
    assert stage.notes("two")[-1][:2] == ["rollback", 3]
    open_checkpoint(stage.root, is_durable=False).release()


@pytest.mark.parametrize("fault", ["storage.rename:1", "storage.write:1"])
def test_a_rollback_that_is_killed_before_its_mark_has_not_begun(
    fault: str, stage: Stage, wallaroo: Run, killed: Callable[..., None]
) -> None:
    killed(fault, *stage.arguments(3))

    open_checkpoint(stage.root, is_durable=False).release()
    assert stage.commits()[-1] == 5


FILES = """
import wallaroo
from wallaroo.connectors.file.sink import FileSinkConfig


@wallaroo.decoder()
def decode(data):
    return data


@wallaroo.encoder
def encode(event):
    return event


def application_setup(args):
    source = wallaroo.TCPSourceConfig("Lines", "127.0.0.1", 0, decode)
    pipeline = wallaroo.source("Lines", source)
    pipeline = pipeline.to_sink(FileSinkConfig(args[0], encode, form="lines"))
    return wallaroo.build_application("filed", pipeline)
"""
SINK = "file"


class Filed:
    """A checkpoint whose batches each write two lines into a file, as a run's do."""

    def __init__(self, begin: Callable[..., Any], out: Path):
        self.begin = begin
        self.out = out

    def run(self, batches: int, line: str) -> Any:
        """One run: recover, some batches, end."""
        book = self.begin()
        config = FileSinkConfig(self.out, encoder(bytes), form="lines")  # type: ignore[arg-type]
        staging = book.root / "outbox" / SINK
        make_private(staging)
        committer = config.committer(SINK, staging, False)
        last = book.last
        committer.recover(book._checkpoint.history, last.sinks.get(SINK, []) if last else [])
        for _ in range(batches):
            batch = book.last.batch + 1 if book.last else 0
            writer = config.writer(WriteContext(SINK, batch, 0, f"{line}{batch}", staging, False))
            writer.write([f"{line} {batch}.{n}".encode() for n in range(2)])
            book.write({("count", "a"): f"{line} {batch}"}, {SINK: [writer.prepare()]})
            committer.commit(book.last.identity, book.last.sinks[SINK])
        committer.close(0.0)
        book.close()
        return book

    def lines(self) -> list[str]:
        return self.out.read_text().splitlines()


def lines(line: str, batches: range) -> list[str]:
    return [f"{line} {batch}.{n}" for batch in batches for n in range(2)]


def test_a_file_is_cut_back_with_the_state_and_continued_with_other_lines(
    tmp_path: Path,
    begin: Callable[..., Any],
    wallaroo: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Numbers of batches are used again, by a run that computes something else."""
    (tmp_path / "filed_application.py").write_text(FILES)
    monkeypatch.setattr(sys, "path", list(sys.path))
    filed = Filed(begin, tmp_path / "out.txt")
    book = filed.run(6, "old")
    fill_spool(book.root)
    arguments = ("state", "rollback", "--to", 3, book.root, tmp_path / "filed_application.py")
    assert filed.lines() == lines("old", range(6))

    code, _, errors = wallaroo(*arguments, tmp_path / "out.txt")
    assert code == 0, errors
    assert filed.lines() == lines("old", range(4))

    filed.run(3, "new")
    assert filed.lines() == lines("old", range(4)) + lines("new", range(4, 7))
    assert state_of(book.root) == {("count", "a"): "new 6"}
    assert not wallaroo("state", "verify", book.root)[0]


def test_output_goes_on_in_one_piece_after_state_was_removed(
    tmp_path: Path, begin: Callable[..., Any], wallaroo: Run
) -> None:
    filed = Filed(begin, tmp_path / "out.txt")
    book = filed.run(3, "one")

    assert wallaroo("state", "drop", book.root, "count", "a")[0] == 0
    filed.run(2, "two")

    assert filed.lines() == lines("one", range(3)) + lines("two", range(4, 6))


def test_the_last_batch_before_a_removal_is_finished_by_the_next_run(
    tmp_path: Path, begin: Callable[..., Any], wallaroo: Run
) -> None:
    """A crash kept the sink from it, and the newest commit is not that batch any more."""
    filed = Filed(begin, tmp_path / "out.txt")
    book = filed.run(3, "one")
    begun = begin()
    config = FileSinkConfig(filed.out, encoder(bytes), form="lines")  # type: ignore[arg-type]
    staging = book.root / "outbox" / SINK
    writer = config.writer(WriteContext(SINK, 3, 0, "x", staging, False))
    writer.write([b"one 3.0", b"one 3.1"])
    begun.write({("count", "a"): 1}, {SINK: [writer.prepare()]})
    begun.close()

    assert wallaroo("state", "drop", book.root, "count", "a")[0] == 0
    filed.run(1, "two")

    assert filed.lines() == lines("one", range(4)) + lines("two", range(5, 6))
