"""Checkpoints to verify and to change; and commands that are killed on their way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.unit.checkpoints.inspection.conftest import application, begin, forget  # noqa: F401  # fixtures


@pytest.fixture
def killed() -> Callable[..., None]:
    """Run ``wallaroo`` with these arguments and see it die at a fault point."""

    def run(fault: str, *arguments: object) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "WALLAROO_FAULT": fault,
        }
        ended = subprocess.run(
            [sys.executable, "-m", "wallaroo", *map(str, arguments)],
            env=environment,
            check=False,
            timeout=400,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == -signal.SIGKILL, (ended.stdout, ended.stderr)

    return run
