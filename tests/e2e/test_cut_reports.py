"""A JVM that dies while it sends the reports of a batch, which PySpark takes for their end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.java]
ENDS_S_MAX = 400.0
APPLICATION = """
from collections import Counter

import wallaroo


@wallaroo.state_computation(name="count", state=Counter)
def count(line, counts):
    counts["lines"] += 1
    return f"{line} {counts['lines']}"


def application_setup(args):
    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", args[-2]))
    counted = lines.key_by(lambda line: line).to(count)
    return wallaroo.build_application(
        "App", counted.to_sink(wallaroo.FileSinkConfig(args[-1], form="lines"))
    )
"""
LINES = [f"k{number % 7}" for number in range(3000)]


def ended(folder: Path, *program: str) -> subprocess.CompletedProcess[str]:
    """The run of the application, by ``program`` instead of ``wallaroo``."""
    options = ("--master", "local[2]", "--host", "micro-batch", "--checkpoint", "checkpoint")
    return subprocess.run(
        [sys.executable, "-m", *program, "run", "application.py", *options, "lines", "out"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=ENDS_S_MAX,
        check=False,
    )


@pytest.mark.parametrize("share", [0.0, 0.6], ids=["nothing arrives", "some of it arrives"])
def test_a_jvm_that_dies_while_it_sends_reports_loses_and_doubles_nothing(
    tmp_path: Path, share: float
) -> None:
    (tmp_path / "application.py").write_text(APPLICATION)
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in LINES))

    died = ended(tmp_path, "tests.e2e.cut_reports", str(share))
    finished = ended(tmp_path, "wallaroo")

    assert died.returncode != 0
    assert "Spark's JVM was killed (signal 9), by a user or by the system" in died.stderr
    assert "What was committed stays" in died.stderr
    assert "Traceback" not in died.stderr
    assert finished.returncode == 0, finished.stderr
    written = [
        line for file in (tmp_path / "out").glob("part-*") for line in file.read_text().splitlines()
    ]
    expected = Counter(LINES)
    assert Counter(written) == Counter(
        f"{key} {number}" for key, count in expected.items() for number in range(1, count + 1)
    )
