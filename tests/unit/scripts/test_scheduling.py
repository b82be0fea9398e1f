"""What is named in the schedule of the tests is there."""

from __future__ import annotations

from pathlib import Path

from tests.scheduling import LONG, SHARED, shared_by

ROOT = Path(__file__).resolve().parents[3]


def test_every_file_of_the_schedule_is_there() -> None:
    """A file that was renamed would be run with a Spark of its own, and last."""
    files = [*SHARED, *(name for name in LONG if name not in SHARED.values())]
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_files_that_use_the_shared_spark_or_broker_are_run_by_one_process() -> None:
    used = ("spark_session: Any", '"spark_session"', "spark_runner: SparkRunner", "broker: Broker")
    users = [
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests").rglob("test_*.py")
        if file != Path(__file__) and any(words in file.read_text() for words in used)
    ]
    assert len(users) > 8
    assert [name for name in users if name not in SHARED] == []


def test_tests_of_one_file_stay_together() -> None:
    assert shared_by("tests/a.py::Test::test_b[x]") == shared_by("tests/a.py::test_c")
