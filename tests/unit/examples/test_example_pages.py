"""The examples' pages: their commands are understood, and name files that are there."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from wallaroo.cli.main import build_parser

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
COMMANDS = [
    pytest.param(page.parent, shlex.split(line), id=f"{page.parent.name}: {line[:24]}")
    for page in sorted(EXAMPLES.glob("*/README.md"))
    for line in page.read_text().splitlines()
    if line.startswith("wallaroo ")
]


def test_every_example_has_a_page_with_commands() -> None:
    applications = {
        folder for folder in EXAMPLES.iterdir() if (folder / f"{folder.name}.py").exists()
    }

    assert {folder for folder, _ in (each.values for each in COMMANDS)} == applications


@pytest.mark.parametrize(("folder", "command"), COMMANDS)
def test_a_pages_command_is_understood(folder: Path, command: list[str]) -> None:
    options = build_parser().parse_args(command[1:])

    for named in filter(None, (getattr(options, "app", None), getattr(options, "file", None))):
        assert (folder / str(named)).exists()
