"""CONTRIBUTING.md: the places that it names exist, and a connector is in no others."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PLACE = re.compile(r"`((?:src|tests|scripts|docs|benchmarks)/[-\w./]+)")
NATS = re.compile(r"\bnats", re.IGNORECASE)
LISTS = {  # generated, or lists of all systems
    "src/wallaroo/connectors/__init__.py",
    "src/wallaroo/sources/__init__.pyi",
    "src/wallaroo/sinks/__init__.pyi",
    "scripts/setup-test-servers",
}


def test_the_places_that_it_names_exist() -> None:
    places = PLACE.findall(TEXT)

    assert len(places) > 40
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_it_is_read_in_ten_minutes() -> None:
    assert 100 < len(TEXT.splitlines()) <= 200


def test_nothing_but_its_folder_and_lists_names_a_system() -> None:
    """NATS is the example for all systems."""
    files = [*(ROOT / "src").rglob("*.py*"), *(ROOT / "scripts").iterdir()]
    naming = {
        file.relative_to(ROOT).as_posix()
        for file in files
        if file.suffix != ".pyc" and file.is_file() and NATS.search(file.read_text())
    }
    elsewhere = {file for file in naming if "src/wallaroo/connectors/nats/" not in file}

    assert elsewhere <= LISTS
