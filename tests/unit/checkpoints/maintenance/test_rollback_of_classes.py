"""A rollback past a change of a class that no object of the newest commit had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from wallaroo.dataflow.plan.positions import formerly, positions_at

RUN_S_MAX = 400
MODULE = """
import msgspec

import wallaroo


class Part(msgspec.Struct):
    FIELDS


class Parts:
    def __init__(self):
        self.parts = []


@wallaroo.state_computation(state=Parts)
def keep(line, state):
    state.parts = [Part(1, 2)] if line == "with" else []
    return line


def application(folder):
    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", folder / "in.txt"))
    kept = lines.key_by(lambda line: "key").to(keep)
    sink = wallaroo.FileSinkConfig(folder / "out.txt", form="lines")
    return wallaroo.build_application("parts", kept.to_sink(sink))
"""
MAIN = """
import sys
from pathlib import Path

from module import application
from wallaroo.checkpoints.maintenance.rollback import roll_back
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

folder = Path(sys.argv[1])
if sys.argv[2:]:
    print(roll_back(folder / "state", int(sys.argv[2]), application(folder).plan))
else:
    options = RunOptions(checkpoint=folder / "state", status_address=None, retain_commits=9)
    run = Run(application(folder), options, InProcessHost())
    run.start()
    run.result()
"""


def ran(folder: Path, fields: str, *arguments: str) -> str:
    (folder / "module.py").write_text(MODULE.replace("FIELDS", fields))
    (folder / "main.py").write_text(MAIN)
    command = [sys.executable, "-B", str(folder / "main.py"), str(folder), *arguments]
    paths = os.pathsep.join(sys.path)
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        timeout=RUN_S_MAX,
    )
    return ended.stdout + ended.stderr


def process(folder: Path, fields: str, line: str) -> None:
    with (folder / "in.txt").open("a") as lines:
        lines.write(f"{line}\n")
    assert "Error" not in (said := ran(folder, fields)), said


FORMER = "a: int\n    b: int"
TODAYS = "b: int\n    a: int"


def test_objects_of_a_former_class_are_never_read_as_those_of_todays(tmp_path: Path) -> None:
    """Their values would be in other fields; the version that wrote them may roll back."""
    process(tmp_path, FORMER, "with")
    process(tmp_path, FORMER, "without")
    process(tmp_path, TODAYS, "without")
    process(tmp_path, TODAYS, "with")
    process(tmp_path, TODAYS, "without")
    assert "(4,)" in ran(tmp_path, TODAYS, "3"), "commits since the change have today's objects"

    said = ran(tmp_path, TODAYS, "0")
    assert "the application cannot read commit 0" in said
    assert "objects of module.Part as their values without names, in the order of its" in said
    assert "fields: a, b. These are b, a now" in said

    assert "(2, 3)" in ran(tmp_path, TODAYS, "1")
    assert "(1,)" in ran(tmp_path, FORMER, "0")


def test_what_a_rollback_can_no_longer_reach_is_forgotten() -> None:
    notes = {"positions": {"m.A": ["c"]}, "former": [[3, {"m.A": ["a"]}], [6, {"m.A": ["b"]}]]}
    assert [positions_at(notes, batch)["m.A"] for batch in (3, 4, 6, 7)] == [
        ["a"],
        ["b"],
        ["b"],
        ["c"],
    ]
    assert formerly(notes, ["m.A"], 8, 4) == [[6, {"m.A": ["b"]}], [8, {"m.A": ["c"]}]]
