"""The public API's types, as mypy sees them."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wallaroo
from wallaroo.connectors.file.source import text

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SUBJECT = HERE / "typed_application.py"
FOUND = re.compile(r"typed_application\.py:(\d+): (note|error): (.*)$")


def expected() -> dict[int, str]:
    """What each line's mark says; a mark on a line of its own is about the line below it."""
    lines = SUBJECT.read_text().splitlines()
    found: dict[int, str] = {}
    for number, line in enumerate(lines, 1):
        if (mark := re.search(r"# ([TE]): (.+)$", line)) is None or number <= 5:
            continue
        at = number + 1 if line.startswith("#") else number
        if lines[at - 1] == "reveal_type(":
            at += 1
        found[at] = f"{mark[1]}: {mark[2]}"
    return found


def short(kind: str, message: str) -> str | None:
    if kind == "error":
        code = re.search(r"\[([a-z-]+)\]$", message)
        return f"E: {code[1]}" if code else None
    revealed = re.search(r'Revealed type is "(.+)"', message)
    return "T: " + re.sub(r"(?:\w+\.)+(\w+)", r"\1", revealed[1]) if revealed else None


def test_mypy_reveals_the_types_and_finds_the_errors_that_the_comments_say() -> None:
    pytest.importorskip("mypy")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        "--no-pretty",
        str(SUBJECT),
    ]
    output = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout
    found: dict[int, str] = {}
    for line in output.splitlines():
        if (match := FOUND.search(line)) and (said := short(match[2], match[3])):
            found.setdefault(int(match[1]), said)
    assert found == expected(), output


def test_a_type_given_to_a_configuration_changes_nothing_when_it_runs() -> None:
    plain, typed = (
        wallaroo.FileSourceConfig("In", "in.txt"),
        wallaroo.FileSourceConfig[str]("In", "in.txt"),
    )

    assert typed == plain
    assert typed.decoder is text
    assert pickle.loads(pickle.dumps(typed)) == plain
    assert wallaroo.TCPSourceConfig[str]("In", "", 0, text) == wallaroo.TCPSourceConfig(
        "In", "", 0, text
    )
