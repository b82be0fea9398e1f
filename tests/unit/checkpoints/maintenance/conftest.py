"""Checkpoints to verify and to change; and commands that are killed on their way."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.forks import Forks
from tests.unit.checkpoints.inspection.conftest import application, begin, forget  # noqa: F401  # fixtures


@pytest.fixture
def killed(child_of: Callable[[str], Forks]) -> Callable[..., None]:
    """Run ``wallaroo`` with these arguments and see it die at a fault point."""
    command = child_of("tests.unit.checkpoints.maintenance.command")

    def run(fault: str, *arguments: object) -> None:
        code, printed = command.run(*arguments, WALLAROO_FAULT=fault)
        assert code == -signal.SIGKILL, printed

    return run
