"""Disk faults that are ordered from a running process: where they strike, and what is counted."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from wallaroo.instrumentation.faults import ORDER, TAKEN
from wallaroo.testing.verify.disturbances.damage import BitFlips
from wallaroo.testing.verify.disturbances.nemesis import POINTS, Nemesis
from wallaroo.testing.verify.disturbances.orders import Orders
from wallaroo.testing.verify.trial.processes import Kind
from wallaroo.testing.verify.trial.result import Result
from wallaroo.testing.verify.trial.schedule import Fault, Kill
from wallaroo.testing.verify.trial.supervised import Supervised


class Scene:
    """A run that continues."""

    def __init__(self) -> None:
        self.expected: list[float] = []

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def await_(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        raise AssertionError(what)

    def expect_end(self, seconds: float) -> None:
        self.expected.append(seconds)


@contextmanager
def passing(orders: Path, point: str) -> Iterator[None]:
    """A process that passes one point all the time."""
    is_over = threading.Event()

    def pass_it() -> None:
        while not is_over.wait(0.002):
            with contextlib.suppress(FileNotFoundError):
                (orders / point).unlink()
                (orders / ORDER).rename(orders / f"{point}{TAKEN}")

    thread = threading.Thread(target=pass_it)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def doer(folder: Path, **seconds: float) -> Nemesis:
    run = Supervised([], folder / "run.log")
    orders = Orders(folder / "orders", **seconds)
    result = Result("case", 1)
    flips = BitFlips(folder, result, print)
    return Nemesis(run, 1, Scene(), result, lambda line: None, orders, flips)


def fault(kind: Fault) -> Kill:
    return Kill(Kind.DRIVER, 0.0, False, 0.5, kind)


def test_a_point_that_nothing_passes_costs_seconds_not_the_fault(tmp_path: Path) -> None:
    """The order then goes to all other points, and the first process that passes one takes it."""
    nemesis_ = doer(tmp_path, chosen_s=0.05)
    with passing(tmp_path / "orders", "storage.write"):
        assert all(nemesis_.do(number, fault(Fault.EIO)) for number in range(4))
    assert nemesis_.result.injected == {Fault.EIO: 4}
    assert nemesis_.result.places == {(Fault.EIO, "storage.write"): 4}
    assert [
        file.name for file in (tmp_path / "orders").iterdir() if file.name in POINTS[Fault.EIO]
    ] == []


def test_what_no_process_took_is_not_counted(tmp_path: Path) -> None:
    """And waits for none."""
    nemesis_ = doer(tmp_path, chosen_s=0.05, every_s=0.05)
    assert not nemesis_.do(1, fault(Fault.ENOSPC))
    assert nemesis_.result.disturbances == 0


def test_every_point_gets_its_turn(tmp_path: Path) -> None:
    """The one that was tried least often is tried next."""
    nemesis_ = doer(tmp_path)
    points = [nemesis_._point(Fault.TORN) for _ in range(2 * len(POINTS[Fault.TORN]))]
    assert all(points.count(point) == 2 for point in POINTS[Fault.TORN])
