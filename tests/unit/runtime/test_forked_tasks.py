"""Functions of the application that fork a process which comes back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

APPLICATION = """
import os

import wallaroo

def end(line):
    RETURNS

@wallaroo.computation
def forks(line):
    if line == "b" and os.fork() == 0:
        return end(line)
    return line

@wallaroo.key_extractor
def itself(line):
    return line

@wallaroo.state_computation(state=dict)
def count(line, state):
    state["count"] = state.get("count", 0) + 1
    return f"{line} {state['count']}"

@wallaroo.encoder
def encode(text):
    return text + "\\n"

def application_setup(args):
    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", "INPUT"))
    counts = lines.to(forks).key_by(itself).to(count)
    return wallaroo.build_application("App", counts.to_sink(wallaroo.FileSinkConfig("OUT", encode)))
"""


@pytest.mark.parametrize("returns", ["return line", "raise ValueError(line)"])
def test_a_forked_process_that_comes_back_is_ended_and_the_run_is_as_without_it(
    returns: str, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("a\nb\nc\nb\n")
    code = APPLICATION.replace("RETURNS", returns).replace("INPUT", str(tmp_path / "in.txt"))
    (tmp_path / "application.py").write_text(code.replace("OUT", str(tmp_path / "out.txt")))
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "wallaroo.cli.in_process",
            str(tmp_path / "application.py"),
            "--no-live",
            "--checkpoint",
            str(tmp_path / "checkpoint"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ran.returncode == 0, ran.stderr
    assert "a function of the application forked process" in ran.stderr
    assert "os._exit" in ran.stderr
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert sorted(lines) == ["a 1", "b 1", "b 2", "c 1"]
