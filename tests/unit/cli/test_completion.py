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
        f"COMP_CWORD={len(words) - 1}\n_wallaroo\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    )
    done = subprocess.run(
        ["bash", "-c", ask], cwd=folder, capture_output=True, text=True, timeout=180, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("wallaroo ru", ["run"]),
        ("wallaroo re", ["receive"]),
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


def test_zsh_gets_the_same_script_with_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    bash = capsys.readouterr().out
    main(["completion", "zsh"])
    assert capsys.readouterr().out == "autoload -U +X bashcompinit && bashcompinit\n" + bash
