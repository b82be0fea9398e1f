"""README.md: its application runs as pasted, and its figures are those that were measured."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages import report

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
FIFTEEN = 15
RUN_S_MAX = 400.0


@pytest.fixture
def application() -> str:
    block = re.search(r"^```python\n(# clicks\.py\n.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert block
    return block[1]


def test_the_application_has_fifteen_lines(application: str) -> None:
    code = [line for line in application.splitlines() if line and not line.startswith("#")]

    assert len(code) <= FIFTEEN


def test_the_application_runs_as_pasted(application: str, tmp_path: Path) -> None:
    """In one process, as a stand-in for Spark: with the input that README.md writes."""
    (tmp_path / "clicks.py").write_text(application)
    line = re.search(r"^\$ echo '(.*)' > clicks\.jsonl$", README, re.MULTILINE)
    output = re.search(r"^\$ wallaroo run clicks\.py +# .*: (.*)$", README, re.MULTILINE)
    assert line
    assert output
    (tmp_path / "clicks.jsonl").write_text(f"{line[1]}\n")

    done = subprocess.run(
        [sys.executable, "-m", "wallaroo.cli.in_process", "clicks.py", "--no-live"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert output[1] in done.stdout.splitlines()


def figure(reports: dict[str, tuple[str, dict[str, Any]]], name: str, which: str) -> float:
    _, content = reports[name]
    return next(float(each["value"]) for each in content["figures"] if each["name"] == which)


def test_its_figures_are_those_of_the_results() -> None:
    reports = report.load()
    rate = figure(reports, "event_cost", "Market Spread, resident, durable: events/s")
    p50 = figure(reports, "latency_ten_minutes", "low, 100/s: p50")
    p99 = figure(reports, "latency_ten_minutes", "low, 100/s: p99")
    wait = figure(reports, "healing", "longest")

    assert f"| {rate / 1e6:.1f} million events/s |" in README
    assert f"| {p50:.1f} ms median, {p99:.1f} ms at p99 |" in README
    assert f"| {wait:.2f} s |" in README
