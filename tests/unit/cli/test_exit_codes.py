"""One rule for all commands: 2 is a wrong command line or pipeline, 1 is what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from wallaroo.cli.main import COMMANDS, main

APPLICATION = """
import wallaroo

def application_setup(args):
    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", "none.txt"))
    return wallaroo.build_application("app", lines.to_sink(wallaroo.StdoutSinkConfig()))
"""
MISSING = [
    "receive --listen 127.0.0.1:0 --out none/out --timeout 0.1",
    "send --to 127.0.0.1:1 --numbers 1 --connect-timeout 0.1",
    "send --to 127.0.0.1:1 --file none",
    "run app.py --master spark://127.0.0.1:5",
    "status taken",
    "status 127.0.0.1:5",
    "top 127.0.0.1:5",
    "profile 127.0.0.1:5",
    "state list --checkpoint none",
    "new taken",
]
WRONG = [
    *(f"{command} --no-such-option" for command in COMMANDS),
    "run",
    "run none.py",
    "run app.py --master locl",
    "run app.py --tasks 0",
    "dev --once none.py",
    "plan none.py --checkpoint none",
    "graph none.py",
    "new my-clicks",
    "status none",
    "receive --listen nowhere",
    "send --to nowhere --numbers 1",
]


def code_of(line: str) -> int:
    try:
        return main(line.split())
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(APPLICATION)
    (tmp_path / "taken").mkdir()


@pytest.mark.parametrize("line", MISSING)
def test_what_is_missing_outside_is_1(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(line) == 1, capsys.readouterr().err


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_line_is_2_in_two_lines_at_most(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(line) == 2
    said = capsys.readouterr().err
    assert "usage:" not in said
    if line.endswith("--no-such-option") or line == "run":
        assert 1 <= len(said.splitlines()) <= 2
