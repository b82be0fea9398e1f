"""Generators: fed exactly once over any kill, and their failures reported."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ingress.conftest import Running, wait_until
from wallaroo.errors import PipelineError, UserCodeError
from wallaroo.sources.feeds.generator import GeneratorFeed, GenSourceConfig
from wallaroo.spool import write_tail

ROOT = str(Path(__file__).parents[3])


class Totals:
    """Counts with an attribute that a restart must keep."""

    def __init__(self, last: int, delay_s: float = 0.0, fails_at: int = -1):
        self.last, self.delay_s, self.fails_at, self.total, self.calls = (
            last,
            delay_s,
            fails_at,
            0,
            0,
        )

    def initial_value(self) -> tuple[int, int]:
        return (0, 0)

    def apply(self, value: tuple[int, int]) -> tuple[int, int] | None:
        self.calls += 1
        if value[0] == self.fails_at:
            raise KeyError("no such symbol")
        if value[0] == self.last:
            return None
        if self.delay_s:
            time.sleep(self.delay_s)
        self.total += value[0] + 1
        return (value[0] + 1, self.total)


class Nothing:
    def initial_value(self) -> None:
        return None

    def apply(self, value: Any) -> Any:
        raise AssertionError("never called")


def expected(last: int) -> list[tuple[int, int]]:
    return [(number, number * (number + 1) // 2) for number in range(last + 1)]


def ends(running: Running, name: str) -> Callable[[], bool]:
    def is_ended() -> bool:
        running.feeders.poll()
        return running.source(name).reader.head().is_ended

    return is_ended


def values(running: Running, name: str) -> list[Any]:
    framing = GenSourceConfig(name, None).wire_framing
    return [pickle.loads(payload) for payload in running.source(name, framing).payloads()]


def test_a_generator_is_fed_until_it_ends(running: Running) -> None:
    running.start(
        GenSourceConfig("Totals", Totals(20_000)),
        GenSourceConfig("Nothing", Nothing()),
        sys_path=[ROOT],
    )  # type: ignore[arg-type]
    wait_until(ends(running, "Totals"))
    wait_until(ends(running, "Nothing"))
    assert values(running, "Totals") == expected(20_000)
    assert values(running, "Nothing") == []


def test_a_killed_generator_continues_exactly_with_its_attributes(running: Running) -> None:
    running.start(GenSourceConfig("Totals", Totals(600, delay_s=0.002)), sys_path=[ROOT])  # type: ignore[arg-type]
    for events in (20, 80, 130):
        running.source("Totals").wait_for(events)
        os.kill(running.feeders.pids["Totals"], signal.SIGKILL)
        seen = len(running.log)
        wait_until(lambda: running.feeders.poll() or "SIGKILL" in "".join(running.log[seen:]))  # noqa: B023  # used at once
    wait_until(ends(running, "Totals"))
    assert values(running, "Totals") == expected(600)


def test_a_generator_waits_for_the_backlog(running: Running) -> None:
    running.start(
        GenSourceConfig("Totals", Totals(100_000)), sys_path=[ROOT], backlog_bytes_max=50_000
    )  # type: ignore[arg-type]
    source = running.source("Totals")
    wait_until(lambda: source.reader.head().is_paused)
    assert source.reader.head().position.byte < 200_000
    while not ends(running, "Totals")():
        write_tail(source.reader.folder, source.reader.head().position)
    assert values(running, "Totals") == expected(100_000)


def test_a_generators_exception_is_a_user_error_behind_everything_it_made(running: Running) -> None:
    running.start(GenSourceConfig("Totals", Totals(9, fails_at=5)), sys_path=[ROOT])  # type: ignore[arg-type]
    with pytest.raises(UserCodeError) as caught:
        wait_until(ends(running, "Totals"))
    assert caught.value.step == "Totals"
    assert "test_feeders.py:" in caught.value.place
    assert (caught.value.cause, caught.value.event) == (
        "KeyError: 'no such symbol'",
        "after (5, 15)",
    )
    assert values(running, "Totals") == expected(5)
    assert "KeyError: 'no such symbol'" in running.source("Totals").reader.head().error


def test_a_call_that_failed_leaves_no_mark_on_what_is_kept() -> None:
    feed = GeneratorFeed("Totals", Totals(9, fails_at=5), b"")
    run = feed.next_run()
    assert run is not None
    assert run.events == 6
    assert pickle.loads(run.resume)[0].calls == 5
    with pytest.raises(UserCodeError):
        feed.next_run()


def test_configurations_travel() -> None:
    config = GenSourceConfig("G", Totals(3))
    copy = pickle.loads(pickle.dumps(config))
    assert (copy.name, copy.label, copy.wire_framing) == (
        config.name,
        config.label,
        config.wire_framing,
    )
    assert copy.decoder is config.decoder


SCRIPT = """
import sys, time
from pathlib import Path
from wallaroo.sources.feeds.generator import GenSourceConfig
from wallaroo.ingress.process import Feeders, Feeding
from wallaroo.spool import SpoolReader, folder_of

class Three:
    def initial_value(self):
        return 1
    def apply(self, value):
        return value + 1 if value < 3 else None

if __name__ == "__main__":
    root = Path(sys.argv[1])
    feeders = Feeders()
    feeders.start([GenSourceConfig("Three", Three())], root, Feeding(sys_path=sys.path))
    reader, until = SpoolReader(folder_of(root, "Three")), time.monotonic() + 400
    while not reader.head().is_ended and time.monotonic() < until:
        feeders.poll()
        time.sleep(0.005)
    feeders.stop()
    print(reader.head().position.events)
"""


def test_a_generator_of_a_script_is_found_under_the_scripts_name(tmp_path: Path) -> None:
    (tmp_path / "three_app.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(ROOT) / "src")}
    command = [sys.executable, str(tmp_path / "three_app.py"), str(tmp_path / "spool")]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr


def test_a_source_that_cannot_be_pickled_is_reported_by_name(running: Running) -> None:
    class Local(Totals):
        pass

    with pytest.raises(PipelineError, match="source 'G': cannot be pickled"):
        running.start(GenSourceConfig("G", Local(3)))  # type: ignore[arg-type]
