"""docs/cli.md: every command has a section, with options and defaults of its parser."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from wallaroo.cli.main import COMMANDS, build_parser

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
CLI = (ROOT / "docs" / "cli.md").read_text()
OPTION = re.compile(r"--[a-z][a-z-]+")
OF_OTHERS = {
    **dict.fromkeys(("--in", "--out"), "applications in examples/"),
    **dict.fromkeys(("--changes", "--away", "--store"), "python -m tests.verification"),
    **dict.fromkeys(("--events", "--per-second"), "benchmarks"),
    **dict.fromkeys(("--backup-interval", "--datadir", "--cluster-initializer"), "other systems"),
    "--chekpoint": "an example of a mistake",
}


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in dict.fromkeys(action.choices.values()):
                yield from parsers(below)


def options_of(command: str) -> dict[str, argparse.Action]:
    return {
        name: action
        for parser in parsers(build_parser([command]))
        for action in parser._actions
        for name in action.option_strings
        if name.startswith("--") and name not in ("--help", "--version")
    }


def section_of(command: str) -> str:
    """Return the text below the command's title, which may name two commands."""
    found = re.search(rf"^## [^\n]*wallaroo {command}\b.*?(?=^## |\Z)", CLI, re.M | re.S)
    assert found, f"docs/cli.md has no section of `wallaroo {command}`"
    return found[0].partition("### The built-in cases")[0]


def rows_of_run() -> dict[str, str]:
    """Return each option of the table of `wallaroo run`, with its row's column of defaults."""
    rows = [
        re.split(r"(?<!\\)\|", row) for row in re.findall(r"^\| `--.*", section_of("run"), re.M)
    ]
    return {name: row[2].strip() for row in rows for name in OPTION.findall(row[1])}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_in_a_commands_section_are_its_own(command: str) -> None:
    text = section_of(command)
    texts = [each for each in re.findall(r"`([^`\n]+)`", text) if each.startswith("--")]
    named = {option for each in texts for option in OPTION.findall(each)}

    of_run = set(options_of("run"))  # which other sections may name, too
    assert named - set(options_of(command)) - of_run - set(OF_OTHERS) == set()


def test_the_table_of_run_has_every_option() -> None:
    assert set(rows_of_run()) == set(options_of("run"))


@pytest.mark.parametrize("option", sorted(rows_of_run()))
def test_the_table_of_run_has_its_defaults(option: str) -> None:
    default = options_of("run")[option].default
    if isinstance(default, str | int | float) and not isinstance(default, bool) and default:
        assert f"`{default}`" in rows_of_run()[option]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_options_that_a_page_names_exist(page: Path) -> None:
    """In texts such as ``--tasks`` and ``wallaroo run --tasks 2``."""
    every = {name for command in COMMANDS for name in options_of(command)} | {"--help", "--version"}
    texts = re.findall(r"`([^`\n]+)`", page.read_text())
    named = {
        name for text in texts if re.match(r"wallaroo |--", text) for name in OPTION.findall(text)
    }

    assert named - every - set(OF_OTHERS) == set()
