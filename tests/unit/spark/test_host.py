"""The micro-batch host: what it leaves behind, and that a run which waits goes on at once."""

from __future__ import annotations

import importlib
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import wallaroo
from tests.unit.runtime.applications import line, text
from wallaroo.cli.application.loading import load_application
from wallaroo.errors import PeerError
from wallaroo.options import RunOptions
from wallaroo.processes.roles import run_processes
from wallaroo.runtime.batch.batches import Batches
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.spark.micro_batch.host import new_run
from wallaroo.spark.micro_batch.query import BatchQuery

pytestmark = [pytest.mark.spark, pytest.mark.java]


def application(folder: Path) -> wallaroo.Application:
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, text))
    sink = wallaroo.FileSinkConfig(folder / "out.txt", encoder=line)
    return wallaroo.build_application("copy", source.to_sink(sink))


@pytest.fixture
def run(tmp_path: Path, spark_session: Any) -> Iterator[Run]:
    options = RunOptions(status_address=None, hung_s=3.0, module_paths=(os.getcwd(),))
    made = new_run(application(tmp_path), options, spark_session)
    made.start()
    yield made
    made.stop()
    assert made.wait(400)


def send(run: Run, *payloads: str) -> None:
    with socket.create_connection(run.addresses["in"], 10) as client:
        for payload in payloads:
            client.sendall(struct.pack(">I", len(payload)) + payload.encode())


def test_a_start_that_fails_leaves_no_query_in_a_session_that_was_handed_in(
    tmp_path: Path, spark_session: Any
) -> None:
    options = RunOptions(status_address=None)
    broken = new_run(application(tmp_path), options, spark_session)
    begin = BatchQuery.start
    begun: list[BatchQuery] = []

    def start(query: BatchQuery) -> None:
        begin(query)
        begun.append(query)

    with (
        mock.patch.object(Batches, "warm_up", side_effect=PeerError("no worker")),
        mock.patch.object(BatchQuery, "start", start),
        pytest.raises(PeerError, match="no worker"),
    ):
        broken.start()
    assert begun, "a query that begins after the run's end is stopped by nothing"
    assert list(spark_session.streams.active) == []
    again = new_run(application(tmp_path), options, spark_session)
    again.start()
    again.stop()
    assert again.wait(400)
    assert again.exception is None


def test_a_run_that_waited_takes_what_comes(
    run: Run, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """Nothing but Spark's JVM and its workers run beside it: no other process has to answer."""
    for number, payload in enumerate("abc", 1):
        send(run, payload)
        eventually(lambda expected=number: run.status().outputs == expected, "it is out")
    beside = run_processes(os.getpid()).values()
    assert not [each for each in beside if "streaming_source_runner" in " ".join(each.command)]
    assert (tmp_path / "out.txt").read_text() == "a\nb\nc\n"


def test_a_function_that_ends_its_workers_is_named_as_the_cause_by_a_given_session_too(
    tmp_path: Path, spark_session: Any
) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    events = wallaroo.source("in", wallaroo.FileSourceConfig("in", tmp_path / "in.txt"))
    sink = wallaroo.FileSinkConfig(tmp_path / "out.txt", form="lines")
    made = wallaroo.build_application(
        "crash", events.map(lambda event: os._exit(137)).to_sink(sink)
    )
    options = RunOptions(status_address=None, module_paths=(os.getcwd(),))

    crashing = new_run(made, options, spark_session)
    crashing.start()

    assert crashing.wait(400)
    words = "batch 0 ended its worker processes 2 times. A function of the application ends them"
    assert words in str(crashing.exception)


def test_a_run_leaves_no_socket_behind(tmp_path: Path, spark_session: Any) -> None:
    ended = new_run(application(tmp_path), RunOptions(status_address=None), spark_session)
    ended.start()
    address = str(ended._spec.site.wake)
    assert address in Path("/proc/net/unix").read_text()
    ended.stop()
    assert ended.wait(400)
    assert address not in Path("/proc/net/unix").read_text()


def test_a_stop_while_workers_warm_up_ends_the_start(
    tmp_path: Path, spark_session: Any, eventually: Callable[..., None]
) -> None:
    stopped = new_run(application(tmp_path), RunOptions(status_address=None), spark_session)
    stopped.begin()
    eventually(lambda: stopped.status().doing == "warming up the workers", "it warms up")
    stopped.stop()
    assert stopped.wait(400)
    assert stopped.exception is None
    assert stopped.status().state == "stopped"
    assert list(spark_session.streams.active) == []


RULES = """
import wallaroo


@wallaroo.computation("rule")
def rule(value):
    return "{label} " + value
"""


def test_an_edited_module_is_what_the_next_run_of_a_session_computes(
    tmp_path: Path, spark_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "in.txt").write_text("a\nb\n")
    for number, label in enumerate(("first", "second")):
        module = tmp_path / "edited_rule.py"
        module.write_text(RULES.format(label=label))
        os.utime(module, (10**9 + number, 10**9 + number))
        importlib.invalidate_caches()
        sys.modules.pop("edited_rule", None)
        rule = importlib.import_module("edited_rule").rule
        source = wallaroo.source("in", wallaroo.FileSourceConfig("in", tmp_path / "in.txt"))
        sink = wallaroo.FileSinkConfig(tmp_path / f"{label}.txt", encoder=line)
        application = wallaroo.build_application("edited", source.to(rule).to_sink(sink))
        options = RunOptions(status_address=None, module_paths=(os.getcwd(), str(tmp_path)))
        run = new_run(application, options, spark_session)
        run.start()
        assert run.wait(400)

    assert (tmp_path / "first.txt").read_text() == "first a\nfirst b\n"
    assert (tmp_path / "second.txt").read_text() == "second a\nsecond b\n"


WITH_OPTIONS = """
import wallaroo

OPTIONS = {}


@wallaroo.computation("labelled")
def labelled(value):
    return OPTIONS["label"] + " " + value


@wallaroo.encoder
def line(text):
    return text + "\\n"


def application_setup(args):
    OPTIONS["label"] = args[0]
    source = wallaroo.source("in", wallaroo.FileSourceConfig("in", args[1]))
    sink = wallaroo.FileSinkConfig(args[2], encoder=line)
    return wallaroo.build_application("options", source.to(labelled).to_sink(sink))
"""


def test_steps_find_the_options_that_a_set_up_left_in_its_module(
    tmp_path: Path, spark_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "in.txt").write_text("a\n")
    module = tmp_path / "with_options.py"
    module.write_text(WITH_OPTIONS)
    for label in ("first", "second"):
        out = tmp_path / f"{label}.txt"
        application = load_application(str(module), [label, str(tmp_path / "in.txt"), str(out)])
        options = RunOptions(status_address=None, module_paths=(os.getcwd(), str(tmp_path)))
        run = new_run(application, options, spark_session)
        run.start()
        assert run.wait(400)
        assert out.read_text() == f"{label} a\n"
