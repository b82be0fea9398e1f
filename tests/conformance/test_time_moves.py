"""Time moves although no event comes, on every host, and costs no batches while nothing is due."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.conformance.apps import waiting
from tests.conformance.runners import REPOSITORY
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

BUILDS = (waiting.clock, waiting.receipt, waiting.idle)


def in_process(application: Any) -> Any:
    run = Run(application, RunOptions(status_address=None), InProcessHost(2))
    run.start()
    return run


@pytest.fixture(
    params=["in process", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.java])]
)
def start(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Every host there is."""
    if request.param == "in process":
        return in_process
    session = request.getfixturevalue("spark_session")
    return lambda application: wallaroo.run(
        application, session=session, module_paths=(REPOSITORY,)
    )


def until(condition: Callable[[], Any], run: Any) -> None:
    deadline = time.monotonic() + 400
    while not condition():
        assert run.exception is None, run.exception
        assert time.monotonic() < deadline, f"not in time: {run.status()}"
        time.sleep(0.02)


def is_quiet(run: Any) -> bool:
    """Whether no batch ends for half a second."""
    batches = run.status().batches
    time.sleep(0.5)
    return bool(run.status().batches == batches)


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_what_is_due_comes_without_input(build: Any, start: Any, tmp_path: Path) -> None:
    run = start(build(tmp_path, tmp_path))
    try:
        with socket.create_connection(run.addresses["in"]) as connection:
            connection.sendall(struct.pack(">I", 1) + b"a" + struct.pack(">I", 1) + b"a")
            name = "soon" if build is waiting.clock else "later"
            out = tmp_path / "out.txt"
            until(lambda: out.exists() and out.read_text() == f"a {name} 2\n", run)
            until(lambda: is_quiet(run), run)  # nothing is due: no more batches come
    finally:
        run.stop()
        assert run.wait(400)
