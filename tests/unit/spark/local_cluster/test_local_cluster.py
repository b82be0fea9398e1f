"""Spark's own Master and Workers, commanded from a terminal, under a PySpark application that runs
all the while.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from wallaroo.errors import PeerError
from wallaroo.processes import table as processes
from wallaroo.processes.cds_archive import find_archive
from wallaroo.spark.local_cluster import LocalCluster
from wallaroo.spark.local_cluster.hosts import MASTER_HOST, host_of_worker
from wallaroo.spark.local_cluster.leaving import process_tree

pytestmark = [pytest.mark.java, pytest.mark.spark]

APPLICATION = Path(__file__).with_name("probe_application.py")
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SETTINGS = (
    f"spark.driver.extraJavaOptions={QUICK}",
    f"spark.executor.extraJavaOptions={QUICK}",
    "spark.executor.memory=512m",
    "spark.driver.host=127.0.0.1",
    "spark.driver.memory=512m",
    "spark.ui.enabled=false",
    "spark.decommission.enabled=true",
    "spark.shuffle.io.retryWait=1s",
)
# Worker, executor and Python worker start one after the other; on a busy machine each takes its
# time
JOIN_S = 400.0


def command(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run ``wallaroo cluster`` as a process of its own."""
    line = (sys.executable, "-m", "wallaroo", "cluster", *words, "--dir", str(folder))
    return subprocess.run(line, capture_output=True, text=True, timeout=400, check=False)


class Probe:
    """The application: each `workers` is one job of it."""

    def __init__(self, url: str, log: Path):
        self._log = log
        line = (sys.executable, str(APPLICATION), url, *SETTINGS)
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        with open(log, "wb") as errors:
            self._child = subprocess.Popen(
                line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment
            )

    def workers(self) -> set[str]:
        """Run a job; the workers that took its tasks."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(b"\n")
        self._child.stdin.flush()
        answer = self._child.stdout.readline()
        assert answer, self._log.read_text()[-3000:]
        return set(answer.decode().split())

    def run_until(self, expected: set[str]) -> None:
        """Run jobs until these workers take the tasks, and only these."""
        deadline = time.monotonic() + JOIN_S
        while (workers := self.workers()) != expected:
            assert time.monotonic() < deadline, f"not in time: {workers}, not {expected}"

    def end(self) -> int:
        """Let it come to its end, and return its exit code."""
        self._child.communicate(timeout=400)
        return self._child.returncode

    def kill(self) -> None:
        """Have it gone, whatever it does."""
        self._child.kill()
        self._child.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster of one worker, started by a command that has ended."""
    folder = tmp_path_factory.mktemp("cluster")
    started = command("start", "--workers", "1", "--cores", "1", "--memory", "512m", folder=folder)
    try:
        assert started.returncode == 0, started.stderr
        assert f"wallaroo run --master {LocalCluster.attach(folder).url} APP" in started.stdout
        yield LocalCluster.attach(folder)
    finally:
        LocalCluster(folder).stop()


@pytest.fixture(scope="module")
def probe(cluster: LocalCluster) -> Iterator[Probe]:
    """An application on that cluster, which outlives what the tests do to it."""
    probe = Probe(cluster.url, cluster.folder / "probe.log")
    try:
        yield probe
    finally:
        probe.kill()


def test_workers_take_the_tasks_of_an_application_and_the_status_shows_it(
    cluster: LocalCluster, probe: Probe
) -> None:
    assert probe.workers() == {"worker-1"}

    shown = command("status", "--json", folder=cluster.folder)

    status = json.loads(shown.stdout)
    assert (status["state"], status["url"], status["applications"]) == (
        "alive",
        cluster.url,
        ["probe"],
    )
    (worker,) = status["workers"]
    assert (worker["name"], worker["state"], worker["cores"], worker["host"]) == (
        "worker-1",
        "alive",
        1,
        host_of_worker(1),
    )
    assert worker["executors"] == [{"application": "probe", "memory_mb": 512}]
    assert processes.identify(worker["pid"])


def test_daemons_map_the_archive_of_classes(cluster: LocalCluster) -> None:
    """Java does not if anything else is on the class path."""
    archive = find_archive(os.environ)
    if archive is None:
        pytest.skip("there is none: wallaroo doctor --faster-start")
    status = cluster.status()
    for pid in (status.pid, *(worker.pid for worker in status.workers)):
        assert str(archive) in {each.path for each in psutil.Process(pid).memory_maps()}


def test_a_second_start_in_the_same_folder_is_refused_and_changes_nothing(
    cluster: LocalCluster, probe: Probe
) -> None:
    refused = command("start", folder=cluster.folder)
    assert refused.returncode == 1
    assert (
        f"A cluster is running in {cluster.folder}, at {cluster.url}. `wallaroo cluster add-worker"
        in refused.stderr
    )
    assert probe.workers() == {"worker-1"}


def test_a_worker_joins_and_leaves_under_a_running_application(
    cluster: LocalCluster, probe: Probe
) -> None:
    joined = command("add-worker", folder=cluster.folder)
    assert joined.stdout.startswith("worker-2 joined"), joined.stderr
    assert "2 workers with 2 cores" in joined.stdout
    probe.run_until({"worker-1", "worker-2"})

    removal = cluster.remove_worker(timeout_s=JOIN_S)

    assert (removal.name, removal.how) == ("worker-2", "finished")
    assert cluster.workers() == ("worker-1",)
    probe.run_until({"worker-1"})


def test_a_killed_worker_is_gone_with_all_it_started_and_can_be_started_again(
    cluster: LocalCluster, probe: Probe
) -> None:
    name = cluster.add_worker()
    probe.run_until({"worker-1", name})
    worker = cluster._record().workers[-1]
    marks = cluster._daemons.marks_of(name)
    assert len(process_tree(worker, marks)) > 2, "the Worker, its executor, its Python processes"

    cluster.kill_worker(name)

    assert process_tree(worker, marks) == []
    assert [worker.state for worker in cluster.status().workers] == ["alive", "dead"]
    probe.run_until({"worker-1"})
    assert cluster.add_worker(name) == name
    assert [worker.state for worker in cluster.status().workers] == ["alive", "alive"]
    assert cluster.remove_worker(graceful=False).how == "killed"


def test_a_killed_master_is_started_again_and_finds_workers_and_application(
    cluster: LocalCluster, probe: Probe, eventually: Callable[..., None]
) -> None:
    url = cluster.url
    cluster.kill_master()
    status = json.loads(command("status", "--json", folder=cluster.folder).stdout)
    assert (status["state"], status["applications"]) == ("dead", None)
    assert status["workers"][0]["executors"] is None
    assert probe.workers() == {"worker-1"}
    with pytest.raises(PeerError, match=r"The master is dead. `wallaroo cluster restart-master"):
        cluster.add_worker()
    with pytest.raises(
        PeerError,
        match=r"cannot leave in order: the master at .* does not answer. --kill needs none",
    ):
        cluster.remove_worker("worker-1")

    restarted = command("restart-master", folder=cluster.folder)

    assert restarted.returncode == 0, restarted.stderr
    assert cluster.url == url
    eventually(lambda: cluster.status().state == "alive", "the master has recovered")
    assert cluster.status().applications == ("probe",)
    assert probe.workers() == {"worker-1"}


def test_stop_ends_everything_and_leaves_the_logs(
    cluster: LocalCluster, probe: Probe, eventually: Callable[..., None]
) -> None:
    assert probe.end() == 0
    eventually(
        lambda: len(processes.marked(*cluster._daemons.marks)) == 2,
        "the executor of the application has ended",
    )

    stopped = command("stop", folder=cluster.folder)

    assert stopped.stdout.startswith("Ended 2 processes"), stopped.stderr
    assert processes.marked(*cluster._daemons.marks) == []
    assert {path.name for path in (cluster.folder / "logs").iterdir()} >= {
        "master.log",
        "worker-1.log",
    }
    assert not (cluster.folder / "local").exists()
    assert "Nothing was running" in command("stop", folder=cluster.folder).stdout


def test_workers_have_hosts_of_their_own() -> None:
    hosts = {host_of_worker(number) for number in (1, 2, 3)}
    assert MASTER_HOST not in hosts or hosts == {MASTER_HOST}, "macOS knows only one"


LINES = """import wallaroo


def application_setup(args):
    source = wallaroo.FileSourceConfig("lines", "{folder}/in.txt")
    lines = wallaroo.source("Lines", source)
    return wallaroo.build_application(
        "Lines", lines.to_sink(wallaroo.FileSinkConfig("{folder}/out.txt"))
    )
"""


@pytest.mark.long
def test_a_run_that_wants_two_workers_begins_with_the_second(
    tmp_path: Path, eventually: Callable[..., None]
) -> None:
    (tmp_path / "in.txt").write_text("a\nb\n")
    (tmp_path / "lines.py").write_text(LINES.format(folder=tmp_path))
    log = tmp_path / "log"
    summary = tmp_path / "summary.json"
    with (
        LocalCluster.start(tmp_path / "cluster", workers=1, cores=1, memory="1g") as alone,
        open(log, "wb") as errors,
    ):
        line = [sys.executable, "-m", "wallaroo", "run", str(tmp_path / "lines.py"), "--no-live"]
        line += ["--master", alone.url, "--min-workers", "2", "--summary", str(summary)]
        line += ["--checkpoint", str(tmp_path / "checkpoint")]
        line += ["--conf", "spark.executor.memory=512m"]
        run = subprocess.Popen(line, stderr=errors)
        try:
            waits = "waiting for workers: 1 of at least 2 (--min-workers) has joined"
            eventually(lambda: waits in log.read_text() or run.poll(), "the run waits")
            alone.add_worker()
            assert run.wait(JOIN_S) == 0, log.read_text()
        finally:
            run.kill()
            run.wait()
    assert (tmp_path / "out.txt").read_text() == "ab"
    assert [worker["name"] for worker in json.loads(summary.read_text())["workers"]] == [
        "worker-1",
        "worker-2",
    ]
