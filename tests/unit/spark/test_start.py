"""What a run does before Spark has started, with a Spark that does not start by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from wallaroo import console, runner
from wallaroo.errors import PeerError
from wallaroo.spark import host_session, stderr

Eventually = Callable[..., Any]
END_S_MAX = 300.0


def application(folder: Path, out: Path) -> wallaroo.Application:
    (folder / "in.txt").write_text("a\n")
    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", str(folder / "in.txt")))
    return wallaroo.build_application("App", lines.to_sink(wallaroo.FileSinkConfig(out)))


class StartsWhenAsked:
    """In place of Spark's start: waits, then fails."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()

    def __call__(self, *arguments: object) -> Any:
        self.has_begun.set()
        assert self.may_go_on.wait(END_S_MAX)
        raise PeerError("Spark was started.")


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> StartsWhenAsked:
    starting = StartsWhenAsked()
    monkeypatch.setattr(host_session, "open_session", starting)
    return starting


def test_old_output_at_a_sinks_path_is_refused_before_spark_starts(
    tmp_path: Path, spark: StartsWhenAsked
) -> None:
    (tmp_path / "out.txt").write_text("of another run\n")
    with pytest.raises(PeerError, match=r"out\.txt"):
        wallaroo.run(application(tmp_path, tmp_path / "out.txt"))
    assert not spark.has_begun.is_set()


def test_launch_returns_at_once_and_the_status_says_what_the_start_does(
    tmp_path: Path, spark: StartsWhenAsked
) -> None:
    handle = runner.launch(application(tmp_path, tmp_path / "out"), wallaroo.RunOptions())
    assert spark.has_begun.wait(END_S_MAX)
    status = handle.status()
    assert (status.state, status.doing) == ("starting", "starting Spark")
    assert repr(handle) == "<Run 'App': starting (starting Spark), 0 batches, 0 events done>"
    spark.may_go_on.set()
    with pytest.raises(PeerError, match="Spark was started"):
        handle.result(END_S_MAX)


def test_a_run_that_is_stopped_while_it_starts_ends_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun = threading.Event()
    may_go_on = threading.Event()

    def started(*arguments: object) -> object:
        has_begun.set()
        assert may_go_on.wait(END_S_MAX)
        return object()

    monkeypatch.setattr(host_session, "open_session", started)
    monkeypatch.setattr(host_session, "close_session", lambda session: None)
    handle = runner.launch(application(tmp_path, tmp_path / "out"), wallaroo.RunOptions())
    assert has_begun.wait(END_S_MAX)
    handle.stop()
    may_go_on.set()
    assert handle.result(END_S_MAX).state == "stopped"


def test_lines_of_the_jvm_go_where_a_view_puts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    console.take_over(lines.append)
    try:
        stderr._is_closing.clear()
        stderr._pass_on(b"spark ERROR Something: \xff\n")
    finally:
        console.give_back()
    assert lines == ["spark ERROR Something: \\xff\n"]
