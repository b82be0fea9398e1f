"""The process dies at every write, fsync, rename, publish and deletion of a batch, one after
another; the restart finds its way.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.forks import Forks
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.cli.receive.receiver import Receiver
from wallaroo.state.log.commits import CommitLog
from wallaroo.state.log.storage import LocalStorage

LOW_LATENCY = {"MINIATURE_LATENCY": "low"}
# what batches at low latency do in another way
NEEDED_LOW = ["storage.append", "storage.append_sync", "storage.appended", "storage.delete"]
ARRIVAL_S_MAX = 400.0
# they wait for disks and for each other as long as they compute
AT_ONCE = 2 * (os.cpu_count() or 2)
# How often these are passed depends on how fast the egress is: it may already have sent what the
# driver is about to write down.
TIMED = ("egress.", "outbox.pending")
# The points that a batch must pass, so that a renamed or removed one is noticed.
NEEDED = [
    "owner.claim",
    "owner.line",
    "commit.before",
    "commit.after",
    "commit.sinks",
    "storage.write",
    "storage.fsync",
    "storage.rename",
    "storage.sync_folder",
    "storage.published",
    "storage.delete",
    "housekeeping.sweep",
    "housekeeping.swept",
    "view.apply",
    "view.applied",
    "outbox.write",
    "outbox.fsync",
    "outbox.sync_folder",
    "outbox.remove",
    "file.write",
    "file.fsync",
    "file.rename",
    "file.sync_folder",
    "file.published",
    "file.marker.published",
    "outbox.target.published",
    "outbox.left.published",
    "spool.append",
    "spool.fsync",
    "spool.roll",
    "spool.rolled",
    "spool.sync_folder",
    "spool.tail",
    "egress.send",
    "egress.sent",
    "egress.progress",
    "egress.fsync",
]
# What only a restart passes, by the crash that leaves it something to clean up.
LEFT_BEHIND = {
    "commit.before:1": ["owner.end", "owner.forget"],  # the claim of the run before
    # output of an attempt, and its spool's index
    "outbox.sync_folder:2": ["outbox.orphan", "spool.rebuild_index", "storage.delete"],
    "storage.rename:6": ["storage.delete"],  # deltas of an attempt that was never committed
    "file.rename:1": ["file.orphan"],  # half of a file of output
}


@dataclass(frozen=True)
class Found:
    """What a finished run left: everything that can be seen from outside."""

    received: bytes
    files: bytes
    state: dict[object, list[int]]
    batches: list[int]
    offsets: dict[str, list[int]]


@pytest.fixture(scope="module")
def miniature(child_of: Callable[..., Forks]) -> Forks:
    """The miniature driver."""
    return child_of("tests.faults.miniature", AT_ONCE)


def run(miniature: Forks, folder: Path, receiver: Receiver, **environment: str) -> int:
    """Run the miniature driver; return its exit code."""
    return miniature.run(folder, receiver.address[1], **environment)[0]


def look(folder: Path, receiver: Receiver, bytes_max: int) -> Found:
    """Gather what a finished run left."""
    receiver.wait_for(bytes_max, ARRIVAL_S_MAX)
    checkpoint = folder / "checkpoint"
    files = b"".join(path.read_bytes() for path in sorted((folder / "files").glob("part-*")))
    state = {
        entry.key: pickle.loads(entry.raw).last
        for entry in CheckpointReader(checkpoint).at().entries()
    }
    log = CommitLog(LocalStorage(str(checkpoint), False))
    return Found(
        b"".join(receiver.payloads),
        files,
        state,
        log.batches(),
        log.read(log.batches()[-1]).offsets,
    )


@pytest.fixture(scope="module")
def undisturbed(
    miniature: Forks, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Found, Counter[str]]:
    """What a run without faults leaves, and how often it passes each fault point."""
    folder = tmp_path_factory.mktemp("undisturbed")
    points = folder / "points"
    with Receiver(is_resuming=True) as receiver:
        assert run(miniature, folder, receiver, WALLAROO_FAULT_LOG=str(points)) == 0
        found = look(folder, receiver, 1)
    return found, Counter(points.read_text().split())


def test_the_undisturbed_run_passes_every_kind_of_point(
    undisturbed: tuple[Found, Counter[str]],
) -> None:
    """Without this, a fault point that is never passed any more would leave the next tests
    green.
    """
    found, points = undisturbed
    assert [name for name in NEEDED if not points[name]] == []
    assert (
        found.received.count(b"\n") == found.files.count(b"\n") == found.offsets["Sequence"][1] > 0
    )


def all_points(points: Counter[str]) -> Iterator[tuple[str, int]]:
    for name in sorted(points):
        yield from ((name, nth) for nth in range(1, points[name] + 1))


def crash_and_restart(
    miniature: Forks,
    folder: Path,
    first: str,
    then: tuple[str, ...],
    expected: Found,
    **environment: str,
) -> tuple[bool, str]:
    """Kill a run at ``first``, its restarts at ``then``, and let the last one end; return whether
    it died, and what is wrong.
    """
    with Receiver(is_resuming=True) as receiver:
        code = run(miniature, folder, receiver, WALLAROO_FAULT=first, **environment)
        problem = restart(miniature, folder, receiver, then, expected, **environment)
    if code not in (0, -signal.SIGKILL):
        problem += f" exit code {code} instead of a kill"
    return code == -signal.SIGKILL, f"{first} {then}: {problem}" if problem else ""


def restart(
    miniature: Forks,
    folder: Path,
    receiver: Receiver,
    then: tuple[str, ...],
    expected: Found,
    **environment: str,
) -> str:
    """Kill restarts at ``then`` and let the last one end; return what is wrong, empty where nothing
    is.
    """
    for fault in then:
        run(miniature, folder, receiver, WALLAROO_FAULT=fault, **environment)
    last = run(miniature, folder, receiver, **environment)
    if last != 0:
        return f"the restart ended with {last}"
    found = look(folder, receiver, len(expected.received))
    wrong = [
        name
        for name in Found.__annotations__
        if getattr(found, name) != getattr(expected, name)
        # at low latency what is retained follows from when snapshots were written
        and not (name == "batches" and environment == LOW_LATENCY)
    ]
    return str(wrong) if wrong else ""


def test_a_crash_at_any_point_of_any_batch_changes_nothing(
    miniature: Forks, tmp_path: Path, undisturbed: tuple[Found, Counter[str]]
) -> None:
    """Output, files, state and commits are the undisturbed run's, wherever the process died.

    Every kind of point the first time it is passed, and an eighth of all later times; with
    ``WALLAROO_ALL_POINTS=1`` all of them.
    """
    expected, points = undisturbed
    chosen = [
        (name, nth)
        for number, (name, nth) in enumerate(all_points(points))
        if nth == 1 or number % 8 == 0 or os.environ.get("WALLAROO_ALL_POINTS")
    ]
    plans = [(f"{name}:{nth}", ()) for name, nth in chosen]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(
            pool.map(
                lambda item: crash_and_restart(
                    miniature, tmp_path / str(item[0]), *item[1], expected
                ),
                enumerate(plans),
            )
        )
    assert [problem for _, problem in results if problem] == []
    survivors = [
        plan[0]
        for plan, (died, _) in zip(plans, results, strict=True)
        if not died and not plan[0].startswith(TIMED)
    ]
    assert survivors == [], "the process was not killed at these points"


@pytest.fixture
def crashed(miniature: Forks, tmp_path: Path) -> Callable[[str], Path]:
    """Return the folder of a run that died at a point before any output left; copies of it may be
    restarted.
    """

    def crash(fault: str) -> Path:
        folder = tmp_path / f"crashed {fault}"
        with Receiver(is_resuming=True) as receiver:
            assert run(miniature, folder, receiver, WALLAROO_FAULT=fault) == -signal.SIGKILL
            assert receiver.count == 0
        return folder

    return crash


def check_restarts(
    miniature: Forks, crash: Path, plans: list[tuple[str, ...]], expected: Found
) -> None:
    """Restart copies of a crashed run, kill each restart where it is planned, and compare what the
    last one leaves.
    """

    def check(plan: tuple[str, ...]) -> str:
        folder = crash.with_name(f"{crash.name} {plan[0]}")
        shutil.copytree(crash, folder)
        with Receiver(is_resuming=True) as receiver:
            problem = restart(miniature, folder, receiver, plan, expected)
        return f"{crash.name} {plan}: {problem}" if problem else ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert [problem for problem in pool.map(check, plans) if problem] == []


def test_a_crash_during_the_recovery_changes_nothing(
    miniature: Forks, crashed: Callable[[str], Path], undisturbed: tuple[Found, Counter[str]]
) -> None:
    """After a crash behind the first commit one restart dies where it first passes a point, the
    next where it passes it again.
    """
    expected, points = undisturbed
    plans = [(f"{name}:1", f"{name}:2") for name in sorted(points)]
    check_restarts(miniature, crashed("commit.after:1"), plans, expected)


def test_a_crash_while_output_is_listed_that_only_its_commit_named_changes_nothing(
    miniature: Forks, crashed: Callable[[str], Path], undisturbed: tuple[Found, Counter[str]]
) -> None:
    """A restart lists what waits; half of a list's file is removed by the next one."""
    steps = ["write", "fsync", "rename", "sync_folder", "published"]
    plans = [(f"outbox.pending.{step}:1", "outbox.pending.orphan:1") for step in steps]
    check_restarts(miniature, crashed("commit.after:1"), [*plans], undisturbed[0])


@pytest.mark.parametrize("first", LEFT_BEHIND)
def test_a_crash_while_a_restart_cleans_up_changes_nothing(
    miniature: Forks, first: str, tmp_path: Path, undisturbed: tuple[Found, Counter[str]]
) -> None:
    """What a crash left behind is removed by the restart, which may die of that, too."""
    expected, log = undisturbed[0], tmp_path / "points"
    with Receiver(is_resuming=True) as receiver:
        seen = tmp_path / "looked at"
        assert run(miniature, seen, receiver, WALLAROO_FAULT=first) == -signal.SIGKILL
        assert run(miniature, seen, receiver, WALLAROO_FAULT_LOG=str(log)) == 0
    assert [name for name in LEFT_BEHIND[first] if name not in log.read_text().split()] == []
    for name in LEFT_BEHIND[first]:
        died, problem = crash_and_restart(
            miniature, tmp_path / name, first, (f"{name}:1",), expected
        )
        assert died
        assert problem == ""


def test_a_crash_at_low_latency_changes_nothing(miniature: Forks, tmp_path: Path) -> None:
    """Commits are appended, deltas ride in them, snapshots are written beside the batches; and a
    restart that cuts off half a commit may die of that.
    """
    log = tmp_path / "points"
    with Receiver(is_resuming=True) as receiver:
        folder = tmp_path / "undisturbed"
        assert run(miniature, folder, receiver, WALLAROO_FAULT_LOG=str(log), **LOW_LATENCY) == 0
        expected = look(folder, receiver, 1)
        assert expected.received.count(b"\n") == expected.offsets["Sequence"][1] > 0
    points = Counter(log.read_text().split())
    assert [name for name in NEEDED_LOW if not points[name]] == []
    chosen = Counter({name: min(3, points[name]) for name in NEEDED_LOW})
    plans = [(f"{name}:{nth}", ()) for name, nth in all_points(chosen)]
    plans += [("storage.append_sync:2", ("storage.cut:1",)), ("commit.after:2", ("storage.cut:1",))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(
            pool.map(
                lambda item: crash_and_restart(
                    miniature, tmp_path / str(item[0]), *item[1], expected, **LOW_LATENCY
                ),
                enumerate(plans),
            )
        )
    assert [problem for _, problem in results if problem] == []
    assert [plan for plan, (died, _) in zip(plans, results, strict=True) if not died] == []
