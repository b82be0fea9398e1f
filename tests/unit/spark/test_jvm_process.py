"""A JVM that begins to start before PySpark is imported, with a program in its place."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark import SparkContext

from wallaroo.durable.scratch import sweep_dead
from wallaroo.errors import PeerError
from wallaroo.options import HostKind, RunOptions
from wallaroo.spark.jvm import jvm_process, settings
from wallaroo.spark.jvm.jvm import Jvm
from wallaroo.spark.jvm.jvm_process import CONNECTION, JvmProcess, begin_jvm
from wallaroo.spark.session.host_session import open_context

Eventually = Callable[..., Any]
# says what it was given, then lives as long as its stdin is open
PROGRAM = f"""\
#!/bin/sh
printf '%s\\n' "$@" > "${CONNECTION}.words"
mv "${CONNECTION}.words" "${CONNECTION}"
read end
"""

DRIVER = """
import signal
from wallaroo.options import HostKind, RunOptions
from wallaroo.spark.jvm.jvm_process import begin_jvm

print(begin_jvm("App", RunOptions(master="local[2]")).process.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "spark" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setattr(jvm_process, "_has_jvm", lambda: False)
    for name in ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # restored at the end
    return tmp_path


@pytest.fixture
def begun(home: Path) -> Iterator[JvmProcess]:
    process = begin_jvm("App", RunOptions(master="local[2]", spark_conf=(("a.b", "c"),)))
    assert process is not None
    yield process
    process.discard()


def test_it_gets_the_settings_and_says_where_it_listens_in_the_runs_folder(
    begun: JvmProcess, eventually: Eventually
) -> None:
    eventually(begun.connection.exists, "it has started")
    words = begun.connection.read_text().splitlines()
    assert words[-1] == "pyspark-shell"
    assert {"spark.master=local[2,4]", "spark.app.name=App", "a.b=c"} <= set(words)
    assert begun.connection.parent == begun.scratch.path
    assert Jvm(begun).settings == begun.settings


def test_no_secret_is_on_the_command_line_and_the_jvm_gets_all_of_them(
    home: Path, eventually: Eventually
) -> None:
    secrets = (
        ("spark.authenticate.secret", "hidden"),
        ("spark.hadoop.fs.s3a.secret.key", "hidden"),
    )
    begun = begin_jvm("App", RunOptions(master="local[2]", spark_conf=secrets))
    assert begun is not None
    eventually(begun.connection.exists, "it has started")
    assert "hidden" not in begun.connection.read_text()
    assert set(secrets) <= set(begun.settings.items())
    begun.discard()


def test_its_folder_is_not_swept_as_long_as_it_lives(
    begun: JvmProcess, eventually: Eventually
) -> None:
    """Its driver may be dead: what it is about to write there has to have a place."""
    eventually(begun.connection.exists, "it has started")
    os.close(begun.scratch.lock)
    assert begun.scratch.path not in sweep_dead()
    begun.process.kill()
    begun.process.wait()
    assert begun.scratch.path in sweep_dead()
    assert not begun.scratch.path.exists()
    os.dup2(os.open(os.devnull, os.O_RDONLY), begun.scratch.lock)


def test_no_signal_to_this_process_group_reaches_it(
    begun: JvmProcess, eventually: Eventually
) -> None:
    eventually(begun.connection.exists, "it has started")
    assert os.getpgid(begun.process.pid) == begun.process.pid
    begun.process.send_signal(signal.SIGTERM)
    assert begun.process.stdin is not None
    begun.process.stdin.close()
    assert begun.process.wait(400) >= 0  # by its own end


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing ends it so early")
def test_one_that_does_not_watch_its_stdin_yet_ends_with_a_driver_that_is_killed(
    home: Path, eventually: Eventually
) -> None:
    """As a JVM does not in the first second of its start."""
    (home / "spark" / "bin" / "spark-submit").write_text("#!/bin/sh\nexec sleep 600\n")
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(home)},
    )
    assert driver.stdout is not None
    jvm = psutil.Process(int(driver.stdout.readline()))
    driver.kill()
    driver.communicate()
    try:
        eventually(lambda: has_ended(jvm), "the JVM has ended")
    finally:
        with contextlib.suppress(psutil.Error):
            jvm.kill()


def has_ended(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def test_pyspark_finds_it_where_it_looks_for_its_own(
    begun: JvmProcess, tmp_path: Path, eventually: Eventually
) -> None:
    looked_at = tmp_path / "connection"
    process = Jvm(begun)._start([], env={CONNECTION: str(looked_at)})
    assert process is begun.process
    eventually(looked_at.is_file, "it has started")


def test_one_that_is_killed_while_it_starts_is_no_missing_java(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "spark" / "bin" / "spark-submit").write_text("#!/bin/sh\nkill -9 $$\n")
    monkeypatch.setattr(SparkContext, "_gateway", None)
    begun = begin_jvm("App", RunOptions(master="local[2]"))
    assert begun is not None
    with pytest.raises(PeerError, match=r"was killed \(signal 9\) while it started.*memory"):
        open_context("App", "local[2]", begun.scratch.path, "warning", (), Jvm(begun))
    begun.discard()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            "Invalid maximum heap size: -Xmx12q\nError: Could not create the Java Virtual Machine.",
            "Invalid maximum heap size: -Xmx12q",
        ),
        (
            "Error occurred during initialization of VM\nMultiple garbage collectors selected",
            "Multiple garbage collectors selected",
        ),
        (
            "\nError: Not allowed to specify max heap. Use spark.driver.memory instead.\n"
            "Usage: spark-submit [options] <app jar>\nOptions:\n  --master MASTER_URL",
            "Not allowed to specify max heap. Use spark.driver.memory instead",
        ),
        (
            'WARNING: of no use\nException in thread "main" java.lang.Error: no such class\n\tat x',
            "java.lang.Error: no such class",
        ),
        (
            "/spark/bin/spark-class: line 97: CMD: bad array subscript",
            "the process that computes its command was killed, by a user or by the system for lack "
            "of memory",
        ),
    ],
)
@pytest.mark.parametrize("is_early", [False, True], ids=["as it may", "before PySpark"])
def test_the_reason_that_java_gives_comes_first(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    words: str,
    reason: str,
    is_early: bool,
) -> None:
    (home / "words").write_text(f"{words}\n")
    program = home / "spark" / "bin" / "spark-submit"
    program.write_text(f"#!/bin/sh\ncat {home / 'words'} >&2\nexit 1\n")
    monkeypatch.setattr(SparkContext, "_gateway", None)
    others = set(threading.enumerate())
    begun = begin_jvm("App", RunOptions(master="local[2]"))
    assert begun is not None
    if is_early:  # it ends, and its words are read, while PySpark is imported
        for thread in set(threading.enumerate()) - others:
            thread.join()
    with pytest.raises(PeerError) as raised:
        open_context("App", "local[2]", begun.scratch.path, "warning", (), Jvm(begun))
    begun.discard()
    assert str(raised.value).startswith(f"Spark's JVM did not start: {reason}. Correct the")
    assert "MASTER_URL" not in capfd.readouterr().err


def test_users_may_choose_another_collector(tmp_path: Path) -> None:
    """Java does not start with two of them."""
    option = "spark.driver.extraJavaOptions"
    given = ((option, "-XX:+UseG1GC -Xss2m"),)
    chosen = settings.settings_of("App", "local[2]", tmp_path, "warning", given)[option]
    assert chosen.endswith(" -XX:+UseG1GC -Xss2m")
    assert chosen.count("GC") == 1
    ours = settings.settings_of("App", "local[2]", tmp_path, "warning", ())[option]
    assert "-XX:+UseParallelGC" in ours


@pytest.mark.parametrize(
    ("changes", "memory"),
    [
        ({}, "128m"),
        ({"latency": 5}, "128m"),
        ({"host": HostKind.MICRO_BATCH}, "1g"),  # its data pass the JVM
        ({"master": "spark://host:7077", "latency": 50}, "1g"),  # many tasks
        ({"spark_conf": (("spark.driver.memory", "2g"),)}, "2g"),
    ],
)
def test_the_jvm_of_resident_tasks_on_one_machine_is_small(
    changes: dict[str, Any], memory: str, tmp_path: Path
) -> None:
    options = RunOptions(**{"master": "local[2]", **changes})
    options = options.on(is_shared=False)
    chosen = settings.settings_of(
        "App", options.master, tmp_path, "warning", settings.conf_of(options)
    )
    assert chosen["spark.driver.memory"] == memory
    assert f"-Xms{memory}" in chosen["spark.driver.extraJavaOptions"]


def test_its_heartbeats_are_more_frequent_than_a_timeout_that_the_user_sets() -> None:
    options = RunOptions(master="local[2]", spark_conf=(("spark.network.timeout", "20s"),))
    chosen = dict(settings.conf_of(options.on(is_shared=False)))
    assert "spark.executor.heartbeatInterval" not in chosen  # Spark's own: 10 s


def test_one_that_is_not_needed_is_ended_and_leaves_nothing(home: Path) -> None:
    process = begin_jvm("App", RunOptions())
    assert process is not None
    process.discard()
    assert process.process.poll() is not None
    assert not process.scratch.path.exists()


def test_where_pyspark_has_its_spark_elsewhere_it_starts_its_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "spark" / "bin" / "spark-submit").unlink()
    assert begin_jvm("App", RunOptions()) is None


def test_a_second_run_of_a_process_uses_the_jvm_that_is_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm_process, "_has_jvm", lambda: True)
    assert begin_jvm("App", RunOptions()) is None


@pytest.mark.parametrize(
    ("modes", "is_huge"), [("always [madvise] never", True), ("always madvise [never]", False)]
)
def test_the_heap_is_in_huge_pages_where_there_are_any(
    modes: str, is_huge: bool, tmp_path: Path
) -> None:
    (tmp_path / "enabled").write_text(modes)
    heap = settings.heap_options("1g", tmp_path / "enabled")
    assert ("-XX:+UseTransparentHugePages" in heap) is is_huge
    assert "-XX:+UseTransparentHugePages" not in settings.heap_options("1g", tmp_path / "absent")
