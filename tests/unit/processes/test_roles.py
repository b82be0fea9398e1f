"""The roles of the processes of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from wallaroo.ingress.process import FEEDER, INGRESS, RANGES
from wallaroo.processes.roles import MODULES, Role, family, role_of, run_processes


@pytest.mark.parametrize(
    ("module", "role"),
    [(INGRESS, Role.INGRESS), (FEEDER, Role.FEEDER), (RANGES, Role.RANGE_SERVER)],
)
def test_a_process_has_the_role_of_the_module_that_it_runs(module: str, role: Role) -> None:
    assert role_of((sys.executable, "-m", module, "config.json")) is role


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_module_with_a_role_exists(module: str) -> None:
    assert find_spec(module) is not None


def test_a_jvm_is_known_by_its_program_and_others_have_no_role() -> None:
    assert role_of(("/usr/bin/java", "-cp", "wallaroo.ingress")) is Role.JVM
    assert role_of(("tail", "-f")) is None
    assert role_of(()) is None


def test_the_processes_of_a_run_are_its_root_and_all_below_it() -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "wallaroo.ingress"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        below = run_processes(os.getpid())
        child.communicate()
    assert (below[child.pid].parent, below[child.pid].role) == (os.getpid(), Role.INGRESS)
    assert family(child.pid) == []
