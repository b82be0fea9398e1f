"""The driver's end of resident tasks."""

from __future__ import annotations

import contextlib
import pickle
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ingress.test_tls import make_certificate
from wallaroo.engine.report import TaskReport
from wallaroo.engine.time.watermarks import BatchTime
from wallaroo.errors import PeerError
from wallaroo.network.proved_connections import beside, connect
from wallaroo.runtime.resident.framing import (
    AWAITING,
    Ahead,
    Epoch,
    Hello,
    Welcome,
    receive,
    send,
    unpacked_for_task,
)
from wallaroo.runtime.resident.tasks import START_S, LostTaskError, MeetingPoint, ResidentTasks
from wallaroo.runtime.resident.worker import connected_tasks, report_loss
from wallaroo.runtime.tasks.job import Piece
from wallaroo.sources.log import Range
from wallaroo.spark.resident.host import meeting_points

EPOCH = Epoch(0, -1, (), False)
COMMON: Any = "a batch of nothing"
HOST = "127.0.0.1"


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[ResidentTasks]:
    made = ResidentTasks(MeetingPoint(str(tmp_path / "tasks")), 2)
    yield made
    made.close()


def task(of: ResidentTasks, index: int, answer: Callable[[socket.socket], None]) -> None:
    """Be a task in a thread."""

    def live() -> None:
        # the driver may be gone before it says welcome
        with contextlib.suppress(EOFError), connect(of.endpoint) as driver:
            send(driver, pickle.dumps(Hello(index, f"address {index}")))
            welcome: Welcome = pickle.loads(receive(driver))
            assert welcome == Welcome(COMMON, ("address 0", "address 1"))
            send(driver, pickle.dumps(()))
            assert unpacked_for_task(receive(driver), index) == EPOCH
            answer(driver)

    threading.Thread(target=live, daemon=True).start()


def test_all_connections_of_a_run_with_a_certificate_are_encrypted(tmp_path: Path) -> None:
    tls = make_certificate(tmp_path, "run")
    tasks = ResidentTasks(meeting_points(HOST, HOST, tls, tmp_path)(1), 3)
    are_encrypted: list[bool] = []

    def live(index: int) -> None:
        driver = connect(tasks.endpoint)
        with driver, beside(tasks.endpoint, driver, index) as listener:
            send(driver, pickle.dumps(Hello(index, listener.address)))
            welcome: Welcome = pickle.loads(receive(driver))
            listener.secure(welcome.pem)
            connections = [driver, *connected_tasks(welcome, index, listener).values()]
            are_encrypted.extend(isinstance(each, ssl.SSLSocket) for each in connections)
            send(driver, pickle.dumps(()))

    with ThreadPoolExecutor(3) as threads:
        living = [threads.submit(live, index) for index in range(3)]
        tasks.welcome(COMMON, lambda: None)
        for each in living:
            each.result()
    tasks.close()

    assert are_encrypted == [True] * 9


def report(index: int, error: Any = None) -> Callable[[socket.socket], None]:
    made = TaskReport(0, index, f"attempt {index}", error=error)
    return lambda driver: send(driver, pickle.dumps((made,)))


def die(driver: socket.socket) -> None:
    """Say nothing."""


def started(tasks: ResidentTasks, *answers: Callable[[socket.socket], None]) -> ResidentTasks:
    for index, answer in reversed([*enumerate(answers)]):
        task(tasks, index, answer)
    tasks.welcome(COMMON, lambda: None)
    return tasks


def test_an_epoch_gives_the_reports_of_all_tasks(tasks: ResidentTasks) -> None:
    reports = started(tasks, report(0), report(1)).run(EPOCH)

    assert sorted(found.attempt for found in reports) == ["attempt 0", "attempt 1"]


def test_a_task_that_dies_is_lost(tasks: ResidentTasks) -> None:
    """Its error has the others' reports: what they have staged is removed."""
    with pytest.raises(LostTaskError, match="task 0 has gone") as raised:
        started(tasks, die, report(1)).run(EPOCH)

    assert [found.attempt for found in raised.value.reports] == ["attempt 1"]


def test_a_task_that_others_wait_for_is_late(
    tasks: ResidentTasks, eventually: Callable[..., None]
) -> None:
    """If a task is stopped, none that exchanges blocks with it can report."""
    wait = threading.Event()

    def hang(driver: socket.socket) -> None:
        wait.wait()
        report(0)(driver)

    def await_it(driver: socket.socket) -> None:
        send(driver, pickle.dumps(AWAITING))
        hang(driver)

    running = started(tasks, hang, await_it)
    assert running.late(0.0) == set()
    with ThreadPoolExecutor(1) as thread:
        epoch = thread.submit(running.run, EPOCH)
        eventually(lambda: running.late(0.0) == {0}, "task 1 reports that it waits")
        assert running.late(1e9) == set()
        wait.set()
        assert len(epoch.result()) == 2
    assert running.late(0.0) == set()


def test_a_task_that_is_dropped_while_it_is_silent_is_lost(
    tasks: ResidentTasks, eventually: Callable[..., None]
) -> None:
    """A host whose processes were stopped keeps its connections."""
    ends = threading.Event()
    running = started(tasks, lambda driver: ends.wait() and None, report(1))
    with ThreadPoolExecutor(1) as thread:
        epoch = thread.submit(running.run, EPOCH)
        eventually(lambda: running.late(0.0) == {0}, "the other one has reported")
        running.drop(0)
        with pytest.raises(LostTaskError, match="task 0 has gone"):
            epoch.result()
    ends.set()


def report_and_take(ahead: dict[int, Any], index: int) -> Callable[[socket.socket], None]:
    """Report, then take what comes next."""

    def answer(driver: socket.socket) -> None:
        report(0)(driver)
        ahead[index] = unpacked_for_task(receive(driver), index)

    return answer


def test_what_is_planned_while_tasks_work_is_sent_to_them(
    tasks: ResidentTasks, eventually: Callable[..., Any]
) -> None:
    piece = Piece(0, Range("", 0, 10, 10))
    planned = Ahead(1, ((), (piece,)), time=BatchTime(clock_ns=9))
    taken: dict[int, Any] = {}
    answers = [report_and_take(taken, index) for index in range(2)]

    started(tasks, *answers).run(EPOCH, lambda _: planned)

    eventually(lambda: len(taken) == 2, "both have it")
    assert taken == {0: replace(planned, pieces=((), ())), 1: planned}


def test_what_a_task_does_not_read_yet_is_small_or_not_sent(tasks: ResidentTasks) -> None:
    """A driver that waited for the task, which waits for the driver to read, would wait forever."""
    pieces = tuple(Piece(0, Range(f"{number:0200}", 0, 1, 1)) for number in range(10_000))
    planned = Ahead(1, (pieces,))

    reports = started(tasks, report(0), report(1)).run(EPOCH, lambda _: planned)

    assert len(reports) == 2


def test_a_task_that_dies_while_an_epoch_is_planned_ahead_is_lost(tasks: ResidentTasks) -> None:
    """And an error that explains it is still reported."""
    reports = started(tasks, die, report(1, PeerError("the disk is full"))).run(
        EPOCH, lambda _: Ahead(1, ())
    )

    assert str(reports[0].error) == "the disk is full"


def hang(driver: socket.socket) -> None:
    """Wait for a task that is not there: until the driver has gone."""
    driver.recv(1)


@pytest.mark.parametrize("order", [(die, hang), (hang, die)])
def test_a_task_that_is_lost_is_noticed_while_another_one_waits_for_it(
    tasks: ResidentTasks, order: tuple[Callable[[socket.socket], None], ...]
) -> None:
    began = time.monotonic()
    with pytest.raises(LostTaskError, match="has gone"):
        started(tasks, *order).run(EPOCH)
    assert time.monotonic() - began < 30.0


def test_an_error_that_made_others_go_is_reported_in_place_of_their_loss(
    tasks: ResidentTasks,
) -> None:
    reports = started(tasks, die, report(1, PeerError("the disk is full"))).run(EPOCH)

    assert str(reports[0].error) == "the disk is full"


def test_a_start_that_cannot_succeed_ends(tasks: ResidentTasks) -> None:
    def look() -> None:
        raise LostTaskError("the job has ended")

    with pytest.raises(LostTaskError, match="the job has ended"):
        tasks.welcome(COMMON, look)


def test_a_task_that_dies_before_it_connects_is_not_waited_for(tasks: ResidentTasks) -> None:
    """Spark's second attempt at it says so; the other one would wait for minutes."""
    began = time.monotonic()
    task(tasks, 1, die)
    threading.Thread(target=report_loss, args=(tasks.endpoint, 0), daemon=True).start()

    with pytest.raises(LostTaskError, match="task 0 ended while it started"):
        tasks.welcome(COMMON, lambda: None)

    assert time.monotonic() - began < START_S / 2


def test_a_connection_that_says_nothing_does_not_hold_up_the_start(tasks: ResidentTasks) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(tasks.endpoint.address))

        assert len(started(tasks, report(0), report(1)).run(EPOCH)) == 2


def test_the_loss_of_a_generation_that_is_over_is_no_news(tmp_path: Path) -> None:
    """Its driver is no longer there."""
    over = ResidentTasks(MeetingPoint(str(tmp_path / "over")), 1)
    over.close()
    report_loss(over.endpoint, 0)


def test_a_folder_with_too_long_a_name_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="Set TMPDIR to a folder with a shorter name"):
        ResidentTasks(MeetingPoint(str(tmp_path / ("x" * 120))), 1)
