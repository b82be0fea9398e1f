"""What a cluster's folder remembers, and what commands do where it remembers wrongly."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from wallaroo.errors import PeerError
from wallaroo.processes import table as processes
from wallaroo.processes.table import Process
from wallaroo.spark.local_cluster import LocalCluster, daemons, state
from wallaroo.spark.local_cluster import cluster as local
from wallaroo.spark.local_cluster import master_api as standing
from wallaroo.spark.local_cluster.daemons import Daemons, PortTakenError
from wallaroo.spark.local_cluster.state import ClusterRecord, WorkerRecord

Spawn = Callable[..., subprocess.Popen[bytes]]
FakeSpark = Callable[[str], None]
RECORD = ClusterRecord(
    cores=2,
    memory="1g",
    port=7077,
    ui_port=8080,
    master=Process(17, "boot 18", 1),
    workers=(WorkerRecord(1, "127.0.0.2", 1, "512m", Process(19, "boot 20", 1)),),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cluster"


# -- the record
# --------------------------------------------------------------------------------------------------


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    state.write(tmp_path, RECORD)
    assert state.read(tmp_path) == RECORD


def test_a_name_is_not_used_twice() -> None:
    record = RECORD.with_worker(replace(RECORD.workers[0], number=3)).without_worker("worker-3")
    assert [worker.name for worker in record.workers] == ["worker-1"]
    assert record.next_number == 4


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"format": 2}', '{"format": 1, "master": {"pid": 1}, "workers": []}'],
)
def test_a_damaged_record_names_the_fix(tmp_path: Path, text: str) -> None:
    (tmp_path / state.RECORD).write_text(text)
    with pytest.raises(
        PeerError,
        match=r"cluster.json cannot be read .* `wallaroo cluster stop --dir .*` ends what runs",
    ):
        LocalCluster.attach(tmp_path)


def test_a_folder_with_other_files_is_not_made_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with pytest.raises(PeerError, match="holds files and no cluster"):
        LocalCluster.start(tmp_path)
    assert LocalCluster(tmp_path).stop() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


def test_without_a_cluster_commands_say_how_to_start_one(folder: Path) -> None:
    with pytest.raises(
        PeerError, match=r"There is no cluster in .* `wallaroo cluster start --dir .*` starts one"
    ):
        LocalCluster.attach(folder)


def test_the_default_folder_is_the_users_own_and_needs_no_option(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state.default_folder() == tmp_path / "wallaroo" / "cluster"
    assert state.command("stop", state.default_folder().resolve()) == "`wallaroo cluster stop`"
    assert state.command("stop", Path("/a b")) == "`wallaroo cluster stop --dir '/a b'`"


def test_two_commands_do_not_change_a_cluster_at_once(tmp_path: Path) -> None:
    with state.locked(tmp_path):
        with pytest.raises(PeerError, match="Another command has been changing the cluster"):
            with state.locked(tmp_path, wait_s=0.1):
                pytest.fail("both hold it")


# -- after the machine was started again, or the folder was damaged
# -----------------------------------------------------------------


def stale(folder: Path, child: subprocess.Popen[bytes]) -> None:
    """A record of processes that have ended, the pid of which is now another process's."""
    folder.mkdir()
    process = Process(child.pid, "another boot", 1)
    state.write(
        folder,
        replace(RECORD, master=process, workers=(replace(RECORD.workers[0], process=process),)),
    )


def test_a_stale_record_is_distinguished_from_a_running_cluster(folder: Path, spawn: Spawn) -> None:
    child = spawn()
    stale(folder, child)
    cluster = LocalCluster.attach(folder)
    for command in (cluster.status, cluster.add_worker):
        with pytest.raises(PeerError, match="is not running: it ended without"):
            command()
    assert cluster.stop() == 0
    assert child.poll() is None


def test_a_worker_of_a_stale_record_is_forgotten_without_a_signal(
    folder: Path, spawn: Spawn
) -> None:
    child = spawn()
    stale(folder, child)
    cluster = LocalCluster.attach(folder)
    assert cluster.remove_worker().how == "dead"
    assert cluster.workers() == ()
    assert child.poll() is None


def test_a_killed_worker_is_forgotten_and_the_message_about_it_says_how_to_start_another(
    folder: Path,
) -> None:
    state.prepare(folder)
    state.write(folder, RECORD.with_worker(replace(RECORD.workers[0], number=2)))
    cluster = LocalCluster.attach(folder)
    cluster.remove_worker("worker-1", graceful=False)
    with pytest.raises(
        PeerError,
        match=r"worker-2; one that was removed does not come back\. `wallaroo cluster add-worker",
    ):
        cluster.remove_worker("worker-1")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="marks are read from /proc")
@pytest.mark.parametrize("damage", ["no record", "half a record", "no folder"])
def test_stop_ends_what_runs_also_without_its_record(
    folder: Path, fake_spark: FakeSpark, damage: str
) -> None:
    fake_spark("exec sleep 60")
    folder.mkdir()
    with Daemons(folder).start_master("127.0.0.1", 1, 2) as child:
        process = processes.identify(child.pid)
        assert process is not None
        if damage == "half a record":
            (folder / state.RECORD).write_text("{")
        if damage == "no folder":
            shutil.rmtree(folder)

        assert LocalCluster(folder).stop() == 1

        assert not processes.is_running(process)


@pytest.mark.parametrize("place", ["a file", "a file/cluster"])
def test_a_folder_that_cannot_be_had_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(PeerError, match=r"a file.*--dir DIR"):
        LocalCluster.start(tmp_path / place)


# -- daemons that do not come up
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (
            "echo 'JAVA_HOME is not set' >&2; exit 1",
            r"master did not start: there is no Java .* `wallaroo doctor`",
        ),
        (
            "echo 'a b ERROR Master: the disk is full.'; exit 1",
            r"ended while it started \(the disk is full\)\. Its log is .*/logs/",
        ),
        ("exit 1", r"ended while it started\. Its log is"),
        ("exec sleep 60", r"master did not answer within 0 s\. The logs are in"),
    ],
)
def test_a_master_that_does_not_come_up_is_one_sentence_and_leaves_nothing(
    folder: Path, fake_spark: FakeSpark, script: str, text: str
) -> None:
    fake_spark(script)
    with pytest.raises(PeerError, match=text) as caught:
        LocalCluster.start(folder, start_s=0.4 if "sleep" in script else 60.0)
    assert "\n" not in str(caught.value)
    assert LocalCluster(folder).stop() == 0
    with pytest.raises(PeerError, match="There is no cluster"):
        LocalCluster.attach(folder)


def test_a_port_that_is_taken_is_named(folder: Path) -> None:
    with standing_server(b"") as port:
        with pytest.raises(
            PortTakenError, match=rf"Another program listens on 127.0.0.1:{port}.*--port"
        ):
            LocalCluster.start(folder, port=port)


def test_a_free_port_that_another_takes_first_is_not_the_end(
    folder: Path, fake_spark: FakeSpark
) -> None:
    fake_spark(
        'echo x >> "$WALLAROO_CLUSTER/tries"; echo "java.net.BindException: bind(..) failed"; '
        "exit 1"
    )
    with pytest.raises(PortTakenError):
        LocalCluster.start(folder)
    assert (folder / "tries").read_text() == "x\n" * local.PORT_TRIES


def test_without_spark_the_fix_is_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PeerError, match="pip install 'pyspark=="):
        daemons.find_spark()


def test_a_daemon_gets_nothing_from_the_shell_that_steers_spark_or_python(
    folder: Path, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "SPARK_WORKER_DIR",
        "SPARK_LOCAL_DIRS",
        "PYSPARK_PYTHON",
        "PYTHONPATH",
        "WALLAROO_WORKER",
    ):
        monkeypatch.setenv(name, "of the shell")
    fake_spark("env")
    folder.mkdir()
    started = Daemons(folder)
    assert (
        started.start_worker("worker-7", "127.0.0.8", 1, "1g", "spark://127.0.0.1:1").wait(400) == 0
    )
    said = started.log("worker-7").read_text().splitlines()
    assert not any("of the shell" in line for line in said)
    assert {
        "WALLAROO_WORKER=worker-7",
        "SPARK_LOCAL_IP=127.0.0.8",
        f"SPARK_LOCAL_DIRS={folder}/local/worker-7",
    } <= set(said)
    assert f"PATH={os.environ['PATH']}" in said


# -- what Spark says
# --------------------------------------------------------------------------------------------------


class standing_server:
    """A page that answers always the same."""

    def __init__(self, body: bytes):
        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Page)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> int:
        self._thread.start()
        return self._server.server_port

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.mark.parametrize("body", [b"", b"<html>starting</html>", b"[]", b"\xff"])
def test_a_page_that_is_not_the_masters_yet_is_no_answer(body: bytes) -> None:
    with standing_server(body) as port:
        assert standing.ask_master(port) is None


def test_of_two_workers_with_one_name_the_living_one_counts() -> None:
    dead, alive = (
        standing.Registered("worker-1", word, f"http://{word}") for word in ("DEAD", "ALIVE")
    )
    for workers in ((dead, alive), (alive, dead)):
        assert standing.MasterView("ALIVE", workers, ()).worker("worker-1") == alive
    assert standing.MasterView("ALIVE", (dead,), ()).worker("worker-2") is None
