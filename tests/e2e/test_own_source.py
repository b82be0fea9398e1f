"""A replayable source of a user's own on Spark: read by workers, exactly once, through kills."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.unit.sources.own import Numbers, copying
from wallaroo.options import RunOptions
from wallaroo.spark.micro_batch.host import new_run

pytestmark = [pytest.mark.spark, pytest.mark.java]

EVENTS, MORE = 20_000, 500
DAEMON = "wallaroo.spark.session.worker_daemon"


def test_workers_are_killed_and_every_number_comes_once(
    tmp_path: Path, spark_session: Any, eventually: Callable[..., None]
) -> None:
    tables = tmp_path / "tables"
    tables.mkdir()
    for name in "ab":
        (tables / name).write_text(str(EVENTS))
    options = RunOptions(status_address=None, module_paths=(os.getcwd(),))
    source = Numbers("numbers", tables, is_bounded=False)
    run = new_run(copying(source, tmp_path / "out.txt"), options, spark_session)
    run.start()
    try:
        eventually(lambda: run.status().outputs > 0, "the first events are out")
        for pid in workers():
            os.kill(pid, signal.SIGKILL)
        (tables / "a").write_text(str(EVENTS + MORE))
        everything = 2 * EVENTS + MORE
        eventually(lambda: run.status().outputs == everything, "all events are out")
        assert run.exception is None
    finally:
        run.stop()
        assert run.wait(400)
    lines = (tmp_path / "out.txt").read_text().split()
    assert sorted(lines) == sorted(
        [f"a{n}" for n in range(EVENTS + MORE)] + [f"b{n}" for n in range(EVENTS)]
    )


def workers() -> list[int]:
    """Spark's Python workers below this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            parent = process.parent()
            if all(part is not None and DAEMON in part.cmdline() for part in (process, parent)):
                found.append(process.pid)
    return found
