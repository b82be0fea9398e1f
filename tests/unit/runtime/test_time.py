"""Event time on a host with the real spool, state and commits: time moves without input, input
ends, and a batch that dies changes nothing.
"""

from __future__ import annotations

import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.conformance.apps import in_time, sessions, waiting
from tests.conformance.apps.steps import sink
from tests.conformance.cases import TIMED_LINES as LINES
from tests.conformance.cases import in_time_case, per_key
from tests.unit.runtime.applications import text
from wallaroo.aggregations import Count
from wallaroo.instrumentation.tuning import Pace, Tuning
from wallaroo.options import RunOptions
from wallaroo.runtime.batch import commit_protocol
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

SMALL = Tuning(Pace(events_first=16, events_min=16), mark_bytes=128)


def new_run(application: wallaroo.Application, tasks: int = 3, **options: Any) -> Run:
    options = {"status_address": None, "tuning": SMALL, **options}
    return Run(application, RunOptions(**options), InProcessHost(tasks))


def framed(text: str) -> bytes:
    return struct.pack(">I", len(text)) + text.encode()


def written(folder: Path) -> dict[str, list[str]]:
    return per_key((folder / "out.txt").read_text().splitlines())


def test_input_that_ends_fires_everything_before_the_run_is_finished(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(line + "\n" for line in LINES))
    run = new_run(sessions.one_step(tmp_path, tmp_path), checkpoint=tmp_path / "state")
    run.start()

    assert run.wait(400)
    assert (run.exception, run.status().state) == (None, "finished")
    assert written(tmp_path) == sessions.expected(LINES)

    again = new_run(sessions.one_step(tmp_path, tmp_path), checkpoint=tmp_path / "state")
    again.start()
    assert again.wait(400)
    assert (again.exception, again.status().state) == (None, "finished")
    assert written(tmp_path) == sessions.expected(LINES)


@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_a_key_sees_one_order_however_many_tasks_there_are(tmp_path: Path, tasks: int) -> None:
    case = in_time_case(in_time.DEEP, count=400)
    for source, lines in case.lines.items():
        (tmp_path / f"{source}.txt").write_text("".join(line + "\n" for line in lines))

    run = new_run(case.build(tmp_path, tmp_path), tasks, checkpoint=tmp_path / "state")
    run.start()

    assert run.wait(400)
    assert (run.exception, run.status().state) == (None, "finished")
    assert run.status().batches >= 3
    case.check({"out": (tmp_path / "out.txt").read_text().splitlines()})


class Ended:
    """State of a key that is to end once."""

    def __init__(self) -> None:
        self.events = 0


@wallaroo.state_computation("ends", state=Ended)
def ends(event: sessions.Click, own: Ended) -> None:
    own.events += 1


@ends.on_end
def at_end(own: Ended, context: wallaroo.Context) -> str:
    return f"{context.key} ended with {own.events}"


def leaving(**expiry: Any) -> Any:
    """A step of which something is due after the end, too: its state expires."""

    @wallaroo.state_computation("expires", state=Ended, **expiry)
    def expires(event: sessions.Click, own: Ended) -> None:
        own.events += 1

    return expires


@wallaroo.state_computation("has a timer by the clock", state=Ended)
def by_clock(event: sessions.Click, own: Ended, context: wallaroo.Context) -> None:
    context.set_timer("soon", context.processing_time + 1, processing=True)


@by_clock.on_timer
def clock_due(own: Ended, context: wallaroo.Context, name: str) -> None:
    own.events += 1


BESIDE = {
    "state expires by event time": leaving(ttl=wallaroo.seconds(1), ttl_time="event"),
    "state expires by the clock": leaving(ttl=wallaroo.milliseconds(1), ttl_time="processing"),
    "a timer by the clock": by_clock,
}


def ending(folder: Path, beside: Any) -> wallaroo.Application:
    keyed = sessions.clicks(folder).key_by(sessions.key_of)
    both = keyed.to(ends).merge(keyed.to(beside))
    return wallaroo.build_application("ending", both.to_sink(sink(folder)))


@pytest.mark.parametrize("beside", BESIDE.values(), ids=BESIDE)
def test_the_end_comes_once_whatever_is_due_after_it(tmp_path: Path, beside: Any) -> None:
    lines = [f"{key} {second} {second}" for second in range(0, 90, 9) for key in "abcdefg"]
    (tmp_path / "in.txt").write_text("".join(line + "\n" for line in lines))

    for _ in range(3):
        run = new_run(ending(tmp_path, beside), checkpoint=tmp_path / "state")
        run.start()
        assert run.wait(400)
        assert (run.exception, run.status().state) == (None, "finished")

    outputs = (tmp_path / "out.txt").read_text().splitlines()
    assert sorted(outputs) == [f"{key} ended with 10" for key in "abcdefg"]

    with (tmp_path / "in.txt").open("a") as file:
        file.write("a 100 100\n")
    run = new_run(ending(tmp_path, beside), checkpoint=tmp_path / "state")
    run.start()
    assert run.wait(400)

    more = (tmp_path / "out.txt").read_text().splitlines()[len(outputs) :]
    assert "a ended with 11" in more  # a file that has grown ends again
    assert len(more) == 7


class Died(Exception):
    """In place of the end of the process."""


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_a_batch_with_timers_that_dies_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    lines = [
        f"{'abcdefg'[number * 7919 % 7]} {number // 3 + number * 31 % 4} {number}"
        for number in range(2_000)
    ]
    (tmp_path / "in.txt").write_text("".join(line + "\n" for line in lines))
    passed = 0

    def die(name: str) -> None:
        nonlocal passed
        passed += name == point
        if name == point and passed in (1, 2, 4):
            raise Died

    monkeypatch.setattr(commit_protocol, "fault_point", die)
    deaths = 0
    while True:
        run = new_run(sessions.one_step(tmp_path, tmp_path), checkpoint=tmp_path / "state")
        run.begin()
        assert run.wait(400)
        if run.exception is None:
            break
        assert "Died" in str(run.exception)
        deaths += 1
    assert deaths >= 1
    assert written(tmp_path) == sessions.expected(lines)


@pytest.mark.parametrize("is_durable", [False, True])
def test_each_connection_has_a_watermark_until_it_closes(
    tmp_path: Path, eventually: Callable[..., Any], is_durable: bool
) -> None:
    run = new_run(waiting.slow(tmp_path, tmp_path), checkpoint=tmp_path / "s" if is_durable else "")
    run.start()

    def source_time() -> Any:
        return run.status().sources[0].time

    try:
        with socket.create_connection(run.addresses["in"]) as ahead:
            with socket.create_connection(run.addresses["in"]) as behind:
                behind.sendall(framed("a 10"))
                eventually(lambda: source_time().watermark == 10.0, "the first event")
                ahead.sendall(framed("b 30"))
                eventually(lambda: source_time().partitions == 2, "the second connection")
                assert source_time().watermark == 10.0
                assert source_time().held_by.startswith("partition ")
            # it is closed: what is due up to 30 comes, although no event does
            eventually(lambda: (tmp_path / "out.txt").exists(), "the timer")
            eventually(lambda: source_time().watermark == 30.0, "the commit is seen")
            ahead.sendall(framed("b 20"))  # of this connection, late
            eventually(lambda: run.status().events_done == 3, "the last event")
            assert source_time().watermark == 30.0
    finally:
        run.stop()
        assert run.wait(400)


@wallaroo.computation(name="slow")
def slow(click: sessions.Click) -> sessions.Click:
    time.sleep(0.01)
    return click


def test_closed_connections_hold_no_time_back_although_others_close_all_the_time(
    tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """Each client sends one event and leaves; more come than the application keeps up with."""
    source = wallaroo.TCPSourceConfig("clicks", "127.0.0.1", "0", text)
    windows = wallaroo.range_windows(sessions.SECOND).over(Count(), name="seconds")
    clicks = (
        wallaroo.source("clicks", source)
        .to(sessions.parse)
        .to(slow)
        .with_event_time(sessions.time_of, allow_before_1980=True)
    )
    counts = clicks.key_by(sessions.key_of).to(windows).map(str)
    run = new_run(wallaroo.build_application("clients", counts.to_sink(sink(tmp_path))))
    run.start()
    is_over = threading.Event()

    def send() -> None:
        for second in itertools.count():
            with socket.create_connection(run.addresses["clicks"], 10) as client:
                client.sendall(framed(f"a {second} 0"))
            if is_over.wait(0.003):
                return

    sending = threading.Thread(target=send)
    sending.start()
    try:
        eventually(lambda: run.status().outputs >= 20, "windows are over")
        assert run.status().sources[0].backlog_events > 0
    finally:
        is_over.set()
        sending.join()
        run.stop()
        assert run.wait(400)
