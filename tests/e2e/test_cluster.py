"""An application on a cluster whose workers have nothing of it: real Master, Worker and
executor.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sampling import sampled
from tests.unit.ingress.test_tls import make_certificate
from wallaroo.instrumentation import tracing
from wallaroo.spark.local_cluster import LocalCluster

Eventually = Callable[..., None]
RUN_S_MAX = 500

APPLICATION = """
import wallaroo
import helper
from lib.deep import FACTOR


@wallaroo.computation
def where(line):
    return f"{line} {helper.twice(FACTOR)} {wallaroo.__file__} {helper.__file__}"


@wallaroo.encoder
def encode(text):
    return text + "\\n"


def application_setup(args):
    lines = wallaroo.source("Lines", wallaroo.FileSourceConfig("Lines", "INPUT"))
    sink = wallaroo.FileSinkConfig("OUTPUT", encode)
    counted = lines.key_by(key).to(count).to(where)
    return wallaroo.build_application("Shipped", counted.to_sink(sink))


@wallaroo.key_extractor
def key(line):
    return line


class Count:
    def __init__(self):
        self.lines = 0


@wallaroo.state_computation(state=Count)
def count(line, state):
    state.lines += 1
    return f"{line} {state.lines}"
"""


# the application of a host that lacks something; the run does not end before that host is asked
PICKY = """
import os
import time

if os.environ.get("WALLAROO_WORKER") == "worker-2":
    LACKING


def wait():
    while not os.path.exists("REPORTED"):
        time.sleep(0.01)
"""
CANNOT_TAKE_PART = "cannot take part: the application cannot be imported on host 'worker-2'"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("cluster"), workers=2, cores=1) as cluster:
        yield cluster


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "__init__.py").write_text("")
    (folder / "lib" / "deep.py").write_text("FACTOR = 21\n")
    (folder / "helper.py").write_text("def twice(x):\n    return 2 * x\n")
    (folder / "input.txt").write_text("".join(f"line{number % 10}\n" for number in range(100)))
    code = APPLICATION.replace("INPUT", str(folder / "input.txt")).replace(
        "OUTPUT", str(tmp_path / "out")
    )
    (folder / "shipped.py").write_text(code)
    return folder


def command(cluster: LocalCluster, project: Path, checkpoint: Path, *options: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "wallaroo",
        "run",
        str(project / "shipped.py"),
        "--master",
        cluster.url,
        *options,
        "--checkpoint",
        str(checkpoint),
        "--no-live",
        "--conf",
        "spark.executor.memory=512m",
    ]


ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def run(
    cluster: LocalCluster, project: Path, checkpoint: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(cluster, project, checkpoint, *options),
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        env=ENVIRONMENT,
    )


def lines_of(folder: Path) -> list[str]:
    return [
        line for part in sorted(folder.glob("part-*")) for line in part.read_text().splitlines()
    ]


def counts_of(lines: list[str]) -> list[str]:
    return sorted(line.rsplit(" ", 3)[0] for line in lines)


RIGHT = sorted(f"line{number} {count}" for number in range(10) for count in range(1, 11))


def test_application_siblings_package_and_input_reach_the_workers(
    cluster: LocalCluster, tmp_path: Path, project: Path
) -> None:
    ran = run(cluster, project, tmp_path / "checkpoint")
    assert ran.returncode == 0, ran.stderr
    lines = lines_of(tmp_path / "out")
    assert counts_of(lines) == RIGHT
    for line in lines:
        _, _, product, package, module = line.split(" ")
        assert product == "42"
        assert ".zip/wallaroo/__init__.py" in package  # not the one that may be installed here
        assert ".zip/helper.py" in module


def test_tasks_of_several_hosts_stay_and_talk_over_tls_at_low_latency(
    cluster: LocalCluster, tmp_path: Path, project: Path
) -> None:
    tls = make_certificate(tmp_path, "run")
    encrypted = ("--tls-cert", tls.certificate, "--tls-key", tls.key)
    trace = tmp_path / "trace"
    conf = {
        f"spark.executorEnv.{tracing.VARIABLE}": str(trace),
        # Spark starts once both hosts are there: the input takes but a moment
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    }
    more = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]

    ran = run(cluster, project, tmp_path / "checkpoint", "--latency", "low", *encrypted, *more)

    assert ran.returncode == 0, ran.stderr
    assert counts_of(lines_of(tmp_path / "out")) == RIGHT
    exchanges = [line for line in trace.read_text().splitlines() if "task.exchanged" in line]
    assert len({line.split()[3] for line in exchanges}) == 2, exchanges[:4]


@pytest.mark.parametrize(
    ("latency", "lacking", "reported"),
    sampled(
        [
            (
                "low",
                'os.environ["API_KEY"]',
                "shipped.py:6: KeyError: 'API_KEY'. Workers have neither",
            )
        ],
        [("normal", "import a_library_of_worker_1", "No module named 'a_library_of_worker_1'")],
    ),
)
def test_a_worker_that_cannot_take_part_is_named_and_the_others_do_it_all(
    cluster: LocalCluster,
    tmp_path: Path,
    project: Path,
    latency: str,
    lacking: str,
    reported: str,
    eventually: Eventually,
) -> None:
    application = project / "shipped.py"
    seen = tmp_path / "seen"
    picky = PICKY.replace("REPORTED", str(seen)).replace("LACKING", lacking)
    picky += application.read_text()
    application.write_text(picky.replace("    return f", "    wait()\n    return f", 1))
    errors = tmp_path / "errors"

    # more tasks than the host that can take part has cores
    options = ("--tasks", "4", "--latency", latency)
    with errors.open("w") as stderr:
        running = subprocess.Popen(
            command(cluster, project, tmp_path / "checkpoint", *options),
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=ENVIRONMENT,
        )
        try:
            eventually(
                lambda: CANNOT_TAKE_PART in errors.read_text() or running.poll() is not None,
                "the host that cannot take part is named",
            )
            seen.touch()
            assert running.wait(RUN_S_MAX) == 0, errors.read_text()
        finally:
            running.kill()
            running.wait()

    assert CANNOT_TAKE_PART in errors.read_text()
    assert reported in errors.read_text()
    assert counts_of(lines_of(tmp_path / "out")) == RIGHT
