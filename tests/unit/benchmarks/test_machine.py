"""What reports say of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.lib.machine import stolen_s


def test_time_that_other_machines_had_is_read(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 2 3 4 5 6 7 800 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n")

    assert stolen_s(stat) == pytest.approx(800 / os.sysconf("SC_CLK_TCK"))


@pytest.mark.parametrize("content", ["", "cpu  1 2 3 4 5 6 7\n"])
def test_a_system_that_does_not_say_stole_nothing(tmp_path: Path, content: str) -> None:
    stat = tmp_path / "stat"
    stat.write_text(content)

    assert stolen_s(stat) == 0.0
    assert stolen_s(tmp_path / "none") == 0.0
