"""Simulated histories end as the model says, and the simulation notices what it is to notice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.runner import of_points, run_all
from tests.simulation.simulation import Options, Simulation
from tests.simulation.system import Crashed, Fault, Plan, Process, System
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.sinks.queued.pending import PendingBatch, PendingList
from wallaroo.sinks.staging import StagedToken
from wallaroo.spool import Boundary, SpoolReader
from wallaroo.spool.writer import SpoolWriter
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.log.commits import Commit
from wallaroo.state.log.owners import Claim, make_claim

SEEDS = 120
POINTS_OF = 64  # one of so many
ROOT = Path(__file__).parents[2]


def test_histories_of_many_seeds_end_as_the_model_says() -> None:
    """Kills, power cuts, full and failing disks, in random places, several in a row."""
    totals = run_all((Options(seed) for seed in range(SEEDS)), jobs=os.cpu_count() or 1)
    assert totals.problems == []
    assert totals.runs == SEEDS
    kinds = {name.split(":")[0] for name in totals.injected}
    assert kinds == {fault.value for fault in Fault} - {Fault.LOST.value, Fault.MISDIRECTED.value}


def test_a_history_that_fails_at_a_chosen_call_ends_as_the_model_says() -> None:
    """Some of the calls of a small history, each with one fault, or with a death and a power
    cut.
    """
    totals = run_all(of_points(POINTS_OF), jobs=os.cpu_count() or 1)
    assert totals.problems == []
    assert totals.runs > 100


def test_the_same_seed_is_the_same_history_in_every_process() -> None:
    """Else the command that replays a failure would not."""

    def trace(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT / 'src'}"}
        command = [sys.executable, "-m", "tests.simulation", "--seed", "7"]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        return next(line for line in done.stdout.splitlines() if line.startswith("trace "))

    assert trace("1") == trace("2")


def test_a_program_that_syncs_no_folders_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulated disk forgets names that were not synced, and the model notices."""
    for module in (
        "durable.whole_file",
        "durable.folders",
        "state.checkpoint",
        "sinks.queued.pending",
    ):
        monkeypatch.setattr(f"wallaroo.{module}.sync_folder", lambda path: None)

    def is_found_out(seed: int) -> bool:
        try:
            return bool(Simulation(Options(seed), tmp_path / "history").run().problem)
        except CheckpointError:  # what is judged at the end lacks a file
            return True

    assert any(map(is_found_out, range(40)))


def test_standbys_in_the_middle_of_each_other_s_calls_are_as_the_model_says() -> None:
    """Whatever a standby is led to believe, it tries at any moment, and the claim decides."""
    options = (Options(seed, drivers=3) for seed in range(SEEDS // 2))
    totals = run_all(options, jobs=os.cpu_count() or 1)
    assert totals.problems == []
    assert totals.taken_over > SEEDS / 4


def test_a_standby_that_claims_after_a_run_that_it_did_not_see_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim without its condition ends the standby that was quicker."""

    def claim(root: Path, is_durable: bool, after: int | None = None) -> Claim:
        return make_claim(root, is_durable)

    monkeypatch.setattr("wallaroo.state.checkpoint.make_claim", claim)
    problems = (
        Simulation(
            Options(seed, drivers=3, held_up_in=(("", "checkpoint/owners/"),)), tmp_path / "history"
        )
        .run()
        .problem
        for seed in range(300)
    )
    assert any("had not seen" in problem for problem in problems)


# -- what the simulation found


class Machine:
    """A simulated machine with one process at a time."""

    def __init__(self, root: Path):
        root.mkdir(mode=0o700)
        self.system = System(root, random.Random(1), Plan())
        self.process = Process("first")

    def next_process(self) -> None:
        """The process is gone, another one begins."""
        self.system.bury(self.process)
        self.process = Process("next")

    def cut_power(self) -> None:
        """And switch on again."""
        self.next_process()
        self.system.lose_power()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "disk")
    made.system._chance.randint = lambda low, high: low  # type: ignore[method-assign]  # no unsynced name survives
    made.system.install()
    yield made
    made.system.bury(made.process)
    made.system.remove()


def test_a_commit_that_a_start_found_survives_a_power_cut(machine: Machine) -> None:
    """The run before died between the rename and the sync of the folder."""
    root = machine.system.root / "checkpoint"

    def opened() -> Checkpoint:
        with machine.system.running(machine.process):
            return open_checkpoint(root, is_durable=True)

    first = opened()
    commit = Commit(0, {}, checkpoint=first.id, id="a")
    machine.system.plan.at[machine.system.steps + 5] = Fault.KILL  # create, write, fsync, rename
    with machine.system.running(machine.process), pytest.raises(Crashed):
        first.commits.publish(commit)
    assert machine.system.log[-1].call == "fsync"
    assert machine.system.log[-1].path.endswith("commits")
    first.release()
    machine.next_process()
    second = opened()
    assert second.last == commit
    second.release()
    machine.cut_power()
    assert opened().last == commit


def test_a_list_of_waiting_output_that_a_start_found_survives_a_power_cut(
    machine: Machine,
) -> None:
    """The same for what a sink has to send."""
    staging = machine.system.root / "outbox"
    token = StagedToken(file="", inline="eA==", bytes=1, outputs=1, crc=0)

    def listed() -> PendingList:
        with machine.system.running(machine.process):
            staging.mkdir(mode=0o700, exist_ok=True)
            return PendingList(staging, is_durable=True)

    pending = listed()
    batch = PendingBatch.of(Commit(0, {}, checkpoint="c", id="a").identity, 0, [token])
    assert batch is not None
    machine.system.plan.at[machine.system.steps + 5] = Fault.KILL
    with machine.system.running(machine.process), pytest.raises(Crashed):
        pending.add(batch)
    machine.system._disk.sync()  # the outbox itself is not in question
    machine.next_process()
    assert listed().numbers() == [0]
    machine.cut_power()
    assert listed().numbers() == [0]


def test_a_segment_whose_header_was_not_synced_is_made_again(machine: Machine) -> None:
    """What follows in it would be acknowledged, and unreadable after a power cut."""
    folder = machine.system.root / "spool"

    def write() -> SpoolWriter:
        return SpoolWriter(folder, is_durable=True)

    machine.system._chance.random = lambda: 1.0  # type: ignore[method-assign]  # nothing unsynced survives
    removed = Path.unlink
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", _refuse)
        fsync = machine.system.fsync

        def fail_for_segment(descriptor: int) -> None:
            handle = machine.system.handle(descriptor)
            if handle is not None and handle.path.endswith(".chunks"):
                machine.system.plan.at[machine.system.steps + 1] = Fault.EIO
            fsync(descriptor)

        patch.setattr(os, "fsync", fail_for_segment)
        with machine.system.running(machine.process), pytest.raises(PeerError):
            write()
    assert Path.unlink is removed
    machine.next_process()
    with machine.system.running(machine.process):
        writer = write()
        writer.append(b"\0\0\0\1x", 1, 1)
        writer.publish()
    machine.cut_power()
    with machine.system.running(machine.process):
        again = write()
    assert again.position.events == 1
    frames = [chunk.frames for chunk in SpoolReader(folder).chunks(Boundary(), again.position)]
    assert [bytes(one) for one in frames] == [b"\0\0\0\1x"]


def _refuse(path: Path, missing_ok: bool = False) -> None:
    raise OSError(5, "Input/output error", str(path))
