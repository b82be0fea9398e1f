"""What `wallaroo doctor` makes of a machine."""

from __future__ import annotations

import argparse
import os
import re
import socket
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from wallaroo.cli.doctor import command
from wallaroo.cli.doctor.machine import (
    GIB,
    NEEDED,
    Finding,
    Verdict,
    cgroup_cores,
    java_major,
    judge_cores,
    judge_disk,
    judge_files,
    judge_java,
    judge_memory,
    judge_package,
    judge_python,
    memory_available,
    parse_ports,
    version_tuple,
)
from wallaroo.spark.local_cluster.hosts import free_ports

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("output", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('java version "1.8.0_371"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25" 2025-09-16', 25),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_javas_version_is_read(output: str, major: int | None) -> None:
    assert java_major(output) == major


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        (judge_java(17, "x"), Verdict.OK),
        (judge_java(11, "x"), Verdict.FAIL),
        (judge_java(None, "x"), Verdict.FAIL),
        (judge_python((3, 11), "3.11.2"), Verdict.OK),
        (judge_python((3, 10), "3.10.9"), Verdict.FAIL),
        (judge_package("pyspark", "4.3.1", (4, 3)), Verdict.OK),
        (judge_package("pyspark", "4.4.0", (4, 3)), Verdict.FAIL),
        (judge_package("lmdb", None, (1, 4)), Verdict.FAIL),
        (judge_package("lmdb", "1.3.9", (1, 4)), Verdict.FAIL),
        (judge_package("lmdb", "3.0.0", (1, 4)), Verdict.OK),
        (judge_cores(2), Verdict.OK),
        (judge_cores(0.5), Verdict.WARN),
        (judge_memory(8 * GIB), Verdict.OK),
        (judge_memory(GIB), Verdict.WARN),
        (judge_memory(None), Verdict.OK),
        (judge_files(256), Verdict.FAIL),
        (judge_files(1024), Verdict.WARN),
        (judge_files(65_536), Verdict.OK),
        (judge_files(sys.maxsize), Verdict.OK),
        (judge_disk("d", 50 * GIB, 0.5), Verdict.OK),
        (judge_disk("d", 50 * GIB, 90.0), Verdict.WARN),
        (judge_disk("d", GIB, 0.5), Verdict.WARN),
        (judge_disk("d", 1000, 0.5), Verdict.FAIL),
    ],
)
def test_a_thing_is_judged_and_what_is_not_ok_has_a_fix(finding: Finding, verdict: Verdict) -> None:
    assert finding.verdict is verdict
    assert bool(finding.fix) == (verdict is not Verdict.OK)


def test_limits_of_containers_are_read() -> None:
    assert cgroup_cores("50000 100000\n") == 0.5
    assert cgroup_cores("max 100000\n") is None
    assert cgroup_cores("") is None
    assert memory_available("nothing here") is None


def test_the_packages_looked_at_are_those_the_project_depends_on() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    declared = {
        re.split("[=>]", text)[0]: version_tuple(re.sub(r"^.*=|\.\*$", "", text))
        for text in dependencies
    }
    assert declared == NEEDED


@pytest.mark.parametrize("text", ["0", "65536", "x", "70,-1"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a port"):
        parse_ports(text)


def test_a_busy_port_is_distinguished_from_a_free_one() -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        assert command.examine_port(port, Verdict.FAIL).verdict is Verdict.FAIL
        assert command.examine_port(port, Verdict.WARN).verdict is Verdict.WARN
    assert command.examine_port(port, Verdict.FAIL).verdict is Verdict.OK


def fake_java(directory: Path, text: str) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_java_home_wins_over_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_java(tmp_path / "home", 'openjdk version "17.0.1"')
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", 'java version "1.8.0"').parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert str(command.examine_java()) == f"ok    java         17, {program} (from JAVA_HOME)"
    monkeypatch.delenv("JAVA_HOME")
    assert command.examine_java().seen.startswith("8, ")


def test_without_java_the_doctor_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    finding = command.examine_java()
    assert finding.verdict is Verdict.FAIL
    assert "openjdk-17-jre-headless" in finding.fix


def test_a_disk_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    finding = command.examine_disk(tmp_path / "not" / "yet")
    assert "fsync" in finding.seen
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_no_directory_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert command.examine_disk(tmp_path / "file").verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("verdict", "code"), [(Verdict.OK, 0), (Verdict.WARN, 0), (Verdict.FAIL, 1)]
)
def test_only_a_failure_makes_the_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, verdict: Verdict, code: int
) -> None:
    monkeypatch.setattr(
        command,
        "examine",
        lambda ports, checkpoint: [
            Finding("java", Verdict.OK, "17"),
            Finding("x", verdict, "seen"),
        ],
    )
    assert command.doctor(argparse.Namespace(ports=None, checkpoint=None)) == code
    assert "seen" in capsys.readouterr().out


def test_the_workers_python_is_examined_too() -> None:
    assert command.examine_worker_python({}).verdict is Verdict.OK
    finding = command.examine_worker_python({"PYSPARK_PYTHON": "/nonexistent/python"})
    assert finding.verdict is Verdict.FAIL
    assert "there is no such program" in finding.seen
    assert finding.fix.startswith("Run `unset PYSPARK_PYTHON`")


def test_a_user_without_a_name_fails() -> None:
    assert command.examine_user(os.getuid()).verdict is Verdict.OK
    found = command.examine_user(2_000_000_123)
    assert found.verdict is Verdict.FAIL
    assert found.fix == "Add it to /etc/passwd, or run as a user with a name."
