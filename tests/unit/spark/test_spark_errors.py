"""One sentence for each error of Spark."""

from __future__ import annotations

import pytest
from pyspark.errors import PythonException, SparkRuntimeException

from wallaroo.errors import PeerError
from wallaroo.spark.session.spark_errors import RESTORE, crashed, reason_of

LOST = (
    "Job aborted due to stage failure: Task 0 in stage 5.0 failed 4 times, most recent failure: "
    "Lost task 0.3 in stage 5.0 (TID 19) (127.0.0.2 executor 1): "
)
STACK = "\n\tat java.base/java.nio.file.Files.createDirectory(Files.java:700)\nDriver stacktrace:"
BLOCKS = "/local/worker-1/spark-2071bda3/executor-110f4577/blockmgr-57bed9ba"


@pytest.mark.parametrize(
    "cause",
    [
        f"java.nio.file.NoSuchFileException: {BLOCKS}/15",
        f"java.nio.file.AccessDeniedException: {BLOCKS}/15",
        f"java.nio.file.FileSystemException: {BLOCKS}/15: Not a directory",
        f"java.io.FileNotFoundException: {BLOCKS}/15/x (Permission denied)",
    ],
)
def test_a_folder_that_an_executor_cannot_use_is_named_and_what_to_do(cause: str) -> None:
    """The same words at each attempt, which takes another folder below."""
    error = SparkRuntimeException(LOST + cause + STACK)
    assert reason_of(error) == f"it cannot use its folder {BLOCKS}. {RESTORE}"


def test_another_failure_of_a_task_is_its_own_line_without_the_stack_of_java() -> None:
    error = SparkRuntimeException(f"{LOST}java.io.IOException: No space left on device{STACK}")
    assert reason_of(error) == "IOException: No space left on device"


def test_an_executor_whose_working_folder_was_removed_is_reported_as_such() -> None:
    text = "FileNotFoundError: [Errno 2] No such file or directory"
    assert reason_of(PythonException(f"Traceback:\n{text}\n")) == (
        f"the working folder of its Spark executor was removed. {RESTORE}"
    )
    named = PythonException(f"{text}: 'table.csv'")
    assert "table.csv" in reason_of(named)


def test_a_batch_that_ended_all_its_tasks_is_reported_with_sparks_reason_if_there_is_one() -> None:
    assert isinstance(crashed(3, 5), PeerError)
    assert "batch 3 ended its worker processes 5 times. A function of the" in str(crashed(3, 5))
    known = str(crashed(3, 5, "it cannot use its folder /x. Restore it."))
    assert "5 times. Spark's reason: it cannot use its folder /x. Restore it. What was" in known
    assert "memory" not in known
