"""The process dies at every write, fsync, rename and publish of a batch, one after another; the restart finds its way."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from wallaroo.cli.receiving import Receiver
from wallaroo.state.commits import CommitLog
from wallaroo.state.inspect import CheckpointReader
from wallaroo.state.storage import LocalStorage

PROGRAM = Path(__file__).with_name("miniature.py")
SOURCES = str(Path(__file__).parents[2] / "src")
RUN_S_MAX = 60.0
AT_ONCE = max(2, os.cpu_count() or 2)
# How often these are passed depends on how fast the egress is: it may already have sent what the driver is about to write down.
TIMED = ("egress.", "outbox.pending")
# The points that a batch must pass, so that a renamed or removed one is noticed.
NEEDED = [
    "commit.before",
    "commit.after",
    "commit.sinks",
    "storage.write",
    "storage.fsync",
    "storage.rename",
    "storage.sync_folder",
    "storage.published",
    "outbox.write",
    "outbox.fsync",
    "file.write",
    "file.fsync",
    "file.rename",
    "file.renamed",
    "spool.append",
    "spool.fsync",
    "egress.send",
    "egress.sent",
]


@dataclass(frozen=True)
class Found:
    """What a finished run left: everything that somebody outside can see."""

    received: bytes
    files: bytes
    state: dict[object, list[int]]
    batches: list[int]
    offsets: dict[str, list[int]]


def run(folder: Path, receiver: Receiver, **environment: str) -> int:
    """Run the miniature driver; return its exit code."""
    command = [sys.executable, str(PROGRAM), str(folder), str(receiver.address[1])]
    child = {**os.environ, "PYTHONPATH": SOURCES, **environment}
    return subprocess.run(command, env=child, timeout=RUN_S_MAX, check=False, capture_output=True).returncode


def look(folder: Path, receiver: Receiver, bytes_max: int) -> Found:
    """Gather what a finished run left."""
    receiver.wait_for(bytes_max, 10.0)
    checkpoint = folder / "checkpoint"
    files = b"".join(path.read_bytes() for path in sorted((folder / "files").glob("part-*")))
    state = {entry.key: pickle.loads(entry.raw).last for entry in CheckpointReader(checkpoint).at().entries()}
    log = CommitLog(LocalStorage(str(checkpoint), False))
    return Found(b"".join(receiver.payloads), files, state, log.batches(), log.read(log.batches()[-1]).offsets)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Found, Counter[str]]:
    """What a run without faults leaves, and how often it passes each fault point."""
    folder = tmp_path_factory.mktemp("undisturbed")
    points = folder / "points"
    with Receiver(is_resuming=True) as receiver:
        assert run(folder, receiver, WALLAROO_FAULT_LOG=str(points)) == 0
        found = look(folder, receiver, 1)
    return found, Counter(points.read_text().split())


def test_the_undisturbed_run_passes_every_kind_of_point(undisturbed: tuple[Found, Counter[str]]) -> None:
    """Without this, a fault point that nobody passes any more would leave the next tests green."""
    found, points = undisturbed
    assert [name for name in NEEDED if not points[name]] == []
    assert found.received.count(b"\n") == found.files.count(b"\n") == found.offsets["Sequence"][1] > 0


def all_points(points: Counter[str]) -> Iterator[tuple[str, int]]:
    for name in sorted(points):
        yield from ((name, nth) for nth in range(1, points[name] + 1))


def crash_and_restart(folder: Path, first: str, then: tuple[str, ...], expected: Found) -> tuple[bool, str]:
    """Kill a run at ``first``, its restarts at ``then``, and let the last one end; return whether it died, and what is wrong."""
    with Receiver(is_resuming=True) as receiver:
        code = run(folder, receiver, WALLAROO_FAULT=first)
        for fault in then:
            run(folder, receiver, WALLAROO_FAULT=fault)
        last = run(folder, receiver)
        if last != 0:
            return True, f"{first} {then}: the restart ended with {last}"
        found = look(folder, receiver, len(expected.received))
    wrong = [name for name in Found.__annotations__ if getattr(found, name) != getattr(expected, name)]
    if code not in (0, -signal.SIGKILL):
        wrong.append(f"exit code {code} instead of a kill")
    return code == -signal.SIGKILL, f"{first} {then}: {wrong}" if wrong else ""


def check_all(folder: Path, plans: list[tuple[str, tuple[str, ...]]], expected: Found) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda item: crash_and_restart(folder / str(item[0]), *item[1], expected), enumerate(plans)))
    assert [problem for _, problem in results if problem] == []
    survivors = [plan[0] for plan, (died, _) in zip(plans, results, strict=True) if not died and not plan[0].startswith(TIMED)]
    assert survivors == [], "the process was not killed at these points"


def test_a_crash_at_any_point_of_any_batch_changes_nothing(tmp_path: Path, undisturbed: tuple[Found, Counter[str]]) -> None:
    """Output, files, state and commits are the undisturbed run's, wherever the process died."""
    expected, points = undisturbed
    check_all(tmp_path, [(f"{name}:{nth}", ()) for name, nth in all_points(points)], expected)


def test_a_crash_during_the_recovery_changes_nothing(tmp_path: Path, undisturbed: tuple[Found, Counter[str]]) -> None:
    """After a crash behind the first commit one restart dies where it first passes a point, the next where it passes it again."""
    expected, points = undisturbed
    plans = [("commit.after:1", (f"{name}:1", f"{name}:2")) for name in sorted(points)]
    check_all(tmp_path, plans, expected)
