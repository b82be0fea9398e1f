"""Repository places named by the Makefile, scripts and settings: all of them exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACE = re.compile(
    r"(?<![\w./$}-])((?:src|tests|scripts|docs|benchmarks|examples|deploy)/[-\w./]*\w)"
)
SCRIPTS = ("check", "format", "lib.sh", "setup", "setup-peers", "setup-test-servers")
FILES = (
    "Makefile",
    ".ci/run",
    "pyproject.toml",
    "mkdocs.yml",
    *(f"scripts/{name}" for name in SCRIPTS),
)


@pytest.mark.parametrize("file", FILES)
def test_places_exist(file: str) -> None:
    """A variable may complete a name, so each place is the beginning of one."""
    places = PLACE.findall((ROOT / file).read_text())

    assert [place for place in places if not any(ROOT.glob(f"{place}*"))] == []


def test_the_servers_of_tests_are_found_by_their_places() -> None:
    places = PLACE.findall((ROOT / "scripts/setup-test-servers").read_text())

    assert "tests/connectors/kafka/pom.xml" in places
