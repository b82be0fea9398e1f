"""The page of faults names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_test_that_the_page_names_exists() -> None:
    """A test that was renamed or removed must not be promised."""
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) > 35
    missing = [
        (file, name)
        for file, name in named
        if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_every_test_that_the_page_names_apart_from_its_file_exists() -> None:
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    files = set(re.findall(r"`(tests/[\w/]+\.py)", page))
    texts = "".join((ROOT / file).read_text(encoding="utf-8") for file in sorted(files))
    named = re.findall(r"`(test_\w+)`", page)
    assert named
    assert [name for name in named if f"def {name}(" not in texts] == []
