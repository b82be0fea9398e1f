"""Scripts with a SparkSession of their own, and the mistakes that end their runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from wallaroo.processes.environment import python_environment

pytestmark = [pytest.mark.spark, pytest.mark.java]

RUN_S_MAX = 400
# two runs that wait for input lose their session, one after the other
STOPPING = """
import sys

from pyspark.sql import SparkSession

import wallaroo


@wallaroo.decoder
def text(payload):
    return payload.decode()


def application(folder):
    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, text, framing="lines")
    source = wallaroo.source("in", config)
    sink = wallaroo.FileSinkConfig(f"{folder}/out.txt", form="lines", overwrite=True)
    return wallaroo.build_application("copy", source.to_sink(sink))


if __name__ == "__main__":
    for host in "micro-batch", "resident":
        session = SparkSession.builder.master("local[1]").getOrCreate()
        handle = wallaroo.run(application(sys.argv[1]), session=session, host=host)
        session.stop()
        assert handle.wait(20), handle.status().state
        print(type(handle.exception).__name__, handle.exception)
"""
UNGUARDED = """
import sys

from pyspark.sql import SparkSession

import wallaroo

session = SparkSession.builder.master("local[1]").getOrCreate()


def shout(line):
    return line.upper()


lines = wallaroo.source("lines", wallaroo.FileSourceConfig("lines", __file__))
sink = wallaroo.FileSinkConfig(f"{sys.argv[1]}/out.txt", form="lines")
app = wallaroo.build_application("shout", lines.map(shout).to_sink(sink))
try:
    wallaroo.run(app, session=session).result()
except wallaroo.WallarooError as error:
    print(type(error).__name__, error)
"""

# a program that wants no warnings from Spark; the first worker with an event is killed
KILLING = """
import logging
import os
import signal
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import wallaroo


def kill_once(line):
    mark = Path(os.environ["MARK"])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return line


def application(folder):
    lines = wallaroo.source("lines", wallaroo.FileSourceConfig("lines", __file__))
    sink = wallaroo.FileSinkConfig(f"{folder}/out.txt", form="lines", overwrite=True)
    return wallaroo.build_application("killing", lines.map(kill_once).to_sink(sink))


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    os.environ["MARK"] = f"{sys.argv[1]}/mark"
    session = SparkSession.builder.master("local[1]").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    levels = session._jvm.org.apache.logging.log4j.LogManager
    for host in "micro-batch", "resident":
        Path(os.environ["MARK"]).unlink(missing_ok=True)
        handle = wallaroo.run(application(sys.argv[1]), session=session, host=host)
        handle.result()
        print(host, handle.status().workers_killed)
        print(levels.getLogger("org.apache.spark.scheduler.TaskSetManager").getLevel().name())
"""


def ran(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(code)
    return subprocess.run(
        [sys.executable, str(script), str(folder)],
        capture_output=True,
        text=True,
        env=python_environment(PYSPARK_PYTHON=sys.executable),
        timeout=RUN_S_MAX,
    )


def test_runs_whose_session_is_stopped_end_with_that_reason(tmp_path: Path) -> None:
    stopped = ran(tmp_path, STOPPING)
    assert stopped.returncode == 0, stopped.stderr
    lines = stopped.stdout.splitlines()
    words = "PeerError the SparkSession that this run uses was stopped by this program."
    assert [line.startswith(words) for line in lines] == [True, True], lines


def test_a_session_that_workers_would_open_is_named_with_its_line(tmp_path: Path) -> None:
    unguarded = ran(tmp_path, UNGUARDED)
    assert unguarded.returncode == 0, unguarded.stderr
    line = UNGUARDED.splitlines().index(
        'session = SparkSession.builder.master("local[1]").getOrCreate()'
    )
    assert f"script.py:{line + 1}: a SparkSession was opened while" in unguarded.stdout
    assert "Put the call under: if __name__ == '__main__':" in unguarded.stdout


def test_workers_that_end_in_a_given_session_are_reported_and_its_log_stays_as_it_is(
    tmp_path: Path,
) -> None:
    killing = ran(tmp_path, KILLING)
    assert killing.returncode == 0, killing.stderr
    lines = killing.stdout.splitlines()
    deaths = [
        line for line in lines if line.endswith("was killed, or has ended; its tasks run again")
    ]
    assert len(deaths) == 2, lines
    assert [line for line in lines if line.startswith(("micro-batch", "resident"))] == [
        "micro-batch 1",
        "resident 1",
    ]
    assert lines.count("ERROR") == 2
    assert (tmp_path / "out.txt").read_text() == KILLING
    assert "WARN TaskSetManager" not in killing.stderr
