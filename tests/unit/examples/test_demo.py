"""The demo program, with a stand-in for the application: its course, its report, and what it
notices.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

DEMO = Path(__file__).resolve().parents[3] / "scripts" / "demo.py"
STAND_IN = Path(__file__).with_name("stand_in_run.py")


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The demo with `wallaroo run` replaced."""
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "demo", module)
    spec.loader.exec_module(module)
    original = module._run_command

    def stand_in(*arguments: object) -> list[str]:
        command: list[str] = original(*arguments)
        return [sys.executable, str(STAND_IN), *command[command.index("--in") :]]

    monkeypatch.setattr(module, "_run_command", stand_in)
    return module


def run(demo: ModuleType, monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    monkeypatch.setattr(
        sys,
        "argv",
        ["demo.py", "--rate", "20000", "--seconds", "0.4", "--reject-share", "0.1", *more],
    )
    code: int = demo.main(demo.Waits(start_s=60.0, still_s=0.5, probe_s=0.05))
    return code


def test_the_demo_finds_a_right_run_right(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(demo, monkeypatch)

    out = capsys.readouterr().out
    assert code == 0
    assert "4,000 orders, 4,000 quotes" in out
    assert "p99.9" in out
    right, expected = out.splitlines()[-1].strip().removesuffix(" correct").split(" of ")
    assert right == expected
    assert int(right) > 300


@pytest.mark.parametrize(("fault", "found"), [("lose", "x missing"), ("repeat", "x twice")])
def test_the_demo_notices_lost_and_repeated_rejections(
    demo: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fault: str,
    found: str,
) -> None:
    code = run(demo, monkeypatch, "--", "--fault", fault)

    assert code == 1
    assert found in capsys.readouterr().out


def test_the_demo_says_when_the_application_ends_by_itself(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        demo, "_run_command", lambda *_: [sys.executable, "-c", "raise SystemExit(3)"]
    )

    code = run(demo, monkeypatch)

    assert code == 1
    assert "ended early, with exit code 3" in capsys.readouterr().err


def test_the_rate_rises_while_the_application_keeps_up_and_stays_at_most(demo: ModuleType) -> None:
    pacing = demo.Pacing(20_000, 60_000)
    rates = []
    for _ in range(5):
        pacing.look(backlog=10_000)
        rates.append(round(pacing.rate))
    assert rates == [28_000, 39_200, 54_880, 60_000, 60_000]


def test_the_rate_falls_once_the_backlog_grows_and_then_stays(demo: ModuleType) -> None:
    pacing = demo.Pacing(20_000, 60_000)
    for backlog in (10_000, 10_000, 120_000, 90_000, 20_000, 20_000):
        pacing.look(backlog)
    # lowered once: while the backlog shrinks, and after, nothing changes
    assert round(pacing.rate) == round(39_200 * 0.6)


def test_the_senders_follow_new_rates(demo: ModuleType) -> None:
    from market_spread_send import Pace

    pace = Pace(100)
    assert pace.due(1.0) == 100
    pace.follow(["300\n"])
    assert pace.due(2.0) == 400
