"""Runners for the suite: in this process with one undisturbed batch, in this process in pieces, and
on Spark.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.runners import LocalRunner, SparkRunner


@pytest.fixture
def spark_runner(spark_session: Any, monkeypatch: pytest.MonkeyPatch) -> SparkRunner:
    """Spark with batches and tasks so small that few lines make several of both."""
    from wallaroo.runtime import pacing

    monkeypatch.setattr(pacing, "EVENTS_FIRST", 16)
    monkeypatch.setattr(pacing, "EVENTS_MIN", 16)
    monkeypatch.setattr(pacing, "TASK_S", 1e-5)
    return SparkRunner(spark_session)


@pytest.fixture(
    params=[
        "one batch",
        "in pieces",
        pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.java]),
    ]
)
def runner(request: pytest.FixtureRequest) -> Any:
    """Every runner there is."""
    if request.param == "spark":
        return request.getfixturevalue("spark_runner")
    return LocalRunner(1, 1) if request.param == "one batch" else LocalRunner(5, 3)
