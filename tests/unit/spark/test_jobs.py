"""When a batch's Spark job is run again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException

from wallaroo.engine.report import TaskReport
from wallaroo.errors import PeerError
from wallaroo.spark.micro_batch import jobs
from wallaroo.spark.session import spark_errors


class JavaError:
    """What a Py4JJavaError carries."""

    _target_id = "o1"

    def __init__(self, text: str):
        self.text = text

    def __str__(self) -> str:
        return self.text


def failure(text: str) -> Py4JJavaError:
    return Py4JJavaError("", JavaError(f"org.apache.spark.SparkException: {text}"))


@pytest.fixture
def job(tmp_path: Path) -> Any:
    (tmp_path / "view").mkdir()
    deployment = SimpleNamespace(view_folder=lambda: tmp_path / "view")
    return SimpleNamespace(batch=3, tasks=1, deployment=deployment)


@pytest.fixture
def spark_job() -> Iterator[mock.Mock]:
    with mock.patch.object(jobs, "run_spark_job") as made:
        yield made


LOCAL: Any = SimpleNamespace(
    is_local=True,
    layout=lambda tasks: None,
    named=list,
    failure_on_non_member=lambda reports: "",
    look_now=dict,
)


def attempt(job: Any, is_local: bool = True) -> list[TaskReport]:
    unused: Any = None
    cluster: Any = SimpleNamespace(**{**vars(LOCAL), "is_local": is_local})
    return jobs.run_with_retries(unused, job, cluster, unused, lambda batch, reports: None)


def test_workers_that_crash_get_another_chance_without_the_view(
    job: Any, spark_job: mock.Mock, tmp_path: Path
) -> None:
    report = TaskReport(0, 0, "a")
    spark_job.side_effect = [failure("Python worker exited unexpectedly (crashed)"), [report]]
    assert attempt(job) == [report]
    assert not (tmp_path / "view").exists()


CRASH = failure("Python worker exited unexpectedly (crashed)")
LOST_HOST = failure("ExecutorLostFailure (executor 1 exited)")


@pytest.mark.parametrize(
    ("is_local", "failures"), [(True, [CRASH] * 2), (False, [CRASH, CRASH, LOST_HOST, CRASH])]
)
def test_workers_that_go_on_crashing_end_the_batch_whatever_hosts_do(
    job: Any, spark_job: mock.Mock, is_local: bool, failures: list[Exception]
) -> None:
    spark_job.side_effect = failures
    words = f"batch 3 ended its worker processes {failures.count(CRASH)} times. A function of the"
    with pytest.raises(PeerError, match=words):
        attempt(job, is_local)


def test_a_worker_whose_python_failed_on_a_cluster_gets_another_chance(
    job: Any, spark_job: mock.Mock
) -> None:
    report = TaskReport(0, 0, "a")
    spark_job.side_effect = [PythonException("ModuleNotFoundError: No module named 'x'"), [report]]
    assert attempt(job, is_local=False) == [report]


@pytest.mark.parametrize(
    "words",
    [
        "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.",
        "java.lang.NullPointerException: ... SparkEnv.driverTmpDir() ...",
    ],
)
def test_a_context_that_its_master_has_removed_is_reported_as_such(words: str) -> None:
    with mock.patch.object(spark_errors, "is_jvm_gone", return_value=False):
        error = spark_errors.failure_of(None, Py4JJavaError(words, JavaError(words)))
    assert str(error) == spark_errors.STOPPED


def test_another_failure_on_this_host_is_final_and_the_view_stays(
    job: Any, spark_job: mock.Mock, tmp_path: Path
) -> None:
    spark_job.side_effect = [failure("no space left on device")]
    with pytest.raises(Py4JJavaError):
        attempt(job)
    assert (tmp_path / "view").exists()


def test_after_a_task_failed_on_a_host_that_is_no_member_such_hosts_are_asked_first(
    job: Any, spark_job: mock.Mock
) -> None:
    asked: list[str] = []
    failures = iter(["worker-2: no library", ""])
    cluster: Any = SimpleNamespace(
        is_local=False,
        layout=lambda tasks: None,
        named=list,
        failure_on_non_member=lambda reports: next(failures),
        look_now=dict,
        ask_others=lambda: asked.append("others"),
    )
    report = TaskReport(0, 0, "a")
    spark_job.side_effect = [[report], [report]]
    unused: Any = None
    dropped: list[int] = []
    reports = jobs.run_with_retries(
        unused, job, cluster, unused, lambda batch, reports: dropped.append(batch)
    )
    assert reports == [report]
    assert asked == ["others"]
    assert dropped == [job.batch]
