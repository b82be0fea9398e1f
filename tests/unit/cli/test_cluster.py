"""The words of ``wallaroo cluster``; what it does is tested with real processes beside the cluster
itself.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wallaroo.cli import cluster as command
from wallaroo.cli.doctor.machine import Finding, Verdict
from wallaroo.cli.main import main
from wallaroo.spark.local_cluster import (
    ClusterStatus,
    ClusterWorker,
    LocalCluster,
    WorkerRemoval,
)
from wallaroo.spark.local_cluster.master_api import Executor

STATUS = ClusterStatus(
    folder="/c",
    url="spark://127.0.0.1:7077",
    page="http://127.0.0.1:8080",
    pid=11,
    state="alive",
    workers=(
        ClusterWorker(
            "worker-1", "127.0.0.2", 1, "1g", 12, "alive", (Executor("Word Count", 512),)
        ),
        ClusterWorker("worker-3", "127.0.0.4", 2, "1g", 13, "dead", ()),
    ),
    applications=("Word Count",),
)


@pytest.fixture
def commanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[Any, ...]]:
    """A cluster that only notes how it is called."""
    calls: list[tuple[Any, ...]] = []

    class Noting(LocalCluster):
        @classmethod
        def start(cls, folder: Path, *rest: Any) -> Noting:
            calls.append(("start", *rest))
            return cls(folder)

        @classmethod
        def attach(cls, folder: Path) -> Noting:
            return cls(folder)

        def status(self) -> ClusterStatus:
            return STATUS

        def remove_worker(self, *rest: Any) -> WorkerRemoval:
            calls.append(("remove", *rest))
            return WorkerRemoval("worker-3", 1.25, "timed out")

        def stop(self) -> int:
            return 4

    monkeypatch.setattr(command, "LocalCluster", Noting)
    monkeypatch.setattr(command, "examine_java", lambda: Finding("java", Verdict.OK, "17"))
    return calls


def test_start_prints_the_next_command(commanded: list[Any], capsys: Any, tmp_path: Path) -> None:
    assert (
        main(
            [
                "cluster",
                "start",
                "--workers",
                "3",
                "--cores",
                "2",
                "--memory",
                "2G",
                "--dir",
                str(tmp_path),
            ]
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Started spark://127.0.0.1:7077: 1 worker with 1 core, ")
    assert lines[1:] == [
        "Next:  wallaroo run --master spark://127.0.0.1:7077 APP",
        f"Look:  wallaroo cluster status --dir {tmp_path}",
        f"End:   wallaroo cluster stop --dir {tmp_path}",
    ]
    assert commanded == [("start", 3, 2, "2g", 0)]


def test_status_is_a_table_or_json(commanded: list[Any], capsys: Any) -> None:
    assert main(["cluster", "status"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "master        spark://127.0.0.1:7077, alive, pid 11, http://127.0.0.1:8080",
        "applications  Word Count",
        "folder        /c",
        "",
        "worker    host       cores  memory  state  executors of          pid",
        "worker-1  127.0.0.2  1      1g      alive  Word Count (512 MiB)  12",
        "worker-3  127.0.0.4  2      1g      dead   -                     13",
    ]
    assert main(["cluster", "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workers"][1]["state"] == "dead"


@pytest.mark.parametrize(
    ("state", "applications"),
    [
        ("dead", "unknown: the master is dead. `wallaroo cluster restart-master --dir /c` starts"),
        ("silent", "unknown: the master does not answer"),
    ],
)
def test_what_only_a_master_knows_that_does_not_answer_is_unknown(
    commanded: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    state: str,
    applications: str,
) -> None:
    worker = replace(STATUS.workers[0], state="unknown", executors=None)
    unknown = replace(STATUS, state=state, workers=(worker,), applications=None)
    monkeypatch.setattr(command.LocalCluster, "status", lambda self: unknown)
    assert main(["cluster", "status", "--dir", "/c"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(f"applications  {applications}")
    assert " ".join(lines[-1].split()) == "worker-1 127.0.0.2 1 1g unknown unknown 12"
    assert main(["cluster", "status", "--dir", "/c", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["applications"], shown["workers"][0]["executors"]) == (None, None)


def test_remove_worker_says_how_it_left(commanded: list[Any], capsys: Any) -> None:
    assert main(["cluster", "remove-worker", "--timeout", "5"]) == 0
    assert (
        capsys.readouterr().out
        == "worker-3 left after 1.2 s: its executors did not leave in time and were ended.\n"
    )
    assert main(["cluster", "remove-worker", "worker-3", "--kill"]) == 0
    assert commanded == [("remove", None, True, 5.0), ("remove", "worker-3", False, 30.0)]


def test_stop_says_what_it_ended(commanded: list[Any], capsys: Any, tmp_path: Path) -> None:
    assert main(["cluster", "stop", "--dir", str(tmp_path)]) == 0
    assert (
        capsys.readouterr().out
        == f"Ended 4 processes. Logs stay in {tmp_path} until the next start.\n"
    )


def test_without_java_the_doctors_sentence_is_printed(
    capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["cluster", "start", "--dir", str(tmp_path / "cluster")]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("wallaroo: error: Spark needs Java: ")
    assert "Install Java 17 or newer" in printed
    assert not (tmp_path / "cluster").exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["start", "--workers", "-1"], "'-1' is not a number of workers: 0 to 200"),
        (["start", "--cores", "0"], "'0' is not a number of cores"),
        (["start", "--memory", "lots"], "'lots' is not a size of memory: 512m, 2g"),
        (["start", "--port", "99999"], "'99999' is not a port"),
        (["remove-worker", "--timeout", "nan"], "'nan' is not a number of seconds"),
        ([], "required: VERB"),
    ],
)
def test_a_wrong_option_is_named(capsys: Any, words: list[str], text: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["cluster", *words])
    assert caught.value.code == 2
    assert text in capsys.readouterr().err
