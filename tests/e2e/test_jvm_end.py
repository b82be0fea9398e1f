"""Spark's JVM ends with the driver, however that dies, and at whatever moment of the start."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.spark
START_S_MAX = 400.0
AFTER_S = (0.0, 0.1, 0.5, 1.0, 1.5)  # from the JVM's start to the driver's end
ALONE_S = (0.0, 0.5, 0.5)  # to each driver's end, from the one before
APPLICATION = """
import wallaroo

def application_setup(args):
    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", __file__))
    return wallaroo.build_application("App", lines.to_sink(wallaroo.StdoutSinkConfig()))
"""
Eventually = Callable[..., None]


def jvm_of(driver: subprocess.Popen[bytes]) -> psutil.Process:
    """Return the process that is or becomes the JVM, once it executes a program of its own."""
    end_s = time.monotonic() + START_S_MAX
    while driver.poll() is None and time.monotonic() < end_s:
        for child in psutil.Process(driver.pid).children():
            with contextlib.suppress(psutil.Error):
                if any("spark-submit" in word or "SparkSubmit" in word for word in child.cmdline()):
                    return child
        time.sleep(0.005)
    pytest.fail("the driver starts no JVM")


def has_ended(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    (tmp_path / "application.py").write_text(APPLICATION)
    drivers = []

    def started() -> subprocess.Popen[bytes]:
        driver = subprocess.Popen(
            [sys.executable, "-m", "wallaroo", "run", str(tmp_path / "application.py")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        drivers.append(driver)
        return driver

    yield started
    for driver in drivers:
        driver.kill()
        driver.wait()


def test_no_jvm_outlives_a_driver_that_is_killed_while_spark_starts(
    start: Callable[[], subprocess.Popen[bytes]], eventually: Eventually
) -> None:
    """The next run begins at once, and sweeps away what dead runs have left."""
    jvms = []
    try:
        for seconds in AFTER_S:
            driver = start()
            jvms.append(jvm_of(driver))
            time.sleep(seconds)  # a fault's moment
            driver.kill()
            driver.wait()
        jvms.append(jvm_of(start()))
        for jvm in jvms[:-1]:
            eventually(lambda jvm=jvm: has_ended(jvm), "the JVM has ended")
    finally:
        for jvm in jvms:
            with contextlib.suppress(psutil.Error):
                jvm.kill()


def test_a_jvm_ends_with_its_driver_though_no_other_run_begins(
    start: Callable[[], subprocess.Popen[bytes]], eventually: Eventually
) -> None:
    """The drivers start before the first of them is killed: none sweeps for another."""
    drivers = [start() for _ in ALONE_S]
    jvms = [jvm_of(driver) for driver in drivers]
    try:
        for seconds, driver in zip(ALONE_S, drivers, strict=True):
            time.sleep(seconds)  # a fault's moment
            driver.kill()
            driver.wait()
        for jvm in jvms:
            eventually(lambda jvm=jvm: has_ended(jvm), "the JVM has ended")
    finally:
        for jvm in jvms:
            with contextlib.suppress(psutil.Error):
                jvm.kill()
