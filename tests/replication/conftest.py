"""Two hosts for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replication.hosts import Hosts


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    there = Hosts(tmp_path)
    yield there
    there.end()
