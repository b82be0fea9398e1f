"""What a run does before Spark has started, with a Spark that does not start by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyspark
import pytest

import wallaroo
from wallaroo import runner
from wallaroo.errors import PeerError
from wallaroo.processes import console
from wallaroo.processes.killed_workers import killed
from wallaroo.spark.jvm import jvm_process, stderr
from wallaroo.spark.session import host_session

Eventually = Callable[..., Any]
END_S_MAX = 400.0


def application(folder: Path, out: Path) -> wallaroo.Application:
    (folder / "in.txt").write_text("a\n")
    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", str(folder / "in.txt")))
    return wallaroo.build_application("App", lines.to_sink(wallaroo.FileSinkConfig(out)))


class StartsWhenAsked:
    """In place of Spark's start: waits, then fails."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()

    def __call__(self, *arguments: object) -> Any:
        self.has_begun.set()
        assert self.may_go_on.wait(END_S_MAX)
        raise PeerError("Spark was started.")


@pytest.fixture(autouse=True)
def _no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm_process, "begin_jvm", lambda name, options: None)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> StartsWhenAsked:
    starting = StartsWhenAsked()
    monkeypatch.setattr(host_session, "open_context", starting)
    return starting


def test_old_output_at_a_sinks_path_is_refused_before_spark_starts(
    tmp_path: Path, spark: StartsWhenAsked
) -> None:
    (tmp_path / "out.txt").write_text("of another run\n")
    with pytest.raises(PeerError, match=r"out\.txt"):
        wallaroo.run(application(tmp_path, tmp_path / "out.txt"))
    assert not spark.has_begun.is_set()


def test_launch_returns_at_once_and_the_status_says_what_the_start_does(
    tmp_path: Path, spark: StartsWhenAsked
) -> None:
    handle = runner.launch(application(tmp_path, tmp_path / "out"), wallaroo.RunOptions())
    assert spark.has_begun.wait(END_S_MAX)
    status = handle.status()
    assert (status.state, status.doing) == ("starting", "starting Spark")
    assert repr(handle) == "<Run 'App': starting (starting Spark), 0 batches, 0 events done>"
    spark.may_go_on.set()
    with pytest.raises(PeerError, match="Spark was started"):
        handle.result(END_S_MAX)


def test_a_run_that_is_stopped_while_it_starts_ends_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun = threading.Event()
    may_go_on = threading.Event()

    def started(*arguments: object) -> object:
        has_begun.set()
        assert may_go_on.wait(END_S_MAX)
        return Mock()

    monkeypatch.setattr(host_session, "open_context", started)
    monkeypatch.setattr(host_session, "close", lambda spark: None)
    handle = runner.launch(application(tmp_path, tmp_path / "out"), wallaroo.RunOptions())
    assert has_begun.wait(END_S_MAX)
    handle.stop()
    may_go_on.set()
    assert handle.result(END_S_MAX).state == "stopped"


def test_lines_of_the_jvm_go_where_a_view_puts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    console.take_over(lines.append)
    try:
        stderr._is_closing.clear()
        stderr._pass_on(b"spark ERROR Something: \xff\n")
    finally:
        console.give_back()
    assert lines == ["spark ERROR Something: \\xff\n"]


TRACEBACK = (
    b"Traceback (most recent call last):\n",
    b'  File "/x/pyspark/daemon.py", line 233, in manager\n',
    b"    code = worker(sock, authenticated)\n",
    b"BrokenPipeError: [Errno 32] Broken pipe\n",
)
CHAINED = (
    *TRACEBACK,
    b"\n",
    b"During handling of the above exception, another exception occurred:\n",
    b"\n",
    *TRACEBACK,
)
NOT_REACHED = (
    TRACEBACK[0],
    b'  File "/x/pyspark.zip/pyspark/util.py", line 822, in local_connect_and_auth\n',
)
OF_A_LIBRARY = tuple(line.replace(b"pyspark/daemon", b"a/library") for line in TRACEBACK)


@pytest.mark.parametrize(
    "lines",
    [
        TRACEBACK,
        CHAINED,
        (TRACEBACK[0], *TRACEBACK, *TRACEBACK[1:]),  # of two workers at once
        (TRACEBACK[0], TRACEBACK[0], *TRACEBACK[1:3], *TRACEBACK[1:3], *TRACEBACK[3:] * 2),
        (*TRACEBACK[:2],),  # cut off
        (*NOT_REACHED, TRACEBACK[-1]),
    ],
    ids=["one", "chained", "one in another", "mixed", "cut off", "the JVM is gone"],
)
def test_tracebacks_of_workers_that_spark_has_given_up_are_left_out(
    lines: tuple[bytes, ...],
) -> None:
    after = (b"spark ERROR Something\n",)
    assert list(stderr.without_noise((*after, *lines))) == [*after]
    if lines[-1] == TRACEBACK[-1]:
        assert list(stderr.without_noise((*lines, *after))) == [*after]


def test_the_end_of_a_spark_job_is_left_out() -> None:
    """The driver reports it, with its cause; the probes of a host that is excluded say nothing."""
    ended = b"spark ERROR TaskSetManager: Task 0 in stage 16.0 failed 4 times; aborting job\n"
    other = b"spark ERROR TaskSetManagers: others\n"
    assert list(stderr.without_noise((ended, other))) == [other]


def test_other_tracebacks_are_passed_on_in_one_piece() -> None:
    assert list(stderr.without_noise((*OF_A_LIBRARY, b"\n", b"more\n"))) == [
        b"".join(OF_A_LIBRARY),
        b"\n",
        b"more\n",
    ]


CRASHED = b"org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider"
LOST = b"wallaroo tasks: Lost task 1.0 in stage 1.0 (TID 2) "


@pytest.mark.parametrize(
    ("line", "host"),
    [
        (LOST + b"(10.0.0.7 executor 0): " + CRASHED, "10.0.0.7"),
        (
            LOST + b"on 10.0.0.7, executor 0: java.io.IOException (" + CRASHED + b") [duplicate 1]",
            "10.0.0.7",
        ),
        (LOST + b"(10.0.0.7 executor 0): java.net.SocketException: Connection reset", "10.0.0.7"),
        (LOST + b"(10.0.0.7 executor 0): java.io.IOException: Broken pipe", "10.0.0.7"),
        (LOST + b"(10.0.0.7 executor 0): java.io.IOException: No space left on device", ""),
        (LOST + b"(10.0.0.7 executor 0): FetchFailed(BlockManagerId(1, h, 1), java.io...)", ""),
        (LOST + b"(10.0.0.7 executor 0): TaskKilled (Stage cancelled)", ""),
        (b"wallaroo tasks: Task 1 in stage 1.0 failed 4 times; aborting job", ""),
    ],
)
def test_a_worker_of_a_cluster_that_has_ended_is_read_of_in_the_schedulers_log(
    line: bytes, host: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    before = killed()
    reading, writing = os.pipe()
    os.write(writing, line + b"\n")
    os.close(writing)
    stderr._forward(reading)
    assert capfd.readouterr().err == ""
    words = [f"a worker process on {host} was killed, or has ended; its tasks run again"]
    assert [record.getMessage() for record in caplog.records] == (words if host else [])
    assert killed() - before == bool(host)


@pytest.mark.parametrize(("raised", "is_said"), [("EOFError", False), ("ValueError", True)])
def test_a_worker_ends_without_a_word_where_spark_has_hung_up(raised: str, is_said: bool) -> None:
    code = (
        "from wallaroo.spark.session.worker_daemon import LastWords\n"
        f"try:\n    raise {raised}\nexcept {raised}:\n    LastWords.print_exc()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=END_S_MAX
    )
    assert (raised in ended.stderr) is is_said


def test_the_workers_daemon_imports_pyspark_from_its_folder_not_from_the_archive() -> None:
    package = Path(pyspark.__file__).parent
    zipped = package / "python" / "lib" / "pyspark.zip"
    assert zipped.exists()
    code = (
        "from wallaroo.spark.session import worker_daemon\n"
        "worker_daemon.leave_zipped_pyspark()\n"
        "import pyspark\nprint(pyspark.__file__)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(zipped), *sys.path])}
    ended = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    assert ended.stdout.strip() == pyspark.__file__


def test_a_resident_run_opens_no_session_of_spark_sql_and_one_can_be_opened_after_it(
    tmp_path: Path,
) -> None:
    code = (
        "import sys, wallaroo\n"
        "from pathlib import Path\n"
        "from pyspark.sql import SparkSession\n"
        "from tests.unit.spark.test_start import application\n"
        "folder = Path(sys.argv[1])\n"
        "sessions = []\n"
        "with wallaroo.run(application(folder, folder / 'out.txt')) as run:\n"
        "    sessions.append(SparkSession.getActiveSession())\n"
        "    run.result()\n"
        "spark = SparkSession.builder.master('local[1]').getOrCreate()\n"
        "print(sessions, spark.range(3).count(), (folder / 'out.txt').read_text())\n"
        "spark.stop()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True, check=True
    )
    assert ended.stdout.split() == ["[None]", "3", "a"]
