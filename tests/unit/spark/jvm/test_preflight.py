"""What is refused before Spark starts."""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
from pathlib import Path

import pytest

import wallaroo
from wallaroo.errors import PeerError, PipelineError
from wallaroo.options import RunOptions
from wallaroo.spark.jvm.preflight import (
    check_java,
    check_master,
    check_reachable,
    check_spark_home,
    check_user,
    check_worker_python,
)
from wallaroo.spark.local_cluster.secrets import publish


@wallaroo.decoder
def decode(payload: bytes) -> bytes:
    return payload


def application() -> wallaroo.Application:
    votes = wallaroo.source("Votes", wallaroo.TCPSourceConfig("votes", "127.0.0.1", 0, decode))
    return wallaroo.build_application("App", votes.to_sink(wallaroo.StdoutSinkConfig()))


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_user_without_a_name_is_refused_before_spark_is() -> None:
    check_user(os.getuid())
    with pytest.raises(PeerError, match="the user with the number 2000000123 has no name, which"):
        check_user(2_000_000_123)


# -- the workers' Python
# --------------------------------------------------------------------------------------------------


def test_a_python_that_is_not_there_is_refused_with_the_variable_to_unset() -> None:
    with pytest.raises(PeerError) as refused:
        check_worker_python({"PYSPARK_PYTHON": "/nonexistent/python"})
    assert str(refused.value) == (
        "PYSPARK_PYTHON is /nonexistent/python, and there is no such program. "
        f"Run `unset PYSPARK_PYTHON`, or set it to {sys.executable}."
    )


def test_a_python_of_another_version_is_refused_with_both_versions(tmp_path: Path) -> None:
    other = program(tmp_path / "python3.99", "echo 3.99")
    with pytest.raises(PeerError, match=r"which is Python 3\.99; this is Python 3\.\d+\. Workers"):
        check_worker_python({"PYSPARK_PYTHON": other})


@pytest.mark.parametrize("script", ["exit 1", "echo", "kill -9 $$"])
def test_a_python_that_does_not_start_is_refused(tmp_path: Path, script: str) -> None:
    with pytest.raises(PeerError, match="which does not start"):
        check_worker_python({"PYSPARK_PYTHON": program(tmp_path / "python", script)})


def test_a_python_without_the_packages_is_refused_with_the_command_that_installs_them(
    tmp_path: Path,
) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    bare = program(tmp_path / "python", f"echo {version} lmdb")
    with pytest.raises(PeerError, match=r"has no lmdb\. Run `.*python -m pip install lmdb`"):
        check_worker_python({"PYSPARK_PYTHON": bare})


def test_this_python_under_any_name_is_accepted() -> None:
    check_worker_python({})
    check_worker_python({"PYSPARK_PYTHON": ""})
    check_worker_python({"PYSPARK_PYTHON": sys.executable})
    name = os.path.basename(sys.executable)
    check_worker_python({"PYSPARK_PYTHON": name, "PATH": os.path.dirname(sys.executable)})


# -- Java and the master
# --------------------------------------------------------------------------------------------------


def test_without_java_the_error_says_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"there is none on PATH\. Install it \(Debian: apt-get"):
        check_java({"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("folder", "release", "found"),
    [("bin", 'JAVA_VERSION="11.0.2"', 11), ("jre/bin", 'JAVA_VERSION="1.8.0_371"', 8)],
)
def test_a_java_that_is_too_old_is_refused_before_spark_starts(
    tmp_path: Path, folder: str, release: str, found: int
) -> None:
    java = tmp_path / folder / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    (tmp_path / "release").write_text(f'IMPLEMENTOR="any"\n{release}\n')
    home = java.parent.parent

    with pytest.raises(PeerError, match=f"Java {found} found at {java}, that JAVA_HOME names; 17"):
        check_java({"JAVA_HOME": str(home)})
    with pytest.raises(PeerError, match=f"Java {found} found at {java}, on PATH; 17 or newer"):
        check_java({"PATH": str(java.parent)})


def test_a_java_that_does_not_say_its_version_is_tried(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)

    check_java({"JAVA_HOME": str(tmp_path)})


def test_a_spark_home_that_was_removed_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"SPARK_HOME is .*/gone', which holds no bin/spark-submit"):
        check_spark_home({"SPARK_HOME": str(tmp_path / "gone")})
    check_spark_home({})
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").touch()
    check_spark_home({"SPARK_HOME": str(tmp_path)})


def test_a_java_home_without_java_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=rf"JAVA_HOME is {tmp_path}, which holds no bin/java"):
        check_java({"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    "master",
    ["local", "local[2]", "local[*]", "local[2,4]", "local-cluster[2,1,1024]", "yarn",
     "spark://host:7077", "spark://a:7077,b:7077", "k8s://https://host:6443"],
)  # fmt: skip
def test_masters_that_spark_knows_are_accepted(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize(
    ("master", "hint"),
    [
        ("locl", r"Did you mean local\[\*\]\?"),
        ("local[two]", r"Did you mean local\[\*\]\?"),
        ("sprk://host:7077", "Did you mean spark://HOST:PORT"),
        ("spark://host", "Did you mean spark://HOST:PORT"),
        ("whatever", "is not a master of Spark. Give local"),
    ],
)
def test_other_masters_are_refused_with_the_nearest_one(master: str, hint: str) -> None:
    with pytest.raises(PipelineError, match=hint):
        check_master(master)


# -- through wallaroo.run
# --------------------------------------------------------------------------------------------------


def test_a_master_that_does_not_listen_is_refused_with_its_address() -> None:
    with pytest.raises(PeerError, match=r"spark://127\.0\.0\.1:5 .*refused.*Is it running"):
        check_reachable("spark://127.0.0.1:5")


def test_the_master_of_a_cluster_on_this_machine_is_to_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    publish("spark://127.0.0.1:5", "secret")
    with pytest.raises(PeerError, match="start that one again: `wallaroo cluster restart-master`"):
        check_reachable("spark://127.0.0.1:5")
    with pytest.raises(PeerError, match="or start one: `wallaroo cluster start`"):
        check_reachable("spark://127.0.0.1:6")


def test_a_port_beyond_the_last_is_refused_though_the_resolver_takes_it_modulo_65536() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1] + 65_536
        with pytest.raises(PeerError, match=rf"127\.0\.0\.1:{port}: it is not HOST:PORT"):
            check_reachable(f"spark://127.0.0.1:{port}")


def test_a_name_whose_lookup_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def hang(*_: object, **__: object) -> list[object]:
        ended.wait(400)
        raise OSError("the name is unknown")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    with pytest.raises(PeerError, match=r"slow:7: no answer within 0\.05 s"):
        check_reachable("spark://slow:7", within_s=0.05)
    ended.set()


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        check_reachable(f"spark://127.0.0.1:5,127.0.0.1:{master.getsockname()[1]}")


def test_run_refuses_before_spark_is_even_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "wallaroo.spark.micro_batch.host", None
    )  # importing it would fail
    monkeypatch.setenv("PYSPARK_PYTHON", "/nonexistent/python")
    app = application()
    with pytest.raises(PipelineError, match="not a master of Spark"):
        wallaroo.run(app, master="locl")
    with pytest.raises(PeerError, match="PYSPARK_PYTHON is /nonexistent/python"):
        wallaroo.run(app)


def test_workers_are_not_waited_for_on_one_machine() -> None:
    with pytest.raises(
        PipelineError, match=r"--min-workers: 2 workers .* local\[\*\] is one process"
    ):
        wallaroo.run(application(), min_workers=2)


def test_copies_need_other_workers_and_tasks_that_stay() -> None:
    app = application()
    with pytest.raises(PipelineError, match=r"--replicas: copies .* local\[\*\] is one process"):
        wallaroo.run(app, replicas=1)
    with pytest.raises(PipelineError, match="--replicas: must be 0 or 1, got 2"):
        wallaroo.run(app, replicas=2, master="spark://one:7077")
    with pytest.raises(PipelineError, match=r"the micro-batch host has none.*--host resident"):
        wallaroo.run(app, replicas=1, master="spark://one:7077", host="micro-batch")
    assert RunOptions(replicas=1).on(is_shared=True).is_resident


def test_a_port_for_acknowledgements_of_an_unknown_source_is_refused_with_the_known_names() -> None:
    with pytest.raises(PipelineError) as refused:
        wallaroo.run(application(), ack_ports=(("vote", 7700),))
    assert str(refused.value) == (
        "--acknowledged vote=7700: there is no TCP source 'vote'; this application's TCP sources: "
        "'votes'. Write --acknowledged votes=7700."
    )
