"""Runs of an application that continue from the state of an older version of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

APPLICATION = """
import wallaroo

{state}


@wallaroo.decoder
def decode(payload):
    return payload.decode()


@wallaroo.key_extractor
def key_of(event):
    return event


@wallaroo.state_computation("count", state=Total{ttl})
def counted(event, state):
    state.add()
    return f"{{event}} {{sorted(vars(state).items())}}"


@wallaroo.encoder
def encode(line):
    return line


def application_setup(args):
    lines = wallaroo.source("lines", wallaroo.FileSourceConfig("lines", "in.txt", decode))
    sink = wallaroo.FileSinkConfig("out.txt", encoder=encode, form="lines")
    return wallaroo.build_application("app", lines.key_by(key_of).to(counted).to_sink(sink))
"""
FIRST = """
class Total:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
"""
FILLED = """
class Total:
    def __init__(self):
        self.count = 0
        self.seen = [9]

    def add(self):
        self.count += 1
"""
UPGRADES = """
import wallaroo
from totals import Total


@wallaroo.upgrade(Total, from_version=1)
def upgraded(fields):
    return Total(fields["count"] * 10 + fields.get("seen", [0])[0])
"""
SECOND = """
class Total:
    state_version = 2

    def __init__(self, tenfold=0):
        self.tenfold = tenfold

    def add(self):
        self.tenfold += 10
"""


def run(folder: Path, lines: str, ttl: str, head: str) -> list[str]:
    """Run the application on further input until its end; return the new output."""
    (folder / "app.py").write_text(APPLICATION.format(state=head, ttl=ttl))
    out = folder / "out.txt"
    before = out.read_text().splitlines() if out.exists() else []
    with (folder / "in.txt").open("a") as file:
        file.write(lines)
    command = ("-m", "wallaroo.cli.in_process", "app.py", "--checkpoint", "state")
    ended = subprocess.run(
        [sys.executable, *command, "--status", "off"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return out.read_text().splitlines()[len(before) :]


def test_state_is_filled_in_and_upgraded_when_an_event_meets_it(tmp_path: Path) -> None:
    """The upgrade is in a module of its own, which only the application's module imports."""
    for ttl in ("", ", ttl=wallaroo.hours(1)"):
        folder = tmp_path / f"ttl{len(ttl)}"
        folder.mkdir()
        (folder / "upgrades.py").write_text(UPGRADES)
        totals = folder / "totals.py"
        totals.write_text(FIRST)
        head = "from totals import Total"
        assert "a [('count', 2)]" in run(folder, "a\nb\na\n", ttl, head)
        totals.write_text(FILLED)
        assert run(folder, "a\n", ttl, head) == ["a [('count', 3), ('seen', [9])]"]
        totals.write_text(SECOND)
        with_upgrades = f"{head}\nimport upgrades"
        # a was filled in, b is as the first version stored it
        assert sorted(run(folder, "a\nb\n", ttl, with_upgrades)) == [
            "a [('tenfold', 49)]",
            "b [('tenfold', 20)]",
        ]
        assert run(folder, "a\n", ttl, with_upgrades) == ["a [('tenfold', 59)]"]
