"""Runs in the driver's own process, which may have hundreds of them: they leave nothing open."""

from __future__ import annotations

import gc
import os
import time
import weakref
from pathlib import Path
from typing import ClassVar

import wallaroo
from tests.unit.runtime.applications import line, new_run, text
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.runtime.tasks.task import COLLECT_AFTER_MS


class Total:
    events = 0


@wallaroo.state_computation("count", state=Total)
def count(value: str, total: Total) -> str:
    total.events += 1
    return f"{value} {total.events}"


CREATED: list[int] = []  # an entry for each object of the class


class Noted:
    alive: ClassVar[weakref.WeakSet[Noted]] = weakref.WeakSet()

    def __init__(self) -> None:
        self.alive.add(self)
        CREATED.append(1)


@wallaroo.state_computation("note", state=Noted)
def note(value: str, noted: Noted) -> str:
    return value


@wallaroo.computation(name="slow")
def slow(value: str) -> str:
    time.sleep(2 * COLLECT_AFTER_MS / 1e3)
    return value


def views_open(folder: Path) -> list[str]:
    links = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
    paths = [os.readlink(link) for link in links if link.is_symlink()]
    return [path for path in paths if path.startswith(str(folder)) and path.endswith(".mdb")]


def test_a_run_that_ended_leaves_no_view_open(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("1\n2\n")
    source = wallaroo.source("in", wallaroo.FileSourceConfig("in", str(tmp_path / "in.txt"), text))
    counted = source.key_by(lambda value: value).to(count)
    sink = wallaroo.FileSinkConfig(tmp_path / "out.txt", encoder=line)
    application = wallaroo.build_application("count", counted.to_sink(sink))
    options = RunOptions(status_address=None, checkpoint=tmp_path / "state")
    run = Run(application, options, InProcessHost())
    run.start()
    assert run.wait(400)

    assert list((tmp_path / "state").rglob("data.mdb")), "the run had no view"
    gc.collect()
    assert not views_open(tmp_path)


def test_no_object_of_a_run_is_kept_from_collections(tmp_path: Path) -> None:
    gc.unfreeze()
    run = new_run(tmp_path, checkpoint=tmp_path / "state")
    run.start()
    assert run.wait(400)

    assert gc.get_freeze_count() == 0


def test_a_level_that_takes_long_does_not_collect_the_whole_process(tmp_path: Path) -> None:
    collected: list[int] = []

    def note(phase: str, found: dict[str, int]) -> None:
        if phase == "stop":
            collected.append(found["generation"])

    gc.collect()
    (tmp_path / "in.txt").write_text("1\n2\n")
    source = wallaroo.source("in", wallaroo.FileSourceConfig("in", str(tmp_path / "in.txt"), text))
    sink = wallaroo.FileSinkConfig(tmp_path / "out.txt", encoder=line)
    application = wallaroo.build_application("slow", source.to(slow).to_sink(sink))
    run = Run(application, RunOptions(status_address=None), InProcessHost())
    gc.callbacks.append(note)
    try:
        run.start()
        assert run.wait(400)
    finally:
        gc.callbacks.remove(note)

    assert 2 not in collected


def test_states_of_a_batch_are_freed_without_a_collection(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("1\n2\n")
    source = wallaroo.source("in", wallaroo.FileSourceConfig("in", str(tmp_path / "in.txt"), text))
    noted = source.key_by(lambda value: value).to(note)
    sink = wallaroo.FileSinkConfig(tmp_path / "out.txt", encoder=line)
    application = wallaroo.build_application("note", noted.to_sink(sink))
    gc.disable()
    try:
        run = Run(application, RunOptions(status_address=None), InProcessHost())
        run.start()
        assert run.wait(400)
        still_alive = len(Noted.alive)
    finally:
        gc.enable()

    assert CREATED
    assert still_alive == 0
