"""``wallaroo profile``: figures between two looks, names of processes, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wallaroo.cli import main
from wallaroo.cli.application.targets import Target
from wallaroo.cli.profile import command, flame
from wallaroo.cli.profile.figures import cpu_s, figures_between, name_of, processes
from wallaroo.errors import PeerError


def details(events: int, seconds: float, shuffled: int) -> dict[str, Any]:
    return {
        "steps": [
            {"stage": 0, "place": 0, "step": "decode", "events": events, "seconds": seconds},
            {"stage": 1, "place": 1, "step": "count", "events": events, "seconds": 3 * seconds},
        ],
        "edges": [[0, 1, events]],
        "edge_bytes": [[0, 1, shuffled]],
        "hot_keys": {"1": [["often", 0.5], ["slow", 0.01]]},
        "slow_keys": {"1": [["slow", 0.9]]},
    }


def test_shares_and_rates_are_those_of_the_time_between_two_looks() -> None:
    figures = figures_between(details(1_000, 1.0, 8_000), details(3_000, 2.0, 48_000), 4.0)
    decode, count = figures.steps
    assert (decode.share, count.share) == (0.25, 0.75)
    assert count.events_per_s == 500
    assert count.us_per_event == 1500
    (shuffle,) = figures.shuffles
    assert (shuffle.events_per_s, shuffle.bytes_per_s) == (500, 10_000)
    assert [(key.key, key.of_time, key.of_events) for key in figures.keys] == [
        ("slow", 0.9, 0.01),
        ("often", 0.0, 0.5),
    ]


def test_an_idle_application_has_no_shares() -> None:
    same = details(10, 1.0, 80)
    assert {step.share for step in figures_between(same, same, 1.0).steps} == {0.0}


def test_memory_is_that_of_the_process_and_what_it_started() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        before = cpu_s(os.getpid())
        found = {one.pid: one for one in processes(os.getpid(), before, 1.0)}
        assert found[os.getpid()].name == "driver"
        assert found[child.pid].resident_bytes > 0
    finally:
        child.communicate(b"\n")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("python -m wallaroo.ingress", "ingress"),
        ("python -m pyspark.daemon pyspark.worker", "worker"),
        ("tail -f", "other"),
    ],
)
def test_processes_have_names(line: str, name: str) -> None:
    assert name_of(line.split()) == name


def test_the_tables_name_steps_shuffles_keys_and_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = [details(1_000, 1.0, 8_000), *[details(3_000, 2.0, 48_000)] * 100]
    monkeypatch.setattr(command, "_details", lambda _: looks.pop(0))
    monkeypatch.setattr(
        command.targets, "only_one", lambda _: Target(("127.0.0.1", 1), pid=os.getpid())
    )
    assert main.main(["profile", "--seconds", "1"]) == 0
    printed = capsys.readouterr().out
    for text in ("decode", "75.0%", "0 -> 1", "slow", "driver"):
        assert text in printed


def test_a_running_application_takes_no_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["profile", "127.0.0.1:1", "--tasks", "3"]) == 2
    assert "--tasks 3: a running application takes no options" in capsys.readouterr().err


def test_without_py_spy_a_flame_graph_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(elsewhere))
    monkeypatch.setattr(flame.metadata, "files", lambda _: None)
    monkeypatch.setattr(flame.shutil, "which", lambda _: None)

    assert main.main(["profile", "--flame", str(tmp_path / "f.svg"), "no_application.py"]) == 1
    assert f"{elsewhere} -m pip install py-spy" in capsys.readouterr().err


def test_a_flame_graph_shows_the_functions_of_a_process(tmp_path: Path) -> None:
    program = (
        "import time\ndef work_of_the_step():\n  while True: sum(range(1000))\nwork_of_the_step()"
    )
    child = subprocess.Popen([sys.executable, "-c", program])
    try:
        graph = flame.FlameGraph(child.pid, 1, tmp_path / "f.svg")
        try:
            graph.finish()
        except PeerError as error:
            if "may not look into" in str(error):
                pytest.skip(str(error))
            raise
        assert "work_of_the_step" in (tmp_path / "f.svg").read_text()
    finally:
        child.kill()
        child.wait()


def test_a_refusal_by_the_system_says_how_to_allow_it() -> None:
    said = "Error: Permission Denied: Try running again with elevated permissions"
    assert "ptrace_scope" in flame.refusal(said)
    assert "no such process" in flame.refusal("x\nError: no such process\n")
