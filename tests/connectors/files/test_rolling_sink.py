"""Rolling output: files by size and time, each output in one of them, whatever dies in between."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.connectors.file.files import staged
from tests.connectors.files.child import BATCHES
from tests.forks import Forks
from tests.unit.sinks.identities import CHECKPOINT, commit_of, history_to
from wallaroo.connectors.files.committer import ROLL
from wallaroo.errors import CheckpointError, PeerError, WallarooError, WallarooParameterError
from wallaroo.sinks import RollingSinkConfig
from wallaroo.sinks.queued.queued_committer import _ReplacedError
from wallaroo.steps.kinds import Encoder

ROOT = Path(__file__).parents[3]
DRAIN_S = 400.0
Eventually = Callable[..., None]


@dataclass(frozen=True)
class Total:
    word: str
    total: int


def opened(config: RollingSinkConfig, folder: Path, last: int = -1, line: str = "a") -> Any:
    committer = config.committer("s", folder / "staging", True)
    committer.recover(history_to(last, line), [])
    return committer


def put(committer: Any, config: Any, folder: Path, batch: int, *outputs: bytes) -> None:
    tokens = staged(config, folder / "staging", batch, list(outputs))
    committer.commit(commit_of(batch), tokens)


def parts(folder: Path) -> list[Path]:
    return sorted((folder / "out").glob("part-*"))


def text(folder: Path) -> str:
    return "".join(part.read_text() for part in parts(folder))


def test_a_file_is_written_when_it_is_large_enough_and_the_rest_at_the_end(
    tmp_path: Path, eventually: Eventually
) -> None:
    config = RollingSinkConfig(str(tmp_path / "out"), roll_bytes=8)
    committer = opened(config, tmp_path)
    put(committer, config, tmp_path, 0, b"a", b"b")
    assert committer.backlog() == 0
    put(committer, config, tmp_path, 1, b"123456")
    eventually(lambda: len(parts(tmp_path)) == 1, "the first file")
    put(committer, config, tmp_path, 2, b"c")
    assert text(tmp_path) == "a\nb\n123456\n"
    committer.close(DRAIN_S)
    assert text(tmp_path) == "a\nb\n123456\nc\n"
    assert [part.name.split("-")[1:3] for part in parts(tmp_path)] == [
        ["000000000000", "000000000001"],
        ["000000000002", "000000000002"],
    ]
    assert committer.status().outputs == 4
    assert list((tmp_path / "staging").glob("*.out")) == []


def test_a_thread_that_was_replaced_notes_no_file(tmp_path: Path) -> None:
    config = RollingSinkConfig(str(tmp_path / "out"))
    committer = opened(config, tmp_path)
    put(committer, config, tmp_path, 0, b"a")
    (waiting,) = committer._waiting.in_order()
    with pytest.raises(_ReplacedError):  # this thread is not the committer's
        committer._left(waiting, True)
    assert not (tmp_path / "staging" / ROLL).exists()
    committer.close(DRAIN_S)
    assert text(tmp_path) == "a\n"


def test_a_file_is_written_when_its_output_is_old_enough(
    tmp_path: Path, eventually: Eventually
) -> None:
    config = RollingSinkConfig(str(tmp_path / "out"), roll_s=0.05, compress=True)
    committer = opened(config, tmp_path)
    put(committer, config, tmp_path, 0, b"a")
    eventually(lambda: len(parts(tmp_path)) == 1, "the file")
    committer.close(DRAIN_S)
    assert gzip.decompress(parts(tmp_path)[0].read_bytes()) == b"a\n"
    assert parts(tmp_path)[0].name.endswith(".jsonl.gz")


def test_rows_become_parquet(tmp_path: Path) -> None:
    columns = {"word": "string", "total": "int64", "at": pa.timestamp("us", tz="UTC")}
    config = RollingSinkConfig(str(tmp_path / "out"), columns=columns)
    committer = opened(config, tmp_path)
    now = datetime(2026, 1, 2, tzinfo=UTC)
    assert config.encoder is not None
    encode = config.encoder.function
    rows = [encode({"word": "a", "total": 1, "at": now, "more": 0}), encode(("b", None, now))]
    put(committer, config, tmp_path, 0, *rows)
    put(committer, config, tmp_path, 1, encode(("c", 3, None)))
    committer.close(DRAIN_S)
    assert pq.read_table(parts(tmp_path)[0]).to_pylist() == [
        {"word": "a", "total": 1, "at": now},
        {"word": "b", "total": None, "at": now},
        {"word": "c", "total": 3, "at": None},
    ]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (Total("a", 2**70), "column 'total'"),
        (Total(7, 1), "column 'word': 7"),  # type: ignore[arg-type]
        ({"word": "a"}, "the row has no 'total'"),
        (("a",), "a tuple of 2 values"),
        ("a", "a row must be"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_in_the_step(row: Any, words: str) -> None:
    config = RollingSinkConfig("out", columns={"word": "string", "total": "int64"})
    assert config.encoder is not None
    config.encoder.function(Total("a", 1))
    with pytest.raises(ValueError, match=words):
        config.encoder.function(row)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"roll_bytes": 0}, "cannot be kept"),
        ({"columns": {}}, "names none"),
        ({"columns": {"a": "number"}}, "column 'a' has the type 'number'"),
        ({"columns": {"a": "int64"}, "compress": True}, "compresses by itself"),
        ({"options": {"region": "a"}}, "options are for s3:// only"),
    ],
)
def test_a_wrong_configuration_is_refused(options: Any, words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        RollingSinkConfig("out", Encoder(str), **options)


POINTS = [
    "rolling.decided.published:1",
    "rolling.write:2",
    "rolling.published:1",
    "rolling.put:1",
    "rolling.left:1",
    "rolling.decided.published:2",
    "outbox.pending.remove:2",
]


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_dies_anywhere_writes_each_output_once(
    child_of: Callable[..., Forks], tmp_path: Path, point: str
) -> None:
    child = child_of("tests.connectors.files.child")
    code, _ = child.run(tmp_path, WALLAROO_FAULT=point)
    assert code == -signal.SIGKILL, "the point was not passed"
    assert child.run(tmp_path)[0] == 0
    expected = [f"{batch} {n}" for batch in range(BATCHES) for n in range(4)]
    assert text(tmp_path).splitlines() == expected
    assert list((tmp_path / "staging" / "pending").iterdir()) == []


def test_a_file_that_the_outbox_does_not_know_is_not_written_under_another_name(
    tmp_path: Path,
) -> None:
    """Another machine wrote it, and was lost before its notes were stored."""
    config = RollingSinkConfig(str(tmp_path / "out"), roll_s=3600)
    elsewhere = opened(config, tmp_path)
    for batch, output in enumerate((b"a", b"b")):
        put(elsewhere, config, tmp_path, batch, output)
    shutil.copytree(tmp_path / "staging", tmp_path / "copy")
    elsewhere.close(DRAIN_S)
    shutil.rmtree(tmp_path / "staging")
    (tmp_path / "copy").rename(tmp_path / "staging")
    committer = opened(config, tmp_path, 1)
    put(committer, config, tmp_path, 2, b"c")
    committer.close(DRAIN_S)
    assert text(tmp_path) == "a\nb\nc\n"


def test_a_stop_does_not_wait_for_output_that_an_earlier_run_wrote(
    tmp_path: Path, eventually: Eventually
) -> None:
    config = RollingSinkConfig(str(tmp_path / "out"), roll_s=3600)
    earlier = opened(config, tmp_path)  # it is not closed, as if its process died
    put(earlier, config, tmp_path, 0, b"a")
    eventually(lambda: earlier._is_resumed, "it waits for more output")
    decided = tmp_path / "staging" / ROLL
    os.mkfifo(decided)  # the committer reads it when it is written
    committer = opened(config, tmp_path, 0)
    stopped = Event()

    def stop() -> None:
        committer.close(3600.0)
        stopped.set()

    Thread(target=stop, daemon=True).start()
    eventually(lambda: committer._is_flushing, "the stop has begun")
    time.sleep(0.2)  # until it waits: if not yet, it has nothing to wait for
    decided.write_text('{"last": 0, "is_written": true}')
    assert stopped.wait(400)
    assert parts(tmp_path) == []


def _broken(committer: Any, eventually: Eventually) -> WallarooError:
    raised: list[WallarooError] = []

    def is_broken() -> bool:
        try:
            committer.backlog()
        except WallarooError as error:
            raised.append(error)
        return bool(raised)

    eventually(is_broken, "the error")
    return raised[0]


def test_output_of_another_checkpoint_and_of_lost_commits_is_refused(
    tmp_path: Path, eventually: Eventually
) -> None:
    config = RollingSinkConfig(str(tmp_path / "out"), roll_s=0)
    committer = opened(config, tmp_path)
    put(committer, config, tmp_path, 0, b"a")
    put(committer, config, tmp_path, 1, b"b")
    committer.close(DRAIN_S)
    before = text(tmp_path)

    rolled_back = opened(config, tmp_path, 0)
    assert isinstance(_broken(rolled_back, eventually), CheckpointError)

    other = config.committer("s", tmp_path / "other", True)
    other.recover(history_to(-1, checkpoint=CHECKPOINT[::-1]), [])
    error = _broken(other, eventually)
    assert isinstance(error, PeerError)
    assert "holds output of another checkpoint or sink" in str(error)
    assert text(tmp_path) == before


def test_a_folder_that_cannot_be_written_ends_the_run_and_loses_nothing(
    tmp_path: Path, eventually: Eventually
) -> None:
    (tmp_path / "file").write_text("")
    config = RollingSinkConfig(str(tmp_path / "file" / "out"), roll_s=0)
    committer = opened(config, tmp_path)
    assert "Nothing is lost: committed output waits in" in str(_broken(committer, eventually))
    tokens = staged(config, tmp_path / "staging", 0, [b"a"])
    with pytest.raises(PeerError, match="Nothing is lost"):
        committer.commit(commit_of(0), tokens)  # its commit names the tokens: recovery has them


def test_a_folder_that_cannot_be_made_is_refused_before_any_output(tmp_path: Path) -> None:
    config = RollingSinkConfig("/proc/out")
    committer = opened(config, tmp_path)
    with pytest.raises(PeerError, match=r"Sink 's' cannot write to /proc/out: .*Correct the path"):
        committer.check(DRAIN_S)
