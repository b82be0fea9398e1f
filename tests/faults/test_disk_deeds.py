"""What the verifier does to disks, clocks and files: failing calls in a process of its own, orders,
flipped bits.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import wallaroo
from tests.stored.runner import DATA, unpack
from wallaroo.durable.disk_errors import disk_error_of, naming
from wallaroo.durable.slots import SlotFile
from wallaroo.errors import InternalError, PeerError
from wallaroo.sinks.staging import disk_errors
from wallaroo.spark.session.spark_errors import failure_of
from wallaroo.spool import Boundary, write_tail
from wallaroo.spool.format import disk_error
from wallaroo.testing.verify.disturbances.damage import KINDS, BitFlips, flip
from wallaroo.testing.verify.disturbances.orders import SYNCS, WRITES, Orders
from wallaroo.testing.verify.harness import stored_entries
from wallaroo.testing.verify.trial.processes import Kind
from wallaroo.testing.verify.trial.result import Result
from wallaroo.testing.verify.trial.schedule import Fault

SOURCES = str(Path(wallaroo.__file__).parents[1])
ROOT = Path(SOURCES).parent
PROGRAM = """
import os, sys, time
from wallaroo.instrumentation.faults import fault_point

descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
out = []
for content in (b"before", b"strike", b"after"):
    fault_point(content.decode())
    try:
        out.append(str(os.write(descriptor, content)))
        os.fsync(descriptor)
    except OSError as error:
        out.append(error.strerror)
print(", ".join(out), int(time.time() / 1e9))
"""


def _run(file: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file)],
        env={**os.environ, "PYTHONPATH": SOURCES, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_fault_point_breaks_the_next_call(tmp_path: Path) -> None:
    """Once, or for a time; a torn write leaves half of it and a dead process."""
    full = _run(tmp_path / "full", WALLAROO_FAULT="strike:1:enospc")
    assert full.stdout.startswith("6, No space left on device, 5")
    lasting = _run(tmp_path / "lasting", WALLAROO_FAULT="strike:1:eio 60")
    assert lasting.stdout.startswith("6, Input/output error, Input/output error")
    torn = _run(tmp_path / "torn", WALLAROO_FAULT="strike:1:torn")
    assert torn.returncode == -signal.SIGKILL
    assert (tmp_path / "torn").read_bytes() == b"beforestr"


def test_an_order_is_taken_once_and_the_clock_goes_as_it_is_set(tmp_path: Path) -> None:
    """What was not taken is withdrawn and not counted."""
    orders = Orders(tmp_path / "orders")
    orders.place(["strike"], "eio")
    orders.step_clock(3e9)
    done = _run(tmp_path / "file", **orders.environment)
    assert done.stdout == f"6, Input/output error, 5 {int(time.time() / 1e9) + 3}\n"
    assert orders.is_taken
    assert orders.withdraw(["strike"]) == "strike"
    orders.place(["strike"], "eio")
    assert not orders.is_taken
    assert orders.withdraw(["strike"]) is None


def test_an_order_for_many_points_is_taken_at_one_of_them(tmp_path: Path) -> None:
    """However quickly a process passes the others: one fault is one fault."""
    orders = Orders(tmp_path / "orders")
    points = ["strike", "after"]
    orders.place(points, "enospc")
    assert _run(tmp_path / "file", **orders.environment).stdout.startswith(
        "6, No space left on device, 5"
    )
    assert orders.withdraw(points) == "strike"
    assert _run(tmp_path / "file", **orders.environment).stdout.startswith("6, 6, 5")


def test_orders_go_to_points_that_there_are() -> None:
    """A point of another name would never be passed."""
    source = "".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    for point in (*WRITES, *SYNCS):
        name = point.rpartition(".")[2]
        prefix = point.rpartition(".")[0]
        is_literal = f'fault_point("{point}")' in source
        is_prefixed = f'points="{prefix}"' in source and f".{name}" in source
        assert is_literal or is_prefixed, point


def test_a_bit_is_flipped_in_every_kind_of_file_in_turn_and_flipped_back(tmp_path: Path) -> None:
    """Unless the byte is gone with its file."""
    names = {"commits/1": "commit", "deltas/1.delta": "delta", "spool/A.spool/head": "spool head"}
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"content")
    chance, seen = random.Random(1), set[str]()
    while len(seen) < len(names):
        flipped = flip(tmp_path, chance, seen)
        assert flipped is not None
        assert flipped.kind not in seen
        seen.add(flipped.kind)
        assert names[str(flipped.file.relative_to(tmp_path))] == flipped.kind
        assert flipped.file.read_bytes() != b"content"
        flipped.undo()
        assert flipped.file.read_bytes() == b"content"
        flipped.file.unlink()
        flipped.undo()
        flipped.file.write_bytes(b"content")
    assert seen <= set(KINDS)
    assert flip(tmp_path / "nothing", chance, seen) is None


def test_a_file_that_was_rewritten_meanwhile_is_not_flipped_back(tmp_path: Path) -> None:
    """It is whole again: another flip would damage it."""
    (tmp_path / "commits").mkdir()
    file = tmp_path / "commits" / "1"
    file.write_bytes(b"content of a commit")
    flipped = flip(tmp_path, random.Random(1), set())
    assert flipped is not None
    file.write_bytes(b"content of a commit")
    flipped.undo()
    assert file.read_bytes() == b"content of a commit"


def test_a_file_that_has_grown_is_flipped_back(tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    file = tmp_path / "commits" / "1"
    file.write_bytes(b"1")
    flipped = flip(tmp_path, random.Random(1), set())
    assert flipped is not None
    with file.open("ab") as appended:
        appended.write(b"23")
    flipped.undo()
    assert file.read_bytes() == b"123"


def test_a_bit_is_flipped_back_only_in_the_file_that_was_named(tmp_path: Path) -> None:
    deltas = tmp_path / "checkpoint" / "deltas"
    deltas.mkdir(parents=True)
    (deltas / "1").write_bytes(b"content")
    result = Result("sequence", 1, dict.fromkeys(Kind, 0))
    flips = BitFlips(tmp_path, result, lambda text: None)
    assert flips.add(random.Random(1)) is not None
    assert not flips.undo_named(f"{deltas / '12'} is damaged")
    assert not flips.undo_named("The delta old/deltas/1 is damaged")
    assert flips.undo_named("The file deltas/1 is damaged: restore it.")
    assert (deltas / "1").read_bytes() == b"content"


def test_bits_that_the_run_never_read_are_found_by_the_judge(tmp_path: Path) -> None:
    """It takes no state from a damaged file; bits that no reader finds are counted."""
    unpack(DATA / "accounts-micro-batch.tar.xz", tmp_path)
    checkpoint = tmp_path / "checkpoint"
    result = Result("sequence", 1, dict.fromkeys(Kind, 0))
    flips = BitFlips(tmp_path, result, lambda text: None)
    whole = stored_entries(checkpoint, flips)
    chance = random.Random(1)
    for _ in range(40):
        assert flips.add(chance) is not None

    assert stored_entries(checkpoint, flips) == whole
    assert result.refused["snapshot"] + result.refused["delta"] > 0
    assert sum(result.refused.values()) + flips.left == 40


def test_faults_are_counted_where_they_struck() -> None:
    """A reader of the verdict sees what was tried."""
    result = Result("sequence", 1, dict.fromkeys(Kind, 0))
    result.note_fault(Fault.ENOSPC, "spool.append")
    result.note_fault(Fault.FLIP, "delta")
    result.refused["delta"] += 1
    text = result.text()
    assert "2 faults" in text
    assert "enospc 1, flip 1" in text
    assert "enospc: spool.append 1" in text
    assert "flip: delta 1 (1 refused)" in text


def test_a_disk_that_fails_anywhere_is_named_and_not_taken_for_a_mistake_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note of how far a source is consumed is written after the commit, outside of any file
    that has words of its own.
    """

    def fail(*arguments: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OSError, match="tail") as caught:
        write_tail(tmp_path, Boundary(1, 1))
    failure = failure_of(None, caught.value)
    assert isinstance(failure, PeerError)
    assert str(tmp_path / "tail") in str(failure)
    assert isinstance(failure_of(None, ValueError("ours")), InternalError)


@pytest.mark.parametrize(("free", "is_named"), [(0, True), (1, False)])
def test_a_disk_that_has_room_but_no_inodes_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, is_named: bool
) -> None:
    path = tmp_path / "file"
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    disk = SimpleNamespace(f_files=1000, f_favail=free)
    monkeypatch.setattr(os, "statvfs", lambda folder: disk if folder == tmp_path else None)
    with pytest.raises(PeerError) as staged, disk_errors(path):
        raise full
    for error in (disk_error_of(full), disk_error(tmp_path, full), staged.value):
        assert ("all inodes are in use (`df -i`)" in str(error)) == is_named


def test_calls_on_descriptors_say_which_file(tmp_path: Path) -> None:
    """The kernel does not."""
    with pytest.raises(OSError, match="some file"), naming(tmp_path / "some file"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert disk_error_of(ConnectionResetError(errno.ECONNRESET, "reset")) is None
    file = SlotFile(tmp_path / "slots")
    os.close(file._fd)
    with pytest.raises(OSError, match="slots"):
        file.write(b"x")
