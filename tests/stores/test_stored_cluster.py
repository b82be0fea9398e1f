"""A cluster whose hosts share no folder, with its checkpoint in an object store.

Workers have mounts of their own: where the driver keeps its cache and its output they see an empty
folder.  Worker, then driver are killed; another driver continues with an empty disk.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.connectors.files.s3.server import KEY, SECRET
from tests.stores.conftest import Place
from tests.verification.namespaces import hiding
from wallaroo.spark.local_cluster import LocalCluster
from wallaroo.spark.local_cluster.hosts import Loopback, free_ports

Eventually = Callable[..., None]
pytestmark = pytest.mark.s3
KEYS = 40
FILE_EVENTS = 2 * KEYS  # in one file of input
AHEAD_MAX = 400  # events that are there and not yet processed
LINES = 300  # of output, between two faults
PAD = 6000  # characters, in a line
RUN_S_MAX = 500
HOST = "127.0.0.1"
HOSTS = {"resident": ("--replicas", "1"), "micro-batch": ()}

# states and outputs are so large that a batch's travel as files, not within its commit
APPLICATION = """
import os
import random

import wallaroo
from wallaroo.sources import FilesSourceConfig


class Count:
    def __init__(self):
        self.count = 0
        self.pad = b""


@wallaroo.key_extractor
def key(line):
    return f"key{int(line) % KEYS}"


@wallaroo.state_computation(state=Count)
def count(line, state):
    if os.path.exists("MARKER"):
        raise RuntimeError("this worker sees the driver's folder")
    state.count += 1
    state.pad = random.Random(state.count).randbytes(PAD)
    return f"key{int(line) % KEYS} {state.count} "


@wallaroo.encoder
def encode(text):
    return text + "x" * PAD + "\\n"


def application_setup(args):
    config = FilesSourceConfig("Lines", "INPUT", watch=True, options=OPTIONS)
    lines = wallaroo.source("Lines", config)
    sink = wallaroo.FileSinkConfig("OUTPUT", encode, name="file")
    return wallaroo.build_application("Stored", lines.key_by(key).to(count).to_sink(sink))
"""


class OwnMounts(Loopback):
    """Hosts that see an empty folder instead of the driver's."""

    def __init__(self, hidden: Path):
        self._hidden = hidden

    def command_of_worker(self, number: int, command: tuple[str, ...]) -> tuple[str, ...]:
        return hiding(self._hidden, command)


def _has_own_mounts() -> bool:
    try:
        probe = subprocess.run(hiding(Path("/mnt"), ("true",)), capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return probe.returncode == 0


needs_mounts = pytest.mark.skipif(not _has_own_mounts(), reason="needs mount namespaces")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that only the driver's host sees."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "marker").touch()
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, here: Path) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster.start(folder, workers=2, cores=1, places=OwnMounts(here)) as cluster:
        yield cluster


class Scene:
    """An application, its input in the store, and drivers with caches of their own."""

    def __init__(self, cluster: LocalCluster, here: Path, place: Place, host: str):
        self._cluster = cluster
        self._place = place
        self._host = host
        self._folder = Path(tempfile.mkdtemp(prefix=host, dir=here))
        self._output = self._folder / "out.txt"
        (self._port,) = free_ports(1)
        name = place.url.rpartition("/")[2]
        self._inputs = place.objects.parent / f"in-{name}"
        self._inputs.mkdir(parents=True)
        self.events = 0
        options = {
            "endpoint_override": f"127.0.0.1:{place.port}",
            "scheme": "http",
            "region": "us-east-1",
            "access_key": KEY,
            "secret_key": SECRET,
        }
        code = APPLICATION
        for word, value in {
            "KEYS": str(KEYS),
            "PAD": str(PAD),
            "MARKER": str(here / "marker"),
            "INPUT": f"s3://bucket/in-{name}/*.txt",
            "OPTIONS": repr(options),
            "OUTPUT": str(self._output),
        }.items():
            code = code.replace(word, value)
        (self._folder / "stored_app.py").write_text(code)

    def cache(self, machine: str) -> Path:
        return self._folder / machine

    def log(self, machine: str) -> str:
        return (self._folder / f"{machine}.log").read_text()

    def start(self, machine: str, *options: str) -> subprocess.Popen[bytes]:
        """Start the application as a machine that has a cache of its own."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            **self._place.environment(self.cache(machine)),
        }
        command = [sys.executable, "-m", "wallaroo", "run", str(self._folder / "stored_app.py")]
        command += ["--master", self._cluster.url, "--checkpoint", self._place.url, "--no-live"]
        command += ["--host", self._host, "--batch-time", "0.3", "--status", f"{HOST}:{self._port}"]
        command += ["--tasks", "2", "--conf", "spark.executor.memory=512m", *options]
        with (self._folder / f"{machine}.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def has_copies(self) -> bool:
        """Return whether each worker keeps a copy of another one's key groups: with new batches."""
        self.grow()
        with suppress(OSError), urlopen(f"http://{HOST}:{self._port}/status") as answer:
            workers = json.load(answer)["workers"]
            return len(workers) > 1 and all(worker["replica_groups"] for worker in workers)
        return False

    def grow(self) -> None:
        """Add a file to the input, unless there is enough to do."""
        if self.events - self.count() < AHEAD_MAX:
            numbers = range(self.events, self.events + FILE_EVENTS)
            unfinished = self._folder / "unfinished"
            unfinished.write_text("".join(f"{each}\n" for each in numbers))
            unfinished.rename(self._inputs / f"{self.events:09}.txt")
            self.events += FILE_EVENTS

    def count(self) -> int:
        """Return about how many lines of output there are: megabytes are not read to wait."""
        return self._output.stat().st_size // PAD if self._output.exists() else 0

    def lines(self) -> list[str]:
        if not self._output.exists():
            return []
        return [line.rstrip("x") for line in self._output.read_text().split("\n")[:-1]]


@needs_mounts
@pytest.mark.long
@pytest.mark.parametrize("host", ["resident", "micro-batch"])
def test_hosts_that_share_no_folder_lose_a_worker_and_their_driver(
    cluster: LocalCluster, here: Path, place: Place, eventually: Eventually, host: str
) -> None:
    """The killed worker's groups continue elsewhere, the killed driver's run on an empty disk.

    Resident workers keep copies of each other's state, which they read from the store.
    """
    scene = Scene(cluster, here, place, host)
    options = HOSTS[host]

    def await_lines(count: int) -> None:
        def is_reached() -> bool:
            assert running.poll() is None, scene.log(machine)
            scene.grow()
            return scene.count() >= count

        eventually(is_reached, f"{count} lines of output")

    machine = "first"
    running = scene.start(machine, *options)
    try:
        await_lines(LINES)
        if options:
            eventually(scene.has_copies, "copies")
        worker = cluster.add_worker()
        cluster.kill_worker(cluster.workers()[0])
        await_lines(scene.count() + LINES)
        running.send_signal(signal.SIGKILL)
        running.wait()

        machine = "second"
        assert not scene.cache(machine).exists()
        running = scene.start(machine, "--take-over", *options)
        await_lines(scene.count() + LINES)
        eventually(lambda: len(scene.lines()) >= scene.events, "all output")
        running.send_signal(signal.SIGTERM)
        assert running.wait(RUN_S_MAX) == 0, scene.log(machine)
    finally:
        running.kill()
        running.wait()

    assert worker in cluster.workers()
    each = scene.events // KEYS
    expected = Counter(f"key{key} {count} " for key in range(KEYS) for count in range(1, each + 1))
    found = Counter(scene.lines())
    assert not found - expected  # nothing twice, nothing that is wrong
    assert not expected - found  # nothing lost
    # what tasks wrote went by the driver: workers never saw the folder that has it
    assert list(scene.cache(machine).glob("*/snapshots/*"))
