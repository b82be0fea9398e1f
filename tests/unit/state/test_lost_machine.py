"""Checkpoints that are not synced commit by commit: killed processes, and lost machines.

A lost machine is a copy of the folder in which every file that was written after the last sync is,
by chance, as it was at that sync, whole, torn, full of zeros, or absent.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

import wallaroo
from tests.stores.stored_driver import KEYS, count, encode, key_of
from tests.unit.runtime.applications import ROOT, Numbers
from wallaroo.instrumentation.tuning import Pace, Tuning
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.log import floor
from wallaroo.state.log.floor import FloorKeeper, read_floor
from wallaroo.state.views import view_folders

EVENTS = 1500
SYNCS = 2  # that find something, until no more is synced
# synced by their writers, whatever the level
SYNCED = ("owners", "outbox", "format.json", "lease.json", "plan.json", "lock")


def new_run(folder: Path, durability: str = "memory", events: int = EVENTS) -> Run:
    """Return a run whose input lies in a spool, with a few hundred events in a batch."""
    source = wallaroo.source("in", wallaroo.GenSourceConfig("in", Numbers(events)))
    sink = wallaroo.FileSinkConfig(folder / "out.txt", encode, name="file")
    application = wallaroo.build_application("app", source.key_by(key_of).to(count).to_sink(sink))
    tuning = Tuning(
        pace=Pace(events_first=50, events_max=50),
        snapshot_every=4,
        sweep_every=2,
        sweep_s=0.0,
        sync_s=0.02,
    )
    options = RunOptions(
        checkpoint=folder / "state",
        status_address=None,
        key_groups=4,
        retain_commits=2,
        batch_time_s=0.05,
        durability=durability,  # type: ignore[arg-type]
        module_paths=(ROOT,),
        tuning=tuning,
    )
    return Run(application, options, InProcessHost())


def run_to_end(run: Run) -> None:
    run.start()
    assert run.wait(400)
    if run.exception is not None:
        raise run.exception


def expected(events: int = EVENTS) -> set[str]:
    return {f"{number} {number // KEYS + 1}" for number in range(events)}


class Disk:
    """The content of the disk of a run: the folder as it was at the last sync."""

    def __init__(self, root: Path, copy: Path, syncs: int):
        self.root = root
        self.copy = copy
        self.left = syncs

    def sync(self) -> None:
        if not (self.root / "commits").exists() or not any((self.root / "commits").iterdir()):
            return
        if not self.left:
            raise OSError(5, "no more is synced")
        self.left -= 1
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.root, self.copy, ignore_dangling_symlinks=True, dirs_exist_ok=True)

    def lose_machine(self, chance: random.Random) -> None:
        """Replace the folder by one that a power cut may have left."""
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root)
            if path.is_dir() or name.parts[0] in SYNCED or name.name.startswith("floor."):
                continue
            content = path.read_bytes()
            before = self.copy / name
            if before.exists() and before.read_bytes() == content:
                continue
            old = before.read_bytes() if before.exists() else None
            torn = content[: chance.randrange(len(content) + 1)]
            zeros = torn + bytes(len(content) - len(torn))
            if old is not None and not name.name.startswith(("head", "tail", "open")):
                # what was synced of a file that grows stays
                torn = old + torn[len(old) :] if content.startswith(old) else old
                zeros = old + zeros[len(old) :] if content.startswith(old) else old
            left = chance.choice([old, content, torn, zeros])
            if left is None:
                path.unlink()
            else:
                path.write_bytes(left)
        for path in sorted(self.copy.rglob("*")):  # names whose removal was not stored
            back = self.root / path.relative_to(self.copy)
            if path.is_file() and not back.exists() and chance.random() < 0.5:
                back.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, back)


def die(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs end as if they were killed: nothing more is synced, and the note stays."""

    def end(keeper: FloorKeeper) -> None:
        with keeper._state:
            keeper._is_over.set()
            keeper._state.notify_all()
        keeper._thread.join()  # a sync that has begun is not to end after the machine was lost

    monkeypatch.setattr(FloorKeeper, "close", end)


def test_a_killed_process_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same boot: what was written is there, whatever was synced."""
    with monkeypatch.context() as dying:
        die(dying)
        run_to_end(new_run(tmp_path, events=1000))
    assert read_floor(tmp_path / "state") is not None

    run_to_end(new_run(tmp_path, events=1000))

    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert Counter(lines) == Counter(expected(1000))
    assert read_floor(tmp_path / "state") is None


@pytest.mark.parametrize("seed", range(5))
def test_a_lost_machine_leaves_a_consistent_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """State and input go back to one commit, and nothing is missing at the end."""
    disk = Disk(tmp_path / "state", tmp_path / "disk", SYNCS)
    with monkeypatch.context() as dying:
        die(dying)
        dying.setattr(floor, "sync_everything", disk.sync)
        run = new_run(tmp_path)
        run.start()
        assert run.wait(400)
        assert disk.left == 0
    before = read_floor(tmp_path / "state")
    assert before is not None
    disk.lose_machine(random.Random(seed))
    for module in (floor, view_folders):  # a view that was not synced is not read by another boot
        monkeypatch.setattr(module, "boot_id", lambda: "the-next-one")

    run_to_end(new_run(tmp_path, "memory" if seed % 2 else "disk"))

    assert set((tmp_path / "out.txt").read_text().splitlines()) == expected()
    checkpoint = open_checkpoint(tmp_path / "state", is_durable=True)
    checkpoint.release()
    assert checkpoint.last is not None
    # a floor at the end of the input leaves nothing to commit after the fillers
    assert checkpoint.last.batch >= before.until
    assert read_floor(tmp_path / "state") is None
