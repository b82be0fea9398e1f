"""No fault point without a test that kills there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def points() -> Iterator[str]:
    for file in (ROOT / "src").rglob("*.py"):
        yield from re.findall(r'fault_point\("([a-z_.]+)"\)', file.read_text())


def test_every_fault_point_is_named_where_processes_are_killed() -> None:
    """A point added to a path that no test takes would never be passed, and every crash test
    stay green.
    """
    this = Path(__file__)
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("*.py") if file != this)
    named = set(re.findall(r'"([a-z_.]+)[":]', tests))
    assert len(set(points())) > 50
    assert sorted(set(points()) - named) == []
