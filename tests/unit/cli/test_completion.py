"""The completion script, in a real bash."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from wallaroo.cli.main import main

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def completed(line: str, script: str, folder: Path) -> list[str]:
    """What bash offers for a line whose last word is being typed."""
    words = line.split(" ")
    ask = (
        f"{script}\nCOMP_WORDS=({' '.join(words[:-1])} '{words[-1]}')\n"
        f"COMP_CWORD={len(words) - 1}\n_shtab_wallaroo\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    )
    done = subprocess.run(
        ["bash", "-c", ask], cwd=folder, capture_output=True, text=True, timeout=400, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("wallaroo ru", ["run"]),
        ("wallaroo re", ["receive", "replica"]),
        ("wallaroo run --chec", ["--checkpoint"]),
        ("wallaroo run --app", ["--app-log-level"]),
        ("wallaroo run wo", ["words.py"]),
        ("wallaroo cluster st", ["start", "status", "stop"]),
        ("wallaroo dev words.py --on", ["--once"]),
    ],
)
def test_bash_completes_commands_options_and_files(
    line: str, offered: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "words.py").write_text("")
    assert main(["completion", "bash"]) == 0
    assert sorted(completed(line, capsys.readouterr().out, tmp_path)) == offered


def test_bash_completes_the_choices_of_an_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The values of an option with choices are offered, and no files."""
    (tmp_path / "light").write_text("")
    main(["completion", "bash"])
    script = capsys.readouterr().out
    assert completed("wallaroo run app.py --log-level o", script, tmp_path) == ["off"]


def test_zsh_gets_a_script_that_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The script of zsh registers the program and has a case for each command."""
    main(["completion", "zsh"])
    script = capsys.readouterr().out
    assert "compdef _shtab_wallaroo -N wallaroo" in script
    for command in ("new", "run", "graph", "doctor", "completion"):
        assert f"{command}) _arguments" in script


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_accepts_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    """A real zsh evaluates the line that the documentation names."""
    main(["completion", "zsh"])
    script = capsys.readouterr().out
    ask = f"autoload -Uz compinit && compinit -u\n{script}\nprint $_comps[wallaroo]\n"
    done = subprocess.run(["zsh", "-fc", ask], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
