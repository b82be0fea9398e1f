"""The dashboard's address in the log of a run."""

from __future__ import annotations

import logging

import pytest

import wallaroo
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run


class Numbers:
    """A generator of three numbers."""

    def initial_value(self) -> int:
        return 1

    def apply(self, value: int) -> int | None:
        return value + 1 if value < 3 else None


@wallaroo.encoder
def as_text(number: int) -> bytes:
    return str(number).encode()


def logged_by_a_run(caplog: pytest.LogCaptureFixture, options: RunOptions) -> list[str]:
    numbers = wallaroo.source("Numbers", wallaroo.GenSourceConfig("numbers", Numbers()))
    pipeline = numbers.to_sink(wallaroo.StdoutSinkConfig(as_text))
    run = Run(wallaroo.build_application("Count", pipeline), options, InProcessHost())
    with caplog.at_level(logging.INFO, "wallaroo.run"):
        run.begin()
        run.result(60)
    return [record.getMessage() for record in caplog.records]


def test_a_run_logs_the_address_without_the_token(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = (
        line for line in logged_by_a_run(caplog, RunOptions()) if line.startswith("dashboard ")
    )
    assert line.startswith("dashboard http://127.0.0.1:")
    assert line.endswith("/ (`wallaroo status --link`: with its token)")


def test_a_run_without_a_status_server_logs_none(caplog: pytest.LogCaptureFixture) -> None:
    lines = logged_by_a_run(caplog, RunOptions(status_address=None))
    assert not any(line.startswith("dashboard") for line in lines)
