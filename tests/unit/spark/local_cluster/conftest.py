"""Processes to look at and to end, and a Spark that is none: the cluster's failures need no JVM."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start Python with a program; it prints ``ready`` once it may be used, and is gone after the
    test.
    """
    children = []

    def start(program: str = "", **options: object) -> subprocess.Popen[bytes]:
        code = (
            f"import os, signal, subprocess, sys, time\n{program}\nprint('ready', "
            f"flush=True)\ntime.sleep(60)"
        )
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, **options)  # type: ignore[call-overload]
        children.append(child)
        assert child.stdout.readline() == b"ready\n"
        return child  # type: ignore[no-any-return]

    yield start
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.fixture
def fake_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make Spark's daemons a shell script."""

    def install(script: str) -> None:
        home = tmp_path / "spark"
        (home / "jars").mkdir(parents=True, exist_ok=True)
        (home / "bin").mkdir(exist_ok=True)
        program = home / "bin" / "spark-class"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("SPARK_HOME", str(home))

    return install
