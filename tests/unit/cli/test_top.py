"""``wallaroo top``: the run's table from another terminal, with steps, keys and processes."""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from rich.console import Console

from tests.unit.cli.profile.test_profile import details
from tests.unit.cli.run.fakes import STATUS
from wallaroo.cli import top
from wallaroo.cli.main import main
from wallaroo.errors import PeerError
from wallaroo.monitoring.metrics.status import RunStatus
from wallaroo.monitoring.status_api.client import Answer


@dataclass
class Application:
    """A running application, whose events are more at each look; it ends after ``looks``."""

    looks: int = 100
    pid: int | None = field(default_factory=os.getpid)
    dashboard: str = "http://127.0.0.1:7200/"
    asked: Any = field(default_factory=count)

    def status(self) -> RunStatus:
        return STATUS

    def ask(self, path: str) -> Answer:
        assert path == "/details"
        look = next(self.asked)
        if look >= self.looks:
            raise PeerError("no application answers at 127.0.0.1:7200")
        return Answer(json.dumps(details(1_000 * (1 + look), 1.0 + look, 0)), False)


def text_of(shown: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=140).print(shown)
    return out.getvalue()


def test_the_second_look_has_the_rates_of_the_last_seconds() -> None:
    clock = iter((0.0, 2.0, 4.0, 9.0))
    looks = top.Looks(Application(), lambda: next(clock))  # type: ignore[arg-type]  # all it needs

    first = text_of(looks.look())
    assert STATUS.application in first
    assert "dashboard http://127.0.0.1:7200/" in first
    assert "us/event" not in first

    second = text_of(looks.look())
    step = next(line.split() for line in second.splitlines() if line.split()[:1] == ["count"])
    assert step == ["count", "75.0%", "500", "3000.0"]
    assert any(line.split() == ["slow", "1", "1.0%", "90.0%"] for line in second.splitlines())
    assert any(line.split()[:2] == ["driver", str(os.getpid())] for line in second.splitlines())

    for _ in range(2):
        last = text_of(looks.look())
    assert len(looks.samples) == 2  # over the five seconds since the last look but one
    assert next(line.split()[2] for line in last.splitlines() if " count " in line) == "200"


def test_an_application_elsewhere_has_no_processes_here() -> None:
    clock = iter((0.0, 2.0))
    looks = top.Looks(Application(pid=None), lambda: next(clock))  # type: ignore[arg-type]
    looks.look()
    assert "driver" not in text_of(looks.look())


def test_it_ends_with_the_application(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(top, "target_of", lambda where: Application(looks=3))
    assert main(["top", "127.0.0.1:7200", "--every", "0.001"]) == 0
    assert STATUS.application in capsys.readouterr().out


def test_it_says_that_nothing_runs_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(top, "target_of", lambda where: Application(looks=0))
    assert main(["top", "127.0.0.1:7200"]) == 1
    assert "no application answers at 127.0.0.1:7200" in capsys.readouterr().err
