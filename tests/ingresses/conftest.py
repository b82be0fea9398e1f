"""A run with further ingresses for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ingresses.hosts import Ingresses


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Ingresses]:
    there = Ingresses(tmp_path)
    yield there
    there.end()
