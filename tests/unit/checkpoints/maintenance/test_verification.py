"""What a verification finds, and that it says what follows from it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.sinks.identities import INLINE_BYTES_MAX
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.checkpoints.maintenance import verification
from wallaroo.checkpoints.maintenance.check_log import Damage, Survey
from wallaroo.durable.commit_id import CommitId
from wallaroo.sinks.interface import WriteContext
from wallaroo.sinks.queued.pending import PendingBatch, PendingList
from wallaroo.sinks.staging import StagedWriter
from wallaroo.spool import folder_of
from wallaroo.spool.writer import SpoolWriter
from wallaroo.state.log.layout import with_checksum
from wallaroo.state.views.environments import close_environments

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def book(begin: Callable[..., Any]) -> Any:
    """Four batches of a running application, with input that waits."""
    book = begin(retain=4)
    for batch in range(4):
        book.write({("count", f"k{n}"): batch for n in range(10)})
    writer = SpoolWriter(folder_of(book.root / "spool", "Lines"), is_durable=False)
    for number in range(3):
        writer.append(b"line %d\n" % number, 1, receipt_ns=1)
    writer.publish()
    writer.close()
    return book


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def of_batch(folder: Path, batch: int) -> Path:
    return next(file for file in sorted(folder.iterdir()) if file.name.startswith(f"{batch}."))


def test_a_whole_checkpoint_is_read_in_full(book: Any, wallaroo: Run) -> None:
    code, out, _ = wallaroo("state", "verify", book.root)

    assert code == 0
    assert re.search(
        r"read: 4 commits, 8 deltas, \d+ snapshots, 10 view entries, 3 chunks, [\d,]+ bytes", out
    )
    assert "commits whose state is whole: 0 to 3" in out
    assert out.endswith("nothing is damaged\n")


def test_a_damaged_delta_is_reported_with_the_state_it_is_needed_for(
    book: Any, wallaroo: Run
) -> None:
    file = of_batch(book.root / "deltas", 2)
    flip(file, file.read_bytes().index(b"sk") + 1)

    code, out, _ = wallaroo("state", "verify", book.root)

    assert code == 1
    assert f"DAMAGED deltas/{file.name}" in out
    assert re.search(r"The checksum of key groups [\d, to]+ is wrong", out)
    assert re.search(
        r"Key groups [\d, to]+ at commits 2 to 3 cannot be rebuilt if a view is lost or damaged",
        out,
    )
    assert "go back to commit 1" in out
    assert "commits whose state is whole: 0 to 1" in out


def test_a_damaged_plan_is_reported_and_one_that_was_removed_is_not(
    book: Any, wallaroo: Run
) -> None:
    plan = book.root / "plan.json"
    plan.write_bytes(with_checksum('{"format": 1}').replace(b'"format": 1', b'"format": 2'))

    code, out, _ = wallaroo("state", "verify", book.root)

    assert code == 1
    assert "DAMAGED plan.json\n  the checksum of plan.json is wrong" in out
    assert "or remove it: the next run then compares nothing" in out
    plan.unlink()
    assert wallaroo("state", "verify", book.root)[0] == 0


def test_the_newest_commit_is_missed(book: Any, wallaroo: Run) -> None:
    book.close()
    newest = max((book.root / "commits").iterdir())
    newest.unlink()

    code, out, _ = wallaroo("state", "verify", book.root)

    assert code == 1
    assert f"DAMAGED commits/{newest.name}" in out
    assert "is missing: the checkpoint had commits up to 3, and has 2." in out
    assert "go back to commit 2" in out


def test_what_only_an_older_commit_needs_is_said_so(begin: Callable[..., Any]) -> None:
    book = begin(retain=80)
    for batch in range(68):
        book.write({("count", f"k{n}"): batch for n in range(2)})
    book.close()
    before = verification.verify(book.root)
    first = before.whole[0]
    snapshots = {ref.file for commit in before.whole for ref in _commit(book, commit).snapshots}
    newest = {ref.file for ref in _commit(book, 67).snapshots}
    file = book.root / sorted(snapshots - newest)[0]
    flip(file, len(file.read_bytes()) - 30)

    report = verification.verify(book.root)

    assert before.damages == ()
    (damage,) = report.damages
    assert "the newest state is whole" in damage.consequence
    assert first in before.whole
    assert 67 in report.whole


def _commit(book: Any, batch: int) -> Any:
    return CheckpointReader(book.root).at(batch).commit


@pytest.mark.parametrize("damage", ["flipped", "missing", "another's bytes"])
def test_a_damaged_commit_keeps_runs_from_starting(damage: str, book: Any, wallaroo: Run) -> None:
    files = sorted((book.root / "commits").iterdir())
    if damage == "flipped":
        flip(files[2], 60)
    elif damage == "missing":
        files[2].unlink()
    else:
        files[2].write_bytes(files[1].read_bytes())

    code, out, _ = wallaroo("state", "verify", book.root)

    assert code == 1
    assert f"DAMAGED commits/{files[2].name}" in out
    assert "No run can start" in out
    assert "go back to commit 1 (`wallaroo state rollback`)" in out


def test_a_delta_under_the_name_of_another_is_reported(book: Any, wallaroo: Run) -> None:
    file = of_batch(book.root / "deltas", 3)
    file.write_bytes(of_batch(book.root / "deltas", 2).read_bytes())

    code, out, _ = wallaroo("state", "verify", book.root)

    assert code == 1
    assert "is not the file that its commit names" in out


@pytest.mark.parametrize("how", ["value", "truncated"])
def test_a_damaged_view_is_reported_as_harmless(how: str, book: Any, wallaroo: Run) -> None:
    view = book._checkpoint.view_root
    close_environments()
    for file in view.glob("*/data.mdb"):
        content = file.read_bytes()
        if b"sk" in content:
            changed = content[:8192] if how == "truncated" else content.replace(b"sk", b"sK")
            file.write_bytes(changed)

    code, out, _ = wallaroo("state", "verify", book.root)

    assert code == 1
    assert re.search(r"DAMAGED view/.*/\d\d/data\.mdb", out)
    assert "Nothing is lost: a run builds this part of the view again" in out


def test_a_damaged_chunk_of_the_spool_is_reported_with_what_waits_in_it(
    book: Any, wallaroo: Run
) -> None:
    (file,) = folder_of(book.root / "spool", "Lines").glob("*.chunks")
    flip(file, file.read_bytes().index(b"line 1"))

    code, out, _ = wallaroo("state", "verify", book.root)

    assert code == 1
    assert f"DAMAGED spool/Lines.spool/{file.name}" in out
    assert "is corrupt at byte" in out


@pytest.mark.parametrize("which", ["list", "output"])
def test_damaged_output_that_has_not_left_is_reported(which: str, book: Any, wallaroo: Run) -> None:
    staging = book.root / "outbox" / "out"
    staging.mkdir()
    writer = StagedWriter(WriteContext("out", 3, 0, "a", staging, False, INLINE_BYTES_MAX))
    writer.write([b"x" * 20_000])
    token: Any = writer.prepare()
    _add_pending(staging, token)
    assert wallaroo("state", "verify", book.root)[0] == 0
    file = next(staging.glob("pending/*.json" if which == "list" else "*.out"))
    flip(file, len(file.read_bytes()) // 2)

    code, out, _ = wallaroo("state", "verify", book.root, "--json")

    assert code == 1
    (damage,) = json.loads(out)["damages"]
    assert damage["file"] == str(file.relative_to(book.root))
    assert damage["consequence"].startswith("Sink 'out' cannot send this output")


def _add_pending(staging: Path, token: Any) -> None:
    batch = PendingBatch(CommitId("c", 3, "x"), 0, token["bytes"], 1, (token,))
    PendingList(staging, is_durable=False).add(batch)


def test_others_can_add_checkers(book: Any) -> None:
    def check(survey: Survey) -> Any:
        yield Damage("mine", f"looked at commit {max(survey.commits)}", "none")

    found = verification.verify(book.root, (*verification.CHECKERS, check))

    assert found.damages == (Damage("mine", "looked at commit 3", "none"),)


def test_nothing_is_written_or_locked(book: Any) -> None:
    before = sorted((path, path.stat().st_size) for path in book.root.rglob("*"))
    verification.verify(book.root)
    assert sorted((path, path.stat().st_size) for path in book.root.rglob("*")) == before
