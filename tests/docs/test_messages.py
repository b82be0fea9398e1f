"""Messages that pages quote are messages of the program."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIELD = "…"
WORDS_MIN = 3


@cache
def messages() -> str:
    """Return all texts of the package, one a line, with ``…`` for what is filled in."""
    lines = []
    for module in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (
                    part.value if isinstance(part, ast.Constant) else FIELD for part in node.values
                )
                lines.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                lines.append(re.sub(r"%(\.\d)?[sdfgr]", FIELD, node.value))
    return "\n".join(line.replace("\n", " ") for line in lines)


def quoted(page: str) -> Iterator[str]:
    """Yield the messages in the first column of a page's tables, and those with fields."""
    text = (ROOT / "docs" / page).read_text()
    for line in text.splitlines():
        cells = line.strip("| ").split(" | ")
        for cell in cells if page == "runbook.md" and line.startswith("| ") else cells[:1]:
            for message in re.findall(r"`([^`]+)`", cell) if line.startswith("| ") else ():
                is_command = re.match(r"wallaroo|tests/|https?:|--", message)
                if len(message.split()) >= WORDS_MIN and not is_command:
                    yield message


@pytest.mark.parametrize("page", ["troubleshooting.md", "runbook.md"])
def test_quoted_messages_are_those_of_the_program(page: str) -> None:
    found = [*quoted(page)]
    assert len(found) >= 10

    lacking = [message for message in found if not is_printed(message)]

    assert lacking == []


def is_printed(message: str) -> bool:
    """Whether the parts of a message, between its fields, follow each other in one text."""
    parts = [re.escape(part.strip()) for part in message.split(FIELD) if part.strip()]
    return re.search("[^\n]*?".join(parts), messages()) is not None
