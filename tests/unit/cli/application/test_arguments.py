"""Options after APP: misspelled ones, and --help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from wallaroo.cli.main import main

APPLICATION = """
import argparse
import wallaroo

def application_setup(args):
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", help="what to do")
    parser.add_argument("--quite", action="store_true")
    options, _ = parser.parse_known_args(args)
    print("task", options.task, args)
    (name, host, port), = wallaroo.tcp_parse_input_addrs(args)
    raise SystemExit(5)
"""


@pytest.fixture
def app(tmp_path: Path) -> str:
    file = tmp_path / f"{tmp_path.name.replace('-', '_')}_app.py"
    file.write_text(APPLICATION)
    return str(file)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--chekpoint", "x"], "--checkpoint"),
        (["--checkpont=x"], "--checkpoint"),
        (["--taks", "3"], "--tasks"),
        (["--batchtime", "3"], "--batch-time"),
        (["--in", "a@h:1", "--no-lve"], "--no-live"),
    ],
)
def test_a_misspelled_option_is_refused_with_the_one_meant(
    app: str, words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", app, *words]) == 2
    said = capsys.readouterr()
    assert f"Did you mean {meant}?" in said.err
    assert "If it is the application's, write it after '--'" in said.err
    assert "task" not in said.out  # the application was not even set up


def test_an_option_of_run_is_refused_by_dev(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "--once", app, "--checkpoint", "kept"]) == 2
    said = capsys.readouterr()
    assert "an option of `wallaroo run`, which `wallaroo dev` lacks" in said.err
    assert "task" not in said.out


@pytest.mark.parametrize(
    "words",
    [
        ["--task", "a", "--quite"],  # the application's own, though near wallaroo's
        ["--", "--chekpoint", "x"],
        ["--other", "x", "--in", "a@h:1", "-chekpoint"],
    ],
)
def test_an_applications_own_options_are_never_refused(app: str, words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", app, "--in", "n@h:1", *words])
    assert ended.value.code == 5


def test_two_dashes_may_follow_the_application_at_once(app: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", app, "--", "--in", "n@h:1", "--chekpoint", "x"])
    assert ended.value.code == 5


def test_an_option_of_a_module_beside_the_application_is_its_own(app: str, tmp_path: Path) -> None:
    (tmp_path / "its_options.py").write_text("NAME = '--checkpoints'\n")
    with pytest.raises(SystemExit) as ended:
        main(["run", app, "--in", "n@h:1", "--checkpoints", "x"])
    assert ended.value.code == 5


def test_help_after_the_application_shows_the_options_of_both(
    app: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", app, "--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert "--checkpoint DIR" in said
    mine = said.partition(f"options of {app}:")[2]
    assert "--task TASK" in mine
    assert "what to do" in mine
    assert "--in NAME@HOST:PORT" in mine
    assert "--help" not in mine


def test_help_of_an_application_that_cannot_be_imported_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_for_help.py").write_text("import not_there_at_all\n")
    with pytest.raises(SystemExit):
        main(["run", str(tmp_path / "broken_for_help.py"), "--help"])
    assert "not known: application" in capsys.readouterr().out


def test_help_of_every_command_works_from_the_shell() -> None:
    for command in ("run", "plan", "graph"):
        done = subprocess.run(
            [sys.executable, "-m", "wallaroo", command, "--help"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0
        assert "APP" in done.stdout
