"""An application on a cluster whose workers have nothing of it: real Master, Worker and executor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wallaroo.cluster import LocalCluster

RUN_S_MAX = 200

APPLICATION = """
import wallaroo
import helper
from lib.deep import FACTOR


@wallaroo.computation
def where(line):
    return f"{line} {helper.twice(FACTOR)} {wallaroo.__file__} {helper.__file__}"


@wallaroo.encoder
def encode(text):
    return text + "\\n"


def application_setup(args):
    lines = wallaroo.source("Lines", wallaroo.FileSourceConfig("Lines", "INPUT"))
    sink = wallaroo.FileSinkConfig("OUTPUT", encode)
    return wallaroo.build_application("Shipped", lines.key_by(key).to(count).to(where).to_sink(sink))


@wallaroo.key_extractor
def key(line):
    return line


class Count:
    def __init__(self):
        self.lines = 0


@wallaroo.state_computation(state=Count)
def count(line, state):
    state.lines += 1
    return f"{line} {state.lines}"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "__init__.py").write_text("")
    (folder / "lib" / "deep.py").write_text("FACTOR = 21\n")
    (folder / "helper.py").write_text("def twice(x):\n    return 2 * x\n")
    (folder / "input.txt").write_text("".join(f"line{number % 10}\n" for number in range(100)))
    code = APPLICATION.replace("INPUT", str(folder / "input.txt")).replace("OUTPUT", str(tmp_path / "out"))
    (folder / "shipped.py").write_text(code)
    return folder


def test_application_siblings_package_and_input_reach_the_workers(tmp_path: Path, project: Path) -> None:
    with LocalCluster.start(tmp_path / "cluster", workers=1, cores=2) as cluster:
        command = [sys.executable, "-m", "wallaroo", "run", str(project / "shipped.py"), "--master", cluster.url]
        more = ["--checkpoint", str(tmp_path / "checkpoint"), "--no-live", "--conf", "spark.executor.memory=512m"]
        path = os.pathsep.join(sys.path)
        ran = subprocess.run(
            [*command, *more], capture_output=True, text=True, timeout=RUN_S_MAX, env={**os.environ, "PYTHONPATH": path}
        )
    assert ran.returncode == 0, ran.stderr
    lines = [line for part in sorted((tmp_path / "out").glob("part-*")) for line in part.read_text().splitlines()]
    counted = sorted(line.rsplit(" ", 3)[0] for line in lines)
    assert counted == sorted(f"line{number} {count}" for number in range(10) for count in range(1, 11))
    for line in lines:
        _, _, product, package, module = line.split(" ")
        assert product == "42"
        assert ".zip/wallaroo/__init__.py" in package  # not the one that may be installed here
        assert ".zip/helper.py" in module
