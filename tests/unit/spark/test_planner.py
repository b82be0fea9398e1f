"""The sign of life of Spark's planner, without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wallaroo.spark.heartbeat import Heartbeat
from wallaroo.spark.planner import COMMAND, Planner


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose command line is a planner's, which showed itself."""
    child = subprocess.Popen([sys.executable, "-c", "input()", COMMAND], stdin=subprocess.PIPE)
    (tmp_path / "planner").write_text(str(child.pid))
    yield child
    child.kill()
    child.communicate()


def test_a_planner_that_goes_on_is_not_silent(
    tmp_path: Path, process: subprocess.Popen[bytes], eventually: Callable[..., None]
) -> None:
    planner = Planner(tmp_path / "planner")
    eventually(lambda: planner.silent_s(is_asked=True) > 0.1, "it is silent")
    os.utime(tmp_path / "planner")
    assert planner.silent_s(is_asked=True) < 0.1


def test_a_planner_that_is_not_asked_is_not_silent(
    tmp_path: Path, process: subprocess.Popen[bytes], eventually: Callable[..., None]
) -> None:
    planner = Planner(tmp_path / "planner")
    eventually(lambda: planner.silent_s(is_asked=True) > 0.1, "it is silent")
    assert planner.silent_s(is_asked=False) < 0.1


def test_a_planner_is_killed_and_gone(
    tmp_path: Path, process: subprocess.Popen[bytes], eventually: Callable[..., None]
) -> None:
    planner = Planner(tmp_path / "planner")
    assert not planner.is_gone
    planner.kill()
    eventually(lambda: planner.is_gone, "it is gone")
    assert planner.silent_s(is_asked=True) < 5


def test_a_planner_that_begins_is_given_time(
    tmp_path: Path, process: subprocess.Popen[bytes], eventually: Callable[..., None]
) -> None:
    """On a busy machine that takes longer than an answer."""
    planner = Planner(tmp_path / "planner")
    eventually(lambda: planner.silent_s(is_asked=True) > 0.1, "it is silent")
    planner.expect()
    assert planner.silent_s(is_asked=True) < 0
    os.utime(tmp_path / "planner")
    eventually(lambda: planner.silent_s(is_asked=True) > 0.1, "it is silent again")


def test_a_process_that_is_no_planner_is_never_killed(tmp_path: Path) -> None:
    (tmp_path / "planner").write_text(str(os.getpid()))
    planner = Planner(tmp_path / "planner")
    planner.kill()
    assert planner.is_gone


def test_before_its_first_sign_nothing_is_gone(tmp_path: Path) -> None:
    assert not Planner(tmp_path / "planner").is_gone
    heartbeat = Heartbeat(tmp_path / "planner")
    assert not (tmp_path / "planner").exists()
    heartbeat.beat()
    assert (tmp_path / "planner").read_text() == str(os.getpid())
